//! Whether Argo's workflow controllers process all workflows, and hold pods by a finalizer of their own (A22).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use belayer_core::http::METADATA_ONLY_LIST;
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_holds::{argo, names};

use super::report::{About, Finding};
use crate::argo::{
    INSTANCE_LABEL, OWN_FINALIZER, STATUS_FINALIZER, controllers, why_not_processed,
};
use crate::reader::{ReadResult, Reader, explain};

/// Maximum number of groups of workflows that are named.
const NAMED: usize = 10;

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads the workflow controllers, and the metadata of all workflows. `adopts`: whether a profile removes the controllers'
/// own finalizer together with Belayer's.
pub(crate) async fn check(reader: &Reader, adopts: bool) -> Vec<Finding> {
    let all = match controllers(reader).await {
        ReadResult::Found(all) => all,
        ReadResult::Absent => Vec::new(),
        ReadResult::Unknown(why) => {
            let what = "which workflow controllers run";
            return vec![Finding::note(About::Finalizer, what, why)];
        }
    };
    let mut findings = Vec::new();
    for one in all
        .iter()
        .filter(|one| one.may_have_own_finalizer && !adopts)
    {
        let what = format!(
            "whether {OWN_FINALIZER} of deployment {} is true",
            one.place
        );
        let why = "its value comes from a Secret, or from a ConfigMap that could not be read";
        findings.push(Finding::note(About::Finalizer, what, why));
    }
    for one in all.iter().filter(|one| one.own_finalizer && !adopts) {
        let what = format!("{OWN_FINALIZER} of deployment {}", one.place);
        let means = format!(
            "this workflow controller holds its pods by {STATUS_FINALIZER} as well, and Belayer does not remove that \
             finalizer: a pod that is deleted while the controller is down keeps it, with Argo up to 3.6.4 for ever"
        );
        let fix = format!(
            "unset the variable; until no pod has the finalizer any more, set `adopt: [{STATUS_FINALIZER}]` in the profile"
        );
        findings.push(Finding::note(About::Finalizer, what, means).fix(fix));
    }
    let workflows = match unfinished(reader).await {
        ReadResult::Found(workflows) => workflows,
        ReadResult::Absent => return findings,
        ReadResult::Unknown(why) => {
            let what = "whether all workflows are processed";
            findings.push(Finding::note(About::Finalizer, what, why));
            return findings;
        }
    };
    if workflows.is_empty() {
        return findings;
    }
    let ignored = ignored(reader).await;
    let held = workflows.iter().filter(|((_, namespace), _)| {
        *namespace != names::SYSTEM_NAMESPACE && !ignored.contains(namespace)
    });
    let unprocessed = held.filter_map(|((instance, namespace), count)| {
        let why = why_not_processed(&all, instance, namespace)?;
        let workflows = one_or_many(*count, "unfinished workflow", "unfinished workflows");
        let what = format!("{workflows} in namespace {namespace}");
        let is_known = all.iter().any(|one| one.may_process(instance, namespace));
        let (means, fix) = if is_known {
            (
                format!("{why}: their pods stay held after they have ended"),
                "start the workflow controller, or delete the workflows: then their pods are released",
            )
        } else {
            (
                format!("{why}: if none runs, their pods stay held after they have ended"),
                "start the workflow controller; one that runs is recognized by its image or command, `workflow-controller`",
            )
        };
        Some(Finding::note(About::Finalizer, what, means).fix(fix))
    });
    findings.extend(unprocessed.take(NAMED));
    findings
}

/// The namespaces in which Belayer holds nothing; none if they may not be listed.
async fn ignored(reader: &Reader) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let path = Resource::namespaces().path(None);
    let selector = format!("{}=true", names::IGNORE_LABEL);
    let query = Some(("labelSelector", &*selector));
    let read = reader.items(&path, METADATA_ONLY_LIST, query, |one: Object| {
        found.insert(one.metadata.name);
    });
    // What was read before an error is ignored in any case.
    let _ = read.await;
    found
}

/// How many workflows are not completed, by instance ID and namespace.
async fn unfinished(reader: &Reader) -> ReadResult<BTreeMap<(String, String), usize>> {
    let kind = argo::workflow();
    let mut counts = BTreeMap::new();
    let path = kind.path(None);
    let read = reader.items(&path, METADATA_ONLY_LIST, None, |one: Object| {
        let label = |name: &str| one.metadata.labels.get(name).map(String::as_str);
        if label(argo::COMPLETED_LABEL) != Some("true") {
            let instance = label(INSTANCE_LABEL).unwrap_or_default().to_owned();
            *counts
                .entry((instance, one.metadata.namespace))
                .or_default() += 1;
        }
    });
    match read.await {
        Ok(()) => ReadResult::Found(counts),
        Err(error) if error.class() == belayer_core::http::ErrorClass::NotServed => {
            ReadResult::Absent
        }
        Err(error) => ReadResult::Unknown(format!("{kind}: {}", explain(&error))),
    }
}
