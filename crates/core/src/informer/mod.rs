//! One list and one watch per kind, kept as an indexed store of slim objects that all components
//! share.
//!
//! [`Informer::builder`] returns the [`Informer`], whose [`run`](Informer::run) lists and watches
//! until it is stopped, and the [`Store`], which any component may read. [`Handler`]s are called
//! for every change, in order, after the store contains it.
//!
//! Guarantees for readers:
//!
//! - *Unknown is never absent.* Until the first list is complete, and again while the kind is not
//!   served, a lookup returns [`Lookup::Unknown`]. The same applies to a key whose object cannot be
//!   decoded.
//! - A relist takes effect atomically for all readers, and handlers get a deletion event for each
//!   vanished object.
//! - Objects never go back to an older version, not even after a reconnect to an API server that
//!   lags. Only if list after list is older (a restored etcd) does the store accept it; handlers
//!   then get [`Event::Relisted`] with `regressed`.
//! - An object of the same name with another UID is another object: a deletion and an addition.
//! - A bad object is skipped, counted and logged. It does not affect other objects. A watch event that
//!   does not identify its object is requested again, by another watch from the same version.
//!
//! Watches have no label selector: an object that lost its label would look deleted.
//!
//! The example [`informer`](https://github.com/belayer/belayer/blob/main/crates/core/examples/informer.rs) decodes a kind that this crate does not contain. The
//! metadata of any kind needs no code:
//!
//! ```no_run
//! use belayer_core::{DecodeContext, Decoders, Informer, Keep, OwnerMeta, Resource, WaitError};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn watch(client: kube::Client) -> Result<(), WaitError> {
//! let context = DecodeContext {
//!     keep: Keep::nothing().labels(["app"]),
//!     ..DecodeContext::default()
//! };
//! let jobs = Resource::new("batch", "v1", "Job", "jobs");
//! let (informer, store) = Informer::builder(client, jobs, Decoders::<OwnerMeta>::protobuf_or_json(context))
//!     .index("app", |job, add| job.meta.labels.get("app").into_iter().for_each(add))
//!     .build();
//! tokio::spawn(informer.run(CancellationToken::new()));
//! store.synced().await?;
//! println!("{:?} of {} jobs are of app web", store.count_by_index("app", "web"), store.len());
//! # Ok(())
//! # }
//! ```

mod backoff;
mod builder;
mod decode;
mod event;
mod formats;
mod frame;
mod json;
mod list;
mod protobuf;
mod reflector;
mod state;
mod store;
mod table;
mod telemetry;
mod watch;

pub use builder::{Informer, InformerBuilder, Scope, StreamingList};
pub use decode::{BadObject, Change, Decoder, Decoders, Framing, Page, Reading, WatchEvent};
pub use event::{Event, Handler};
pub(crate) use frame::{Frame, Frames};
pub use json::JsonDecoder;
pub use protobuf::ProtobufDecoder;
pub use state::{InformerState, WaitError};
pub use store::{Lookup, Store};
pub use table::Stored;

#[cfg(test)]
mod tests;
