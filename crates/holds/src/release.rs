//! The merge patch that changes Belayer's finalizers and nothing else.
//!
//! The patch contains the UID and the resourceVersion of the decision. The server answers 409 if the object has
//! changed or is another one, so finalizers of other controllers cannot be lost, and a new object of the same name
//! cannot be changed. A JSON patch by index would
//! answer 422 on concurrent edits, and a strategic patch does not work on custom resources.
//!
//! ```
//! use belayer_core::{ObjectKey, ObjectMeta, ResourceVersion, Uid};
//! use belayer_holds::release::FinalizerPatch;
//!
//! let key = ObjectKey::new("shop", "web-0");
//! let pod = ObjectMeta::new(key, Uid::new("u-1"), ResourceVersion::new(7));
//! let patch = FinalizerPatch::hold(&pod, &["example.com/ours"]).expect("it has none yet");
//! assert_eq!(patch.finalizers(), ["example.com/ours"]);
//! assert!(FinalizerPatch::release(&pod, &["example.com/ours"]).is_none());
//! ```

use serde::Serialize;

use crate::invariants;
use belayer_core::slim::ObjectMeta;

/// Body of a merge patch of an object's finalizers. The [module's example](self) adds a finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizerPatch {
    body: Vec<u8>,
    finalizers: Vec<String>,
    /// Those that it adds or removes.
    changed: Vec<String>,
    is_complete: bool,
}

impl FinalizerPatch {
    /// The patch that removes `holds` from `object`; `None` if it has none of them.
    ///
    /// All other finalizers are kept in their order.
    pub fn release(object: &ObjectMeta, holds: &[&str]) -> Option<Self> {
        let finalizers = object.finalizers.iter().map(|finalizer| &**finalizer);
        let (removed, kept): (Vec<&str>, Vec<&str>) =
            finalizers.partition(|finalizer| holds.contains(finalizer));
        if removed.is_empty() {
            return None;
        }
        debug_assert!(invariants::others_kept(&object.finalizers, &kept, holds));
        Some(Self::new(object, &kept, &removed))
    }

    /// The patch that appends `holds` to the finalizers of `object`.
    ///
    /// `None` if it has them already, or if it is being deleted: the server forbids that (invariant NO-LATE-HOLD).
    pub fn hold(object: &ObjectMeta, holds: &[&str]) -> Option<Self> {
        if object.is_deleting() {
            return None;
        }
        let mut added = holds.to_vec();
        added.retain(|hold| !object.has_finalizer(hold));
        if added.is_empty() {
            return None;
        }
        let finalizers = object.finalizers.iter().map(|finalizer| &**finalizer);
        let all: Vec<&str> = finalizers.chain(added.iter().copied()).collect();
        debug_assert!(invariants::others_kept(&object.finalizers, &all, holds));
        Some(Self::new(object, &all, &added))
    }

    fn new(object: &ObjectMeta, finalizers: &[&str], changed: &[&str]) -> Self {
        #[derive(Serialize)]
        struct Body<'a> {
            metadata: Metadata<'a>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            uid: &'a str,
            resource_version: String,
            finalizers: &'a [&'a str],
        }
        let body = Body {
            metadata: Metadata {
                uid: object.uid.as_str(),
                resource_version: object.resource_version.to_string(),
                finalizers,
            },
        };
        Self {
            // Strings and lists of strings can always be serialised.
            body: serde_json::to_vec(&body).unwrap_or_default(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            changed: changed.iter().map(ToString::to_string).collect(),
            is_complete: !object.is_shortened(),
        }
    }

    /// Whether it names all finalizers that stay. If not, the object must be read live for the patch: a store does not
    /// keep all finalizers of an object that has very many (T3).
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether an admission webhook has undone it: the object in the answer still has a finalizer that it removes, or lacks
    /// one that it adds.
    pub fn is_undone_in(&self, answer: &[String]) -> bool {
        let mut changed = self.changed.iter();
        changed.any(|name| answer.contains(name) != self.finalizers.contains(name))
    }

    /// The JSON to send as `application/merge-patch+json`.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The finalizers of the object after the patch.
    pub fn finalizers(&self) -> &[String] {
        &self.finalizers
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;
    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};

    fn object(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            finalizers: finalizers.iter().map(|f| Arc::from(*f)).collect(),
            ..ObjectMeta::new(
                ObjectKey::new("a", "b"),
                Uid::new("u-1"),
                ResourceVersion::new(7),
            )
        }
    }

    fn text(patch: Option<FinalizerPatch>) -> Option<String> {
        patch.map(|patch| String::from_utf8(patch.body).unwrap())
    }

    #[test]
    fn a_release_is_exactly_the_documented_patch() {
        assert_eq!(
            text(FinalizerPatch::release(
                &object(&["z/z", "ours/h", "a/a"]),
                &["ours/h"]
            ))
            .unwrap(),
            r#"{"metadata":{"uid":"u-1","resourceVersion":"7","finalizers":["z/z","a/a"]}}"#
        );
    }

    #[rstest]
    #[case::the_last_one(&["ours/h"], &["ours/h"], Some("[]"))]
    #[case::several_holds_in_one_patch(&["ours/a", "x/y", "ours/b"], &["ours/a", "ours/b"], Some(r#"["x/y"]"#))]
    #[case::nothing_to_remove(&["x/y"], &["ours/h"], None)]
    #[case::a_foreign_duplicate_is_kept(&["x/y", "x/y", "ours/h"], &["ours/h"], Some(r#"["x/y","x/y"]"#))]
    fn releases(#[case] on: &[&str], #[case] off: &[&str], #[case] expected: Option<&str>) {
        let sent = text(FinalizerPatch::release(&object(on), off));
        match (sent, expected) {
            (Some(sent), Some(expected)) => {
                assert!(
                    sent.ends_with(&format!("\"finalizers\":{expected}}}}}")),
                    "{sent}"
                );
            }
            (sent, expected) => assert_eq!(sent.is_some(), expected.is_some()),
        }
    }

    #[rstest]
    #[case::done(&["x/y"], false)]
    #[case::done_and_another_added(&["x/y", "z/z"], false)]
    #[case::undone(&["ours/h", "x/y"], true)]
    fn a_release_is_undone(#[case] answer: &[&str], #[case] expected: bool) {
        let answer: Vec<String> = answer.iter().map(ToString::to_string).collect();
        let patch = FinalizerPatch::release(&object(&["x/y", "ours/h"]), &["ours/h"]).unwrap();
        assert_eq!(patch.is_undone_in(&answer), expected);
        let patch = FinalizerPatch::hold(&object(&["x/y"]), &["ours/h"]).unwrap();
        assert_eq!(patch.is_undone_in(&answer), !expected);
    }

    #[test]
    fn a_hold_is_appended() {
        let patch = FinalizerPatch::hold(&object(&["x/y"]), &["ours/h"]).unwrap();
        assert_eq!(patch.finalizers(), ["x/y", "ours/h"]);
        assert_eq!(
            FinalizerPatch::hold(&object(&["ours/h"]), &["ours/h"]),
            None
        );
    }

    #[test]
    fn no_hold_is_added_late() {
        let mut deleting = object(&[]);
        deleting.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(FinalizerPatch::hold(&deleting, &["ours/h"]), None);
    }
}
