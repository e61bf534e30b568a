//! Belayer's invariants by name: predicates without dependencies, shared by `debug_assert!` at run time, tests,
//! simulations and the demo's summary.
//!
//! ```
//! use belayer_holds::invariants::{others_kept, one_pod};
//!
//! let belayers = ["example.com/ours"];
//! let (before, after) = (["example.com/theirs", "example.com/ours"], ["example.com/theirs"]);
//! assert!(others_kept(&before, &after, &belayers));
//! assert!(one_pod(1, 3, 3));
//! ```

use std::fmt;

use belayer_core::logical_time::LogicalTime;

/// The invariants of Belayer. Each has a predicate here or is checked over a whole run by the
/// scenarios. The [module's example](self) checks two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING-KEBAB-CASE")]
pub enum Invariant {
    /// Belayer never adds, removes or reorders a finalizer, label or annotation that is not Belayer's. Belayer's are
    /// the names in [`names`](crate::names), and on pods that a profile selects the finalizers that the admin
    /// configured for removal.
    Foreign,
    /// A hold is released only with typed evidence; age and clocks are never evidence by default.
    Evidence,
    /// A decision about one UID is never applied to another object of the same name.
    Identity,
    /// No hold is added to an object that is being deleted.
    NoLateHold,
    /// Once faults stop, every object whose evidence exists is released within a bound.
    Liveness,
    /// Belayer's hold on a PVC is removed only after a live read, begun after the deletion was seen, found no pod
    /// that uses it.
    InUse,
    /// Belayer's hold on a workflow is removed only after a live read, begun after its deletion, found none of its
    /// pods with the pod-status hold, or if Argo goes on running it because of another controller's finalizer.
    Order,
    /// At most one live pod exists for one recreation record, and re-creations never exceed the
    /// budget.
    OnePod,
    /// A pod's spec is stored durably at any time between rejection and re-creation.
    NoLoss,
    /// A pod of which any container may have run is never re-created.
    RanOnce,
    /// In a settled cluster Belayer writes nothing but its Lease.
    Quiet,
}

impl Invariant {
    /// The name used in documents, tests and messages.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// FOREIGN: between `before` and `after` every finalizer that is not in `belayers` was kept in its
/// order. The [module's example](self) calls it.
pub fn others_kept<A: AsRef<str>, B: AsRef<str>>(
    before: &[A],
    after: &[B],
    belayers: &[&str],
) -> bool {
    let others = |finalizer: &&str| !belayers.contains(finalizer);
    before
        .iter()
        .map(AsRef::as_ref)
        .filter(others)
        .eq(after.iter().map(AsRef::as_ref).filter(others))
}

/// NO-LATE-HOLD: an object that was `deleting` before the write gained none that is in `belayers`.
/// [`others_kept`] compares the same lists. See the [example](self).
pub fn no_late_hold<A: AsRef<str>, B: AsRef<str>>(
    before: &[A],
    after: &[B],
    belayers: &[&str],
    deleting: Deleting,
) -> bool {
    let has = |list: &[&str], hold: &str| list.contains(&hold);
    let before: Vec<&str> = before.iter().map(AsRef::as_ref).collect();
    let after: Vec<&str> = after.iter().map(AsRef::as_ref).collect();
    deleting == Deleting::No
        || belayers
            .iter()
            .all(|hold| has(&before, hold) || !has(&after, hold))
}

/// IN-USE: whether a PVC may be released. A live read begun at `read_begun` found `users` pods
/// that use it; its deletion was seen at `deletion_seen`, if at all. The [module's example](self)
/// has other invariants.
pub fn unused_after_deletion(
    deletion_seen: Option<LogicalTime>,
    read_begun: LogicalTime,
    users: usize,
) -> bool {
    users == 0 && deletion_seen.is_some_and(|seen| seen < read_begun)
}

/// ONE-POD: one record has `live` pods, and `reserved` re-creations were begun of `budget` allowed
/// ones. The [module's example](self) calls it.
pub fn one_pod(live: usize, reserved: u32, budget: u32) -> bool {
    live <= 1 && reserved <= budget
}

/// NO-LOSS: the spec of a rejected pod is stored in `places` objects: the pod itself, its record,
/// its successor. [`one_pod`] limits the number of pods. See the [example](self).
pub fn no_loss(places: usize) -> bool {
    places > 0
}

/// RAN-ONCE: the number of pods of one record of which a container ever ran. [`one_pod`] limits
/// the number of pods that exist. See the [example](self).
pub fn ran_once(ran: usize) -> bool {
    ran <= 1
}

/// Whether an object was being deleted. An argument of [`no_late_hold`]. See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleting {
    /// `metadata.deletionTimestamp` was set.
    Yes,
    /// It was not.
    No,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const BELAYERS: &[&str] = &["o/1", "o/2"];

    #[rstest]
    #[case::belayers_may_go(&["a", "o/1", "b"], &["a", "b"], true)]
    #[case::belayers_may_come(&["a"], &["a", "o/2"], true)]
    #[case::foreign_went(&["a", "o/1"], &[], false)]
    #[case::foreign_came(&["a"], &["a", "b"], false)]
    #[case::foreign_moved(&["a", "b"], &["b", "a"], false)]
    fn others(#[case] before: &[&str], #[case] after: &[&str], #[case] holds: bool) {
        assert_eq!(others_kept(before, after, BELAYERS), holds);
    }

    #[test]
    fn in_use() {
        let (before, seen, after) = (LogicalTime::now(), LogicalTime::now(), LogicalTime::now());
        assert!(unused_after_deletion(Some(seen), after, 0));
        assert!(!unused_after_deletion(Some(seen), after, 1));
        assert!(!unused_after_deletion(Some(seen), before, 0));
        assert!(!unused_after_deletion(Some(seen), seen, 0));
        assert!(!unused_after_deletion(None, after, 0));
    }

    #[test]
    fn re_creations() {
        assert!(one_pod(1, 3, 3));
        assert!(!one_pod(2, 1, 3));
        assert!(!one_pod(1, 4, 3));
        assert!(no_loss(1) && !no_loss(0));
        assert!(ran_once(1) && !ran_once(2));
    }

    #[rstest]
    #[case::added_while_deleting(&[], &["o/1"], Deleting::Yes, false)]
    #[case::added_before(&[], &["o/1"], Deleting::No, true)]
    #[case::kept_while_deleting(&["o/1"], &["o/1"], Deleting::Yes, true)]
    fn late(
        #[case] before: &[&str],
        #[case] after: &[&str],
        #[case] deleting: Deleting,
        #[case] holds: bool,
    ) {
        assert_eq!(no_late_hold(before, after, BELAYERS, deleting), holds);
    }
}
