//! Held workflows.

use jiff::Timestamp;

use belayer_core::object::Uid;
use belayer_holds::held_objects::{self, Noted};
use belayer_holds::selection::UnselectedBy;

/// The recorded state of a held workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldWorkflow {
    /// Its identity.
    pub uid: Uid,
    /// Why no entry of the configuration selects it, if none does: rule 1 releases it.
    pub unselected: Option<UnselectedBy>,
    /// Its deletion timestamp.
    pub deleting: Option<Timestamp>,
}

/// Counts held workflows.
pub(crate) type HeldObjects = held_objects::HeldObjects<HeldWorkflow>;

impl Noted for HeldWorkflow {
    fn waits_since(&self) -> Option<Timestamp> {
        self.deleting
    }

    fn unselected(&self) -> Option<UnselectedBy> {
        self.unselected
    }

    fn set_unselected(&mut self, by: UnselectedBy) {
        self.unselected = Some(by);
    }

    /// A workflow that is being deleted does not count: its release depends only on its pods.
    fn counted(&self) -> Option<UnselectedBy> {
        self.unselected.filter(|_| self.deleting.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_core::object::ObjectKey;
    use belayer_holds::selection::{MassRelease, MaxUnselected};

    fn held(unselected: Option<UnselectedBy>, deleting: Option<i64>) -> Option<HeldWorkflow> {
        Some(HeldWorkflow {
            uid: Uid::new("u"),
            unselected,
            deleting: deleting.map(|second| Timestamp::from_second(second).unwrap()),
        })
    }

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("a", format!("w-{n}"))
    }

    #[test]
    fn more_unselected_workflows_than_the_limit_are_kept() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        let unselected = Some(UnselectedBy::Labels);
        for n in 0..21 {
            assert_eq!(held_objects.kept(), 0);
            held_objects.note(&key(n), held(unselected, None));
        }
        assert_eq!(held_objects.kept(), 21);
        assert_ne!(held_objects.mass_release(&key(0)), MassRelease::Within);
        held_objects.note(&key(0), held(unselected, Some(5)));
        assert_eq!(
            held_objects.mass_release(&key(1)),
            MassRelease::Within,
            "a workflow that is being deleted does not count"
        );
        assert_eq!(held_objects.unselected().len(), 20);
    }

    /// T4: those of one namespace keep nothing in another.
    #[test]
    fn t4_labels_of_one_namespace_keep_no_workflow_elsewhere() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        for n in 0..500 {
            held_objects.note(&key(n), held(Some(UnselectedBy::Labels), None));
        }
        let other = ObjectKey::new("b", "w");
        held_objects.note(&other, held(Some(UnselectedBy::Labels), None));
        assert_eq!(held_objects.mass_release(&other), MassRelease::Within);
        assert_ne!(held_objects.mass_release(&key(1)), MassRelease::Within);
    }

    #[test]
    fn waiting_workflows_are_listed_oldest_first() {
        let held_objects = HeldObjects::new(MaxUnselected::default());
        held_objects.note(&key(1), held(None, Some(20)));
        held_objects.note(&key(2), held(None, Some(10)));
        let waiting: Vec<_> = held_objects
            .waiting()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(waiting, [key(2), key(1)]);
        held_objects.note(&key(2), None);
        assert_eq!(held_objects.counts().waiting, 1);
        assert_eq!(
            held_objects.oldest_waiting(),
            Some(Timestamp::from_second(20).unwrap())
        );
        held_objects.clear();
        assert_eq!(
            held_objects.counts(),
            belayer_holds::held_objects::Counts::default()
        );
    }
}
