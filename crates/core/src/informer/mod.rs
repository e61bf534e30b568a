//! One list and one watch per kind, kept as an indexed store of slim objects, shared by all who
//! read the kind.
//!
//! [`Informer::builder`] makes two things: the [`Informer`], whose [`run`](Informer::run) lists and
//! watches until it is stopped, and the [`Store`], which everybody may read. [`Handler`]s are told
//! of every change, in order, after the store holds it.
//!
//! What readers may rely on:
//!
//! - *Unknown is never absent.* Until the first list is complete, and again while the kind is not
//!   served, a look-up says [`Lookup::Unknown`]. The same goes for a key whose object came in a
//!   shape that cannot be read.
//! - A relist takes effect at once for all readers, and handlers hear of what vanished.
//! - Objects never move backwards, not even when a reconnect ends at an API server that lags. Only
//!   when list after list says so (a restored etcd) does the store follow, and handlers are told:
//!   [`Event::Relisted`] with `regressed`.
//! - An object of the same name with another UID is another object: a deletion and an addition.
//! - A bad object is skipped, counted and named in a log line. It costs itself only.
//!
//! Watches carry no label selector: an object that lost its label would look deleted.

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
pub use json::JsonDecoder;
pub use protobuf::ProtobufDecoder;
pub use state::{InformerState, WaitError};
pub use store::{Lookup, Store};
pub use table::Stored;

#[cfg(test)]
mod tests;
