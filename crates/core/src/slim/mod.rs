//! Slim objects: only the fields of each kind that decisions read.
//!
//! The example [`informer`](https://github.com/belayer/belayer/blob/main/crates/core/examples/informer.rs) declares a kind by
//! [`slim_kind!`](crate::slim_kind); [`protobuf`] has one that implements the traits.
//!
//! ```
//! use belayer_core::slim::json::SlimJson as _;
//! use belayer_core::{DecodeContext, DecodeError, OwnerMeta, Slim as _};
//!
//! let json = r#"{"metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"4"}}"#;
//! let json = serde_json::from_str(json).map_err(DecodeError::from)?;
//! let meta = OwnerMeta::from_json(&json, &DecodeContext::default())?;
//! assert_eq!(meta.key().to_string(), "shop/web-0");
//! # Ok::<(), DecodeError>(())
//! ```

mod container_set;
mod context;
mod error;
pub mod json;
pub mod kind;
mod limits;
mod meta;
mod pod;
pub mod protobuf;

pub use container_set::ContainerSet;
pub use context::{DecodeContext, Interner, Keep};
pub use error::DecodeError;
pub use limits::ANY_PVC;
pub use meta::{Labels, Namespace, ObjectMeta, OwnerMeta, Pvc};
pub use pod::{
    BeforeDeletion, Container, ContainerKind, ContainerState, Continuity, Failure, Phase, Pod,
    Shutdown, Unstarted,
};

use crate::object::{ObjectKey, ResourceVersion, Uid};

/// An object as an informer stores it.
///
/// Each kind has one struct with the fields that any component reads (charter: cheap by
/// construction).
///
/// The [example of protobuf](protobuf) implements it for a Lease.
pub trait Slim: std::fmt::Debug + Send + Sync + 'static {
    /// The metadata that every kind has.
    fn meta(&self) -> &ObjectMeta;

    /// Whether `self` and `older` differ in anything but the resourceVersion. Events for which this
    /// is false are dropped before any queueing.
    fn differs(&self, older: &Self) -> bool;

    /// Takes over what only earlier versions contained. The store calls it before `self` replaces
    /// `previous`, the stored version of the same UID.
    fn inherit(&mut self, previous: &Self, transition: Transition) {
        let _ = (previous, transition);
    }

    /// The store calls it before `self`, of which it has no earlier version, becomes its first one.
    fn appear(&mut self, transition: Transition) {
        let _ = transition;
    }

    /// Namespace and name.
    fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// Identity.
    fn uid(&self) -> &Uid {
        &self.meta().uid
    }

    /// Version at which the object was last changed.
    fn resource_version(&self) -> ResourceVersion {
        self.meta().resource_version
    }
}

/// How a store got from one version of an object to a later one.
/// [`Slim::appear`] receives it; kinds that remember nothing ignore
/// it, as in the [example](crate::slim::protobuf).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// By the event of a watch: the later one is the next version.
    Watched,
    /// By a list, or after an event that could not be decoded: versions in between may be missing.
    Missed,
}
