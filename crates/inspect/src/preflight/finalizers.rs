//! Other writers of Belayer's finalizers: other field managers, and kube-controller-manager's own PVC controller.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::reader::{Page, Reader, explain};
use belayer_core::http::{ErrorClass, METADATA_ONLY_LIST, Request, RequestError};
use belayer_core::object::Resource;
use belayer_holds::names::{FIELD_MANAGER, KUBERNETES_PVC_PROTECTION};

use super::in_tree::{self, InTree, PVC_CONTROLLER};
use super::needs::PvcMode;
use super::pvcs;
use super::report::{About, Finding, Level};

/// Maximum number of objects read per kind: enough to find the managers that set a finalizer, at a bounded cost.
const SAMPLE: u32 = 500;

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    managed_fields: Vec<Managed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    fields_v1: Value,
}

async fn sample(reader: &Reader, kind: &Resource) -> Result<Vec<Object>, RequestError> {
    let request = Request::list(kind.path(None), SAMPLE, None).accept(METADATA_ONLY_LIST);
    let page: Page<Object> = Page::read(&reader.read(&request).await?)?;
    Ok(page.items.unwrap_or_default())
}

/// Field managers other than Belayer that set `finalizer` by server-side apply. Updates do not count: if Belayer's
/// admission policy adds the finalizer at creation, `managedFields` names the creator of the object.
pub(crate) async fn others(reader: &Reader, kind: &Resource, finalizer: &str) -> Option<Finding> {
    let objects = match sample(reader, kind).await {
        Ok(objects) => objects,
        Err(error) if error.class() == ErrorClass::NotServed => return None,
        Err(error) => {
            return Some(Finding::unknown(
                About::Finalizer,
                format!("which other managers set {finalizer}"),
                format!("{kind}: {}", explain(&error)),
            ));
        }
    };
    let mut setters: BTreeMap<&str, usize> = BTreeMap::new();
    for object in &objects {
        for manager in setters_of(&object.metadata, finalizer) {
            *setters.entry(manager).or_default() += 1;
        }
    }
    if setters.is_empty() {
        return None;
    }
    let who: Vec<String> = setters
        .iter()
        .map(|(manager, count)| format!("{manager} (on {count} {kind})"))
        .collect();
    Some(Finding::note(
        About::Finalizer,
        format!("{finalizer} is also set by {}", who.join(", ")),
        "of two controllers that set the same finalizer, one removes it while the other still relies on it",
    ))
}

fn setters_of<'a>(metadata: &'a Metadata, finalizer: &str) -> BTreeSet<&'a str> {
    if !metadata.finalizers.iter().any(|name| name == finalizer) {
        return BTreeSet::new();
    }
    let member = format!("v:{finalizer:?}");
    let sets = |managed: &&Managed| {
        managed.manager != FIELD_MANAGER
            && managed.operation == "Apply"
            && managed.fields_v1["f:metadata"]["f:finalizers"]
                .get(&member)
                .is_some()
    };
    let setters = metadata.managed_fields.iter().filter(sets);
    setters.map(|managed| managed.manager.as_str()).collect()
}

/// Whether PVCs are protected by exactly the intended controllers at time `now`.
pub(crate) async fn pvcs(reader: &Reader, mode: PvcMode, now: Timestamp) -> Vec<Finding> {
    if mode == PvcMode::InPlaceButOff {
        // Another process may run it.
        return pvcs::check(reader, now, mode).await;
    }
    let mut findings = Vec::new();
    let in_tree = in_tree::read_flag(reader).await;
    match (&in_tree, mode) {
        (InTree::On(pod), PvcMode::InPlace) => findings.push(
            Finding::missing(
                About::Finalizer,
                format!("{PVC_CONTROLLER} still runs in {pod}"),
                format!("it removes {KUBERNETES_PVC_PROTECTION} as well: it decides about the deletion of PVCs, not Belayer"),
            )
            .fix(format!("switch it off: --controllers=*,-{PVC_CONTROLLER}")),
        ),
        (InTree::Off(pod), PvcMode::Own) => findings.push(
            Finding::missing(
                About::Finalizer,
                format!("{PVC_CONTROLLER} is switched off in {pod}"),
                format!(
                    "nothing removes {KUBERNETES_PVC_PROTECTION}, and the kubelet does not mount a PVC that is being \
                     deleted without it"
                ),
            )
            .fix(format!("switch it on again, or set pvcProtection.finalizer: {KUBERNETES_PVC_PROTECTION}")),
        ),
        (InTree::Off(pod), PvcMode::Advise) => findings.push(
            Finding::missing(
                About::Finalizer,
                format!("{PVC_CONTROLLER} is switched off in {pod}"),
                "nothing protects PVCs in use, because pvc-protection only reports; deleted PVCs stay in Terminating",
            )
            .fix(format!("switch it on again, or set pvcProtection.finalizer: {KUBERNETES_PVC_PROTECTION}")),
        ),
        (InTree::Unknown(why), PvcMode::InPlace) => findings.push(Finding::unknown(
            About::Finalizer,
            format!("whether {PVC_CONTROLLER} is switched off"),
            why.clone(),
        )),
        _ => {}
    }
    // Stuck PVCs only prove what the flag has shown already.
    let is_reported = mode != PvcMode::InPlace && matches!(in_tree, InTree::Off(_));
    let seen = pvcs::check(reader, now, mode).await.into_iter();
    findings.extend(seen.filter(|finding| !is_reported || finding.level == Level::Note));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::empty(json!({"items": []}), Some(0))]
    #[case::empty_written_as_null(json!({"items": null}), Some(0))]
    #[case::one(json!({"items": [{"metadata": {}}]}), Some(1))]
    #[case::no_list(json!({"kind": "Status"}), None)]
    fn an_empty_list_differs_from_a_missing_one(
        #[case] answer: Value,
        #[case] expected: Option<usize>,
    ) {
        let list = serde_json::from_value::<Page<Object>>(answer).ok();
        let objects = list.map(|list| list.items.unwrap_or_default().len());
        assert_eq!(objects, expected);
    }

    #[test]
    fn only_managers_that_apply_it_count() {
        let fields = json!({"f:metadata": {"f:finalizers": {"v:\"belayer.dev/pod-status\"": {}}}});
        let managed = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let metadata: Metadata = serde_json::from_value(json!({
            "finalizers": ["belayer.dev/pod-status"],
            "managedFields": [
                managed("belayer", "Update"),
                managed("workflow-controller", "Update"),
                managed("gitops", "Apply"),
            ],
        }))
        .unwrap();
        let setters = setters_of(&metadata, "belayer.dev/pod-status");
        assert_eq!(setters.into_iter().collect::<Vec<_>>(), ["gitops"]);
        assert!(setters_of(&metadata, "example.com/x").is_empty());
    }
}
