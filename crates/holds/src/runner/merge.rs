//! Merges the decisions of several components about one object into one patch.

use std::sync::Arc;

use crate::conflict::OnConflict;
use crate::decision::{Evidence, Reach, Release};
use crate::release::FinalizerPatch;
use belayer_core::executor::Class;
use belayer_core::slim::ObjectMeta;

use super::component::{AnyWrite, By, Considered};
use super::step::AnyStep;

/// The merged action for one object.
#[derive(Debug)]
pub(super) enum Planned {
    /// A component executes a step; with the rest of its decision.
    Step(AnyStep, Box<Considered>),
    /// The runner writes.
    Write(Merged),
}

/// A write of the runner.
#[derive(Debug)]
pub(super) enum Merged {
    /// Removes holds.
    Release {
        patch: FinalizerPatch,
        /// The releases it contains, with their components.
        releases: Vec<(By, Release)>,
    },
    /// Adds holds.
    Hold { patch: FinalizerPatch, by: Vec<By> },
    /// Deletes the object.
    Delete { by: By, evidence: Arc<dyn Evidence> },
}

impl Merged {
    /// The component and rule of the decision.
    pub(super) fn by(&self) -> Vec<By> {
        match self {
            Self::Release { releases, .. } => releases.iter().map(|(by, _)| *by).collect(),
            Self::Hold { by, .. } => by.clone(),
            Self::Delete { by, .. } => vec![*by],
        }
    }

    /// Whether the patch names all finalizers that stay: see [`FinalizerPatch::is_complete`].
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Release { patch, .. } | Self::Hold { patch, .. } => patch.is_complete(),
            Self::Delete { .. } => true,
        }
    }

    /// What a conflict with it means.
    pub(super) fn on_conflict(&self) -> OnConflict {
        match self {
            Self::Release { .. } | Self::Hold { .. } => OnConflict::Reread,
            Self::Delete { .. } => OnConflict::Done,
        }
    }

    /// Its request class: a release needs no rate limit token.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Release { .. } => Class::Release,
            Self::Hold { .. } | Self::Delete { .. } => Class::Write,
        }
    }
}

/// The step among the decisions for a key without an object; no other action is possible.
pub(super) fn step_of(considered: Vec<Considered>) -> Option<Planned> {
    considered
        .into_iter()
        .find_map(|mut one| match one.write.take() {
            Some(AnyWrite::Step(step)) => Some(Planned::Step(step, Box::new(one))),
            _ => None,
        })
}

/// Merges the writes. Releases go first, then steps, then holds, and a deletion last: one
/// write, and the next decision says what is to follow. `None` if nothing would change.
pub(super) fn merge(
    object: &ObjectMeta,
    finalizers: &[&'static str],
    considered: Vec<Considered>,
) -> Option<Planned> {
    let mut releases = Vec::new();
    let mut holds = Vec::new();
    let (mut steps, mut delete) = (Vec::new(), None);
    for one in considered {
        match one.write {
            // Two components may release the same hold on the same evidence: it is removed once.
            Some(AnyWrite::Release(release))
                if releases
                    .iter()
                    .any(|(_, first): &(By, Release)| is_covered(&release, first)) => {}
            Some(AnyWrite::Release(release)) => releases.push((one.by, release)),
            Some(AnyWrite::AddHold(hold)) => holds.push((one.by, hold)),
            Some(AnyWrite::Step(_)) => steps.push(one),
            Some(AnyWrite::Delete(evidence)) => delete = delete.or(Some((one.by, evidence))),
            None => {}
        }
    }
    if !releases.is_empty() {
        let mut off = if releases
            .iter()
            .any(|(_, release)| release.evidence().reach() == Reach::AllHolds)
        {
            finalizers.to_vec()
        } else {
            releases.iter().map(|(_, release)| release.hold()).collect()
        };
        let adopted = releases.iter().flat_map(|(_, release)| release.adopted());
        off.extend(adopted.map(|finalizer| &**finalizer));
        return FinalizerPatch::release(object, &off)
            .map(|patch| Planned::Write(Merged::Release { patch, releases }));
    }
    if let Some(step) = step_of(steps) {
        return Some(step);
    }
    let on: Vec<&str> = holds.iter().map(|(_, hold)| *hold).collect();
    let by = holds.into_iter().map(|(by, _)| by).collect();
    if let Some(patch) = FinalizerPatch::hold(object, &on) {
        return Some(Planned::Write(Merged::Hold { patch, by }));
    }
    delete.map(|(by, evidence)| Planned::Write(Merged::Delete { by, evidence }))
}

/// Whether `first` removes everything that `release` removes.
fn is_covered(release: &Release, first: &Release) -> bool {
    release.hold() == first.hold()
        && release.adopted().is_empty()
        && release.evidence().reach() == Reach::OwnHold
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::component::Asked;
    use super::*;
    use crate::decision::{Evidence, Rule};
    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};

    #[derive(Debug)]
    struct Because(Reach);

    impl Evidence for Because {
        fn name(&self) -> &'static str {
            "Because"
        }

        fn reach(&self) -> Reach {
            self.0
        }
    }

    const BELAYERS: &[&str] = &["ours/a", "ours/b"];

    fn object(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            finalizers: finalizers.iter().map(|f| Arc::from(*f)).collect(),
            ..ObjectMeta::new(
                ObjectKey::new("n", "o"),
                Uid::new("u"),
                ResourceVersion::new(1),
            )
        }
    }

    fn says(component: &'static str, write: AnyWrite) -> Considered {
        Considered {
            by: By {
                component,
                row: const { &Rule::new(1, "test", "a test") },
            },
            write: Some(write),
            notices: Vec::new(),
            regarding: None,
            requeue_after: None,
            due: None,
            asked: Asked::No,
        }
    }

    fn releases(component: &'static str, hold: &'static str, reach: Reach) -> Considered {
        says(
            component,
            AnyWrite::Release(Release::new(hold, Because(reach))),
        )
    }

    fn left(planned: Option<Planned>) -> Option<Vec<String>> {
        planned.map(|planned| match planned {
            Planned::Write(Merged::Release { patch, .. } | Merged::Hold { patch, .. }) => {
                patch.finalizers().to_vec()
            }
            other => panic!("no patch: {other:?}"),
        })
    }

    #[test]
    fn several_releases_leave_in_one_patch() {
        let said = vec![
            releases("a", "ours/a", Reach::OwnHold),
            releases("b", "ours/b", Reach::OwnHold),
        ];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), BELAYERS, said)).unwrap(),
            ["x/y"]
        );
    }

    #[test]
    fn an_admins_request_removes_all_holds() {
        let said = vec![releases("a", "ours/a", Reach::AllHolds)];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), BELAYERS, said)).unwrap(),
            ["x/y"]
        );
        let said = vec![releases("a", "ours/a", Reach::OwnHold)];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), BELAYERS, said)).unwrap(),
            ["x/y", "ours/b"]
        );
    }

    #[test]
    fn one_hold_leaves_once_however_many_know_that_it_may() {
        let said = vec![
            releases("a", "ours/a", Reach::OwnHold),
            releases("b", "ours/a", Reach::OwnHold),
        ];
        let planned = merge(&object(&["ours/a"]), BELAYERS, said);
        let Some(Planned::Write(Merged::Release { releases, .. })) = planned else {
            panic!("no release");
        };
        assert_eq!(releases.len(), 1);
        assert_eq!(releases[0].0.component, "a");
    }

    #[test]
    fn adopted_finalizers_leave_with_the_hold_and_only_if_named() {
        let adopting = |names: &[&str]| {
            let names = names.iter().map(|name| Arc::from(*name)).collect();
            let release = Release::new("ours/a", Because(Reach::OwnHold)).adopting(names);
            vec![says("a", AnyWrite::Release(release))]
        };
        let on = object(&["x/y", "ours/a", "theirs/b"]);
        assert_eq!(
            left(merge(&on, BELAYERS, adopting(&["theirs/b"]))).unwrap(),
            ["x/y"]
        );
        assert_eq!(
            left(merge(&on, BELAYERS, adopting(&[]))).unwrap(),
            ["x/y", "theirs/b"]
        );
        // Only the configured finalizers; Belayer's own hold need not be present.
        assert_eq!(
            left(merge(
                &object(&["theirs/b"]),
                BELAYERS,
                adopting(&["theirs/b"])
            ))
            .unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn a_release_goes_before_a_step_and_a_step_before_a_hold_and_a_deletion() {
        let delete = || says("d", AnyWrite::Delete(Arc::new(Because(Reach::OwnHold))));
        let step = || says("c", AnyWrite::Step(AnyStep::scripted()));
        let hold = || says("b", AnyWrite::AddHold("ours/b"));
        let release = || releases("a", "ours/a", Reach::OwnHold);
        let kind = |said| match merge(&object(&["ours/a"]), BELAYERS, said) {
            Some(Planned::Step(..)) => "step",
            Some(Planned::Write(Merged::Release { .. })) => "release",
            Some(Planned::Write(Merged::Hold { .. })) => "hold",
            Some(Planned::Write(Merged::Delete { .. })) => "delete",
            None => "nothing",
        };
        assert_eq!(kind(vec![delete(), hold(), step(), release()]), "release");
        assert_eq!(kind(vec![delete(), hold(), step()]), "step");
        assert_eq!(kind(vec![delete(), hold()]), "hold");
        assert_eq!(kind(vec![delete()]), "delete");
    }

    #[test]
    fn where_one_releases_none_adds() {
        let said = vec![
            says("b", AnyWrite::AddHold("ours/b")),
            releases("a", "ours/a", Reach::OwnHold),
        ];
        assert_eq!(
            left(merge(&object(&["ours/a"]), BELAYERS, said)).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn holds_come_in_one_patch() {
        let said = vec![
            says("a", AnyWrite::AddHold("ours/a")),
            says("b", AnyWrite::AddHold("ours/b")),
        ];
        assert_eq!(
            left(merge(&object(&["x/y"]), BELAYERS, said)).unwrap(),
            ["x/y", "ours/a", "ours/b"]
        );
    }

    #[test]
    fn nothing_to_change_is_no_request() {
        assert!(
            merge(
                &object(&["x/y"]),
                BELAYERS,
                vec![releases("a", "ours/a", Reach::OwnHold)]
            )
            .is_none()
        );
        assert!(merge(&object(&["x/y"]), BELAYERS, Vec::new()).is_none());
    }
}
