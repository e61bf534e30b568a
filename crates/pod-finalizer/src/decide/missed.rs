//! The count of rule 14: whether a deleted pod that was not held should have been held.

use jiff::Timestamp;

use super::{Verdict, unread, weigh};
use crate::profile::Mode;
use crate::snapshot::{CachedOwner, MassRelease, Owner, PodView, Selection};

/// Whether rule 13 would have held this pod before its deletion: its result is required, and no rule would have
/// released it.
///
/// A pod that was never to be held does not count, such as one that is deleted with its owner or namespace. The caller leaves out those
/// that were held and released.
pub(crate) fn is_missed(pod: &PodView, now: Timestamp) -> bool {
    let Selection::By { profile, .. } = &pod.selection else {
        return false;
    };
    let enforced = profile.mode == Mode::Enforce && !pod.held;
    enforced
        && is_awaited(pod)
        && !matches!(weigh(pod, MassRelease::Within, now), Verdict::Release(..))
}

/// Whether the caches show a consumer that waits for this pod's result, in a namespace that is not being deleted.
pub(crate) fn is_awaited(pod: &PodView) -> bool {
    let Selection::By { profile, .. } = &pod.selection else {
        return false;
    };
    if unread::is_never_held(pod) {
        return false;
    }
    let by_consumer = match &pod.owner {
        Owner::NotRequired => true,
        Owner::Missing => false,
        Owner::Known(owner) => match &owner.cached {
            CachedOwner::Present(owner) => {
                !owner.is_deleting() && !profile.is_owner_finished(&owner.labels)
            }
            CachedOwner::Absent | CachedOwner::Unknown => false,
        },
    };
    let namespace = pod.namespace.cached.as_ref();
    by_consumer && !namespace.is_some_and(|namespace| namespace.is_deleting())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::{Case, now, pod};
    use super::*;

    #[rstest]
    #[case::row_14_it_should_have_been_held(pod().deleting("11:59:59"), true)]
    #[case::row_14_even_if_its_status_is_not_known(pod().deleting("11:59:59").node_unasked(), true)]
    #[case::it_is_held(pod().held().deleting("11:59:59"), false)]
    #[case::it_is_not_selected(pod().deleting("11:59:59").unselected(), false)]
    #[case::its_profile_only_observes(pod().deleting("11:59:59").observed(), false)]
    #[case::its_result_was_read(pod().deleting("11:59:59").consumed(), false)]
    #[case::its_node_is_fulfilled(pod().deleting("11:59:59").ended().node(&["node-1"]), false)]
    #[case::an_admin_released_it(pod().deleting("11:59:59").admin_asked(), false)]
    #[case::it_has_no_owner(pod().deleting("11:59:59").ownerless(), false)]
    #[case::its_owner_is_being_deleted(pod().deleting("11:59:59").owner_deleting(), false)]
    #[case::its_owner_is_gone(pod().deleting("11:59:59").owner_absent(), false)]
    #[case::its_owner_finished(pod().deleting("11:59:59").owner_finished(), false)]
    #[case::its_namespace_is_being_deleted(pod().deleting("11:59:59").namespace_deleting(), false)]
    #[case::its_outcome_is_recorded(pod().deleting("11:59:59").ended().captured().read_as_record().written(), false)]
    fn an_unheld_pod_is_missed_only_if_its_result_is_required(
        #[case] case: Case,
        #[case] expected: bool,
    ) {
        assert_eq!(is_missed(case.0.pod.as_ref().unwrap(), now()), expected);
    }
}
