//! What a namespace still contains, and the next step of its deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::address::Gvr;
use crate::simulated::object;

/// The entry of `spec.finalizers` that belongs to this controller.
pub(super) const KUBERNETES: &str = "kubernetes";

/// The objects of one kind in one namespace.
#[derive(Debug, Default)]
struct Kind {
    /// Not being deleted yet: name and UID.
    live: BTreeMap<Arc<str>, Arc<str>>,
    /// Being deleted, with the finalizers that block the deletion.
    deleting: BTreeMap<Arc<str>, Vec<String>>,
}

impl Kind {
    fn len(&self) -> usize {
        self.live.len() + self.deleting.len()
    }
}

/// The objects of one namespace.
#[derive(Debug, Default)]
pub(super) struct Content {
    kinds: BTreeMap<Gvr, Kind>,
    /// How many terminating objects have each finalizer.
    finalizers: BTreeMap<String, usize>,
}

/// An object to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) gvr: Gvr,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// The next step of a namespace's deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentStep {
    /// It is not being deleted, or waits for another controller's finalizer.
    Nothing,
    /// Set `status.phase` to `Terminating`.
    SetTerminating,
    /// Delete these; more may follow.
    Delete(Vec<Target>),
    /// Everything that can be deleted by now is being deleted: wait.
    Wait,
    /// It is empty: remove [`KUBERNETES`].
    Finalize,
}

impl Content {
    pub(super) fn upsert(&mut self, gvr: &Gvr, object: &Value) {
        let name: Arc<str> = object::name(object).into();
        self.unlist(gvr, &name);
        let kind = self.kinds.entry(gvr.clone()).or_default();
        if !object::is_deleting(object) {
            kind.live.insert(name, object::uid(object).into());
            return;
        }
        let finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
        for finalizer in &finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        kind.deleting.insert(name, finalizers);
    }

    pub(super) fn remove(&mut self, gvr: &Gvr, name: &str) {
        self.unlist(gvr, name);
        if self.kinds.get(gvr).is_some_and(|kind| kind.len() == 0) {
            self.kinds.remove(gvr);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    fn unlist(&mut self, gvr: &Gvr, name: &str) {
        let Some(kind) = self.kinds.get_mut(gvr) else {
            return;
        };
        kind.live.remove(name);
        for finalizer in kind.deleting.remove(name).unwrap_or_default() {
            if let Some(count) = self.finalizers.get_mut(&finalizer) {
                *count -= 1;
                if *count == 0 {
                    self.finalizers.remove(&finalizer);
                }
            }
        }
    }

    fn has_pods(&self) -> bool {
        self.kinds.contains_key(&Gvr::PODS)
    }

    /// Up to `limit` objects to delete now. As long as there are pods, only pods: they may use the
    /// other objects while they stop.
    fn targets(&self, limit: usize) -> Vec<Target> {
        let pods_only = self.has_pods();
        self.kinds
            .iter()
            .filter(|(gvr, _)| !pods_only || **gvr == Gvr::PODS)
            .flat_map(|(gvr, kind)| {
                kind.live.iter().map(|(name, uid)| Target {
                    gvr: gvr.clone(),
                    name: name.clone(),
                    uid: uid.clone(),
                })
            })
            .take(limit)
            .collect()
    }
}

/// Decides about a namespace; at most `limit` deletions at a time.
pub(super) fn decide(namespace: &Value, content: &Content, limit: usize) -> ContentStep {
    let has_kubernetes = object::items(namespace, "/spec/finalizers")
        .iter()
        .any(|f| f == KUBERNETES);
    if !object::is_deleting(namespace) || !has_kubernetes {
        return ContentStep::Nothing;
    }
    if object::text(namespace, "/status/phase") != Some("Terminating") {
        return ContentStep::SetTerminating;
    }
    if content.is_empty() {
        return ContentStep::Finalize;
    }
    let targets = content.targets(limit);
    if targets.is_empty() {
        ContentStep::Wait
    } else {
        ContentStep::Delete(targets)
    }
}

/// The conditions of a namespace being deleted, with the texts of the real controller.
///
/// While there are pods, nothing else has been counted yet, and the conditions claim that all
/// content is gone: seen on Kubernetes 1.36.
pub(super) fn conditions(content: &Content, failures: &[String]) -> Vec<Value> {
    let remaining: Vec<String> = content
        .kinds
        .iter()
        .filter(|_| !content.has_pods())
        .map(|(gvr, kind)| {
            format!(
                "{}.{} has {} resource instances",
                gvr.resource,
                gvr.group,
                kind.len()
            )
        })
        .collect();
    let finalizers: Vec<String> = content
        .finalizers
        .iter()
        .filter(|_| !content.has_pods())
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            Err((
                "ResourcesDiscovered",
                "All resources successfully discovered",
            )),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            Err((
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            )),
        ),
        match failures {
            [] => condition(
                "NamespaceDeletionContentFailure",
                Err((
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                )),
            ),
            failures => condition(
                "NamespaceDeletionContentFailure",
                Ok((
                    "ContentDeletionFailed",
                    &format!(
                        "Failed to delete all resource types, {} remaining: {}",
                        failures.len(),
                        failures.join(", ")
                    ),
                )),
            ),
        },
        condition_of(
            "NamespaceContentRemaining",
            &remaining,
            ("SomeResourcesRemain", "Some resources are remaining: "),
            ("ContentRemoved", "All content successfully removed"),
        ),
        condition_of(
            "NamespaceFinalizersRemaining",
            &finalizers,
            (
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: ",
            ),
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ),
    ]
}

fn condition_of(kind: &str, what: &[String], some: (&str, &str), none: (&str, &str)) -> Value {
    if what.is_empty() {
        return condition(kind, Err(none));
    }
    condition(
        kind,
        Ok((some.0, &format!("{}{}", some.1, what.join(", ")))),
    )
}

/// A condition without its time: `Ok` if it is fulfilled.
fn condition(kind: &str, holds: Result<(&str, &str), (&str, &str)>) -> Value {
    let (status, (reason, message)) = match holds {
        Ok(why) => ("True", why),
        Err(why) => ("False", why),
    };
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// The conditions to write, with their times; `None` if the namespace has them all already.
pub(super) fn changed(namespace: &Value, wanted: &[Value], now: &str) -> Option<Vec<Value>> {
    let old = object::items(namespace, "/status/conditions");
    let mut changed = false;
    let mut all: Vec<Value> = vec![];
    for condition in wanted {
        let same = |field: &str, old: &Value| old.get(field) == condition.get(field);
        let known = old.iter().find(|old| {
            ["type", "status", "reason", "message"]
                .iter()
                .all(|field| same(field, old))
        });
        all.push(known.cloned().unwrap_or_else(|| {
            changed = true;
            let mut condition = condition.clone();
            condition["lastTransitionTime"] = json!(now);
            condition
        }));
    }
    let others = old
        .iter()
        .filter(|old| wanted.iter().all(|c| c.get("type") != old.get("type")));
    all.extend(others.cloned());
    changed.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;

    fn namespace(phase: &str, finalizers: &[&str]) -> Value {
        json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": finalizers},
            "status": {"phase": phase},
        })
    }

    fn going() -> Value {
        namespace("Terminating", &[KUBERNETES])
    }

    fn with(objects: &[(Gvr, &str, Option<&str>)]) -> Content {
        let mut content = Content::default();
        for (gvr, name, kept_by) in objects {
            let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
            if let Some(finalizer) = kept_by {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object["metadata"]["finalizers"] = json!([finalizer]);
            }
            content.upsert(gvr, &object);
        }
        content
    }

    fn delete(targets: &[(Gvr, &str)]) -> ContentStep {
        ContentStep::Delete(
            targets
                .iter()
                .map(|(gvr, name)| Target {
                    gvr: gvr.clone(),
                    name: (*name).into(),
                    uid: format!("uid-{name}").into(),
                })
                .collect(),
        )
    }

    #[rstest]
    #[case::a_live_namespace_is_left_alone(
        json!({"metadata": {"name": "a"}, "spec": {"finalizers": [KUBERNETES]}}),
        with(&[(Gvr::PODS, "p", None)]), ContentStep::Nothing
    )]
    #[case::one_that_waits_for_others_too(namespace("Terminating", &["x/y"]), with(&[]), ContentStep::Nothing)]
    #[case::the_phase_comes_first(namespace("Active", &[KUBERNETES]), with(&[]), ContentStep::SetTerminating)]
    #[case::then_the_pods(
        going(), with(&[(PVCS, "c", None), (Gvr::PODS, "p", None)]), delete(&[(Gvr::PODS, "p")])
    )]
    #[case::the_rest_waits_for_the_pods(
        going(), with(&[(PVCS, "c", None), (Gvr::PODS, "p", Some("x/y"))]), ContentStep::Wait
    )]
    #[case::then_the_rest(
        going(), with(&[(PVCS, "c", None), (Gvr::SECRETS, "s", None)]),
        delete(&[(PVCS, "c"), (Gvr::SECRETS, "s")])
    )]
    #[case::which_may_be_held(going(), with(&[(PVCS, "c", Some("x/y"))]), ContentStep::Wait)]
    #[case::an_empty_one_may_go(going(), with(&[]), ContentStep::Finalize)]
    fn steps(#[case] namespace: Value, #[case] content: Content, #[case] expected: ContentStep) {
        assert_eq!(decide(&namespace, &content, 10), expected);
    }

    #[rstest]
    #[case::nothing_left(with(&[]), &[], [None, None, None])]
    #[case::pods_are_not_spoken_of(with(&[(Gvr::PODS, "p", Some("x/y"))]), &[], [None, None, None])]
    #[case::the_rest_is(
        with(&[(PVCS, "c", Some("x/y")), (PVCS, "d", None), (Gvr::JOBS, "j", Some("x/y"))]),
        &[],
        [
            None,
            Some("Some resources are remaining: persistentvolumeclaims. has 2 resource instances, \
                  jobs.batch has 1 resource instances"),
            Some("Some content in the namespace has finalizers remaining: x/y in 2 resource instances"),
        ]
    )]
    #[case::failures_are(
        with(&[(Gvr::PODS, "p", None)]), &["no", "never"],
        [Some("Failed to delete all resource types, 2 remaining: no, never"), None, None]
    )]
    fn conditions_that_hold(
        #[case] content: Content,
        #[case] failures: &[&str],
        #[case] expected: [Option<&str>; 3],
    ) {
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        let conditions = conditions(&content, &failures);
        let message = |kind: &str| {
            let condition = conditions.iter().find(|c| c["type"] == kind).unwrap();
            (condition["status"] == "True").then(|| condition["message"].as_str().unwrap())
        };
        let texts = [
            message("NamespaceDeletionContentFailure"),
            message("NamespaceContentRemaining"),
            message("NamespaceFinalizersRemaining"),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn unchanged_conditions_are_not_written_again() {
        let mut namespace = going();
        let wanted = conditions(&with(&[]), &[]);
        let written = changed(&namespace, &wanted, "2026-01-01T00:00:01Z").unwrap();
        namespace["status"]["conditions"] = json!(written);
        assert_eq!(changed(&namespace, &wanted, "2026-01-01T00:00:02Z"), None);

        let other = conditions(&with(&[(PVCS, "c", None)]), &[]);
        let written = changed(&namespace, &other, "2026-01-01T00:00:03Z").unwrap();
        let times = |kind: &str| {
            written.iter().find(|c| c["type"] == kind).unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(times("NamespaceContentRemaining"), "2026-01-01T00:00:03Z");
        assert_eq!(
            times("NamespaceFinalizersRemaining"),
            "2026-01-01T00:00:01Z"
        );
    }

    #[test]
    fn counts_follow_objects_through_their_changes() {
        let mut content = with(&[(PVCS, "c", None)]);
        let held = json!({"metadata": {
            "name": "c", "uid": "uid-c", "deletionTimestamp": "x", "finalizers": ["x/y", "x/z"],
        }});
        content.upsert(&PVCS, &held);
        assert_eq!(content.finalizers.len(), 2);
        content.remove(&PVCS, "c");
        assert!(content.is_empty() && content.finalizers.is_empty());
    }
}
