//! Held pods with an owner: their indexes, what stores and live reads show about their owners, and the rule that
//! releases pods when their owner ends, for a process in which all components that hold pods are disabled.
//!
//! An index of pods by the owner that waits for them:
//!
//! ```
//! use belayer_core::InformerBuilder;
//! use belayer_core::slim::Pod;
//! use belayer_holds::owned;
//!
//! fn with_index(pods: InformerBuilder<Pod>) -> InformerBuilder<Pod> {
//!     pods.index(owned::HELD_BY_OWNER, owned::held_by_owner)
//! }
//! ```

mod owner;
mod rule;

use crate::names;
use belayer_core::object::Uid;
use belayer_core::slim::Pod;

pub use owner::{EndedOwner, NAMES, ObservedOwner, OwnerEnd, OwnerStores, find_owner};
pub use rule::{OwnerEnds, Parts, Snapshot};

/// Index of the pod store: pods whose owner waits for them, by the UID of their controller.
///
/// Those are the pods that carry the pod-status hold. A pod that only pod-recreation holds has no result, so
/// its owner does not wait for it.
pub const HELD_BY_OWNER: &str = "held-by-owner-uid";

/// Computes the values of [`HELD_BY_OWNER`]. The [module's example](self) adds the index.
pub fn held_by_owner(pod: &Pod, show: &mut dyn FnMut(&str)) {
    if let Some(owner) = holding_owner(pod) {
        show(owner.as_str());
    }
}

/// The controller of a pod, if it waits for the pod. [`held_by_owner`] lists the pods by it. See
/// the [example](crate::owned).
pub fn holding_owner(pod: &Pod) -> Option<&Uid> {
    owner_of_held_by(pod, names::POD_STATUS_HOLD)
}

/// Index of the pod store: pods that carry the hold of pod-recreation, by the UID of their controller.
pub const RECREATION_BY_OWNER: &str = "recreation-by-owner-uid";

/// Computes the values of [`RECREATION_BY_OWNER`]. It is added as [`held_by_owner`] is. See the
/// [example](crate::owned).
pub fn recreation_by_owner(pod: &Pod, show: &mut dyn FnMut(&str)) {
    if let Some(owner) = owner_of_held_by(pod, names::POD_RECREATION_HOLD) {
        show(owner.as_str());
    }
}

fn owner_of_held_by<'a>(pod: &'a Pod, hold: &str) -> Option<&'a Uid> {
    let owner = pod.meta.controller.as_ref()?;
    pod.meta.has_finalizer(hold).then_some(&owner.uid)
}
