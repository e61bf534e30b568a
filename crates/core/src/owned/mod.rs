//! Pods that are owned and held: the index to find them by, and the rule that lets them go when
//! their owner ends, for a process in which no component that holds pods is switched on.

mod rule;

use crate::names;
use crate::object::Uid;
use crate::slim::Pod;

pub use rule::{EndedOwner, NAMES, OwnerEnds, Parts, Snapshot};

/// Index of the pod store: pods that carry a hold of ours, by the UID of their controller.
pub const HELD_BY_OWNER: &str = "held-by-owner-uid";

/// Shows the values of [`HELD_BY_OWNER`].
pub fn held_by_owner(pod: &Pod, show: &mut dyn FnMut(&str)) {
    if let Some(owner) = holding_owner(pod) {
        show(owner.as_str());
    }
}

/// The controller of a pod that carries a hold of ours.
pub fn holding_owner(pod: &Pod) -> Option<&Uid> {
    let owner = pod.meta.controller.as_ref()?;
    is_held(pod).then_some(&owner.uid)
}

/// Whether a pod carries any hold of ours.
pub fn is_held(pod: &Pod) -> bool {
    names::POD_HOLDS
        .iter()
        .any(|hold| pod.meta.has_finalizer(hold))
}
