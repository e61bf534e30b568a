//! What several components say about one object becomes one patch.

use crate::decision::{Reach, Release};
use crate::release::FinalizerPatch;
use crate::slim::ObjectMeta;

use super::component::{AnyWrite, By, Considered};

/// The one write about an object.
#[derive(Debug)]
pub(super) enum Merged {
    /// Takes holds off.
    Release {
        patch: FinalizerPatch,
        /// The releases that asked for it, and whose they are.
        releases: Vec<(By, Release)>,
    },
    /// Puts holds on.
    Hold { patch: FinalizerPatch, by: Vec<By> },
}

/// Merges the writes. Releases go first: where something is released nothing is added, and the
/// next decision says what is to be added then. `None` if nothing would change.
pub(super) fn merge(
    object: &ObjectMeta,
    ours: &[&'static str],
    considered: Vec<Considered>,
) -> Option<Merged> {
    let mut releases = Vec::new();
    let mut holds = Vec::new();
    for one in considered {
        match one.write {
            Some(AnyWrite::Release(release)) => releases.push((one.by, release)),
            Some(AnyWrite::AddHold(hold)) => holds.push((one.by, hold)),
            None => {}
        }
    }
    if !releases.is_empty() {
        let off = if releases
            .iter()
            .any(|(_, release)| release.evidence().reach() == Reach::AllOfOurs)
        {
            ours.to_vec()
        } else {
            releases.iter().map(|(_, release)| release.hold()).collect()
        };
        return FinalizerPatch::release(object, &off)
            .map(|patch| Merged::Release { patch, releases });
    }
    let on: Vec<&str> = holds.iter().map(|(_, hold)| *hold).collect();
    let by = holds.into_iter().map(|(by, _)| by).collect();
    FinalizerPatch::hold(object, &on).map(|patch| Merged::Hold { patch, by })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::component::Asked;
    use super::*;
    use crate::decision::{Evidence, Row};
    use crate::object::{ObjectKey, ResourceVersion, Uid};

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

    const OURS: &[&str] = &["ours/a", "ours/b"];

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
                row: Row {
                    number: 1,
                    name: "test",
                },
            },
            write: Some(write),
            notices: Vec::new(),
            look_again: None,
            asked: Asked::No,
        }
    }

    fn releases(component: &'static str, hold: &'static str, reach: Reach) -> Considered {
        says(
            component,
            AnyWrite::Release(Release::new(hold, Because(reach))),
        )
    }

    fn left(merged: Option<Merged>) -> Option<Vec<String>> {
        merged.map(|merged| match merged {
            Merged::Release { patch, .. } | Merged::Hold { patch, .. } => {
                patch.finalizers().to_vec()
            }
        })
    }

    #[test]
    fn several_releases_leave_in_one_patch() {
        let said = vec![
            releases("a", "ours/a", Reach::OwnHold),
            releases("b", "ours/b", Reach::OwnHold),
        ];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), OURS, said)).unwrap(),
            ["x/y"]
        );
    }

    #[test]
    fn the_admins_word_takes_all_of_ours() {
        let said = vec![releases("a", "ours/a", Reach::AllOfOurs)];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), OURS, said)).unwrap(),
            ["x/y"]
        );
        let said = vec![releases("a", "ours/a", Reach::OwnHold)];
        assert_eq!(
            left(merge(&object(&["ours/a", "x/y", "ours/b"]), OURS, said)).unwrap(),
            ["x/y", "ours/b"]
        );
    }

    #[test]
    fn where_one_releases_none_adds() {
        let said = vec![
            says("b", AnyWrite::AddHold("ours/b")),
            releases("a", "ours/a", Reach::OwnHold),
        ];
        assert_eq!(
            left(merge(&object(&["ours/a"]), OURS, said)).unwrap(),
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
            left(merge(&object(&["x/y"]), OURS, said)).unwrap(),
            ["x/y", "ours/a", "ours/b"]
        );
    }

    #[test]
    fn nothing_to_change_is_no_request() {
        assert!(
            merge(
                &object(&["x/y"]),
                OURS,
                vec![releases("a", "ours/a", Reach::OwnHold)]
            )
            .is_none()
        );
        assert!(merge(&object(&["x/y"]), OURS, Vec::new()).is_none());
    }
}
