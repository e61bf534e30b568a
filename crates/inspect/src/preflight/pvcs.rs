//! Whether kube-controller-manager's own PVC controller runs, if it should run alongside Belayer or alone.
//! Its state cannot be read, so it is inferred from the PVCs.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::evidence::{PodState, pods};
use crate::reader::{Page, ReadResult, Reader, explain};
use belayer_core::http::{METADATA_ONLY_LIST, RequestError};
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};

use super::in_tree::PVC_CONTROLLER;
use super::needs::PvcMode;
use super::report::{About, Finding, Level};

/// A PVC deleted longer ago than this would be gone if a controller removed its finalizer.
const LEFT_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Namespaces whose pods are listed at once.
const PARALLEL: usize = 4;

/// Maximum number of PVCs that are named.
const NAMED: usize = 3;

/// The relevant PVCs of the cluster.
#[derive(Default)]
struct Relevant {
    /// Number of PVCs that are not being deleted and lack Kubernetes' finalizer.
    bare: usize,
    /// By namespace: PVCs that have waited longer than [`LEFT_AFTER`] for the removal of that finalizer only.
    waiting: BTreeMap<String, Vec<String>>,
    /// PVCs with Belayer's own finalizer.
    held: Vec<String>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Pvc,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pvc {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    finalizers: Vec<String>,
}

impl Relevant {
    fn note(&mut self, pvc: Pvc, now: Timestamp) {
        let mut names = pvc.finalizers.iter();
        if names.clone().any(|name| name == PVC_PROTECTION_HOLD) {
            self.held.push(format!("{}/{}", pvc.namespace, pvc.name));
        }
        match pvc.deletion_timestamp {
            None if !names.any(|name| name == KUBERNETES_PVC_PROTECTION) => self.bare += 1,
            Some(since)
                if pvc.finalizers == [KUBERNETES_PVC_PROTECTION]
                    && now.duration_since(since) >= LEFT_AFTER =>
            {
                let waiting = self.waiting.entry(pvc.namespace).or_default();
                waiting.push(pvc.name);
            }
            _ => {}
        }
    }
}

/// Reads every PVC, and the pods of the namespaces with waiting PVCs.
pub(crate) async fn check(reader: &Reader, now: Timestamp, mode: PvcMode) -> Vec<Finding> {
    let kind = Resource::pvcs();
    let unknown = |what: &str, why: String| {
        Finding::new(Level::Unknown, About::Finalizer, what.to_owned(), why)
    };
    let seen = match list(reader, &kind, now).await {
        Ok(seen) => seen,
        Err(error) => {
            let why = format!("{kind}: {}", explain(&error));
            return vec![unknown("how PVCs are protected", why)];
        }
    };
    let mut findings = Vec::new();
    let mut left = Vec::new();
    for (namespace, pvcs, pods) in users(reader, seen.waiting).await {
        match pods {
            ReadResult::Found(pods) => {
                let unused = pvcs
                    .into_iter()
                    .filter(|pvc| !pods.iter().any(|pod| pod.uses(pvc)));
                left.extend(unused.map(|pvc| format!("{namespace}/{pvc}")));
            }
            ReadResult::Absent => {}
            ReadResult::Unknown(why) => findings.push(unknown(
                "whether PVCs that are being deleted are still used",
                format!("pods of {namespace}: {why}"),
            )),
        }
    }
    findings.extend(left_behind(&left));
    findings.extend(bare(seen.bare));
    if mode == PvcMode::Advise {
        findings.extend(still_held(&seen.held));
    }
    findings
}

async fn list(reader: &Reader, kind: &Resource, now: Timestamp) -> Result<Relevant, RequestError> {
    let mut seen = Relevant::default();
    reader
        .pages(&kind.path(None), METADATA_ONLY_LIST, |answer| {
            let read = Page::read(&answer).map(|page: Page<Object>| {
                for object in page.items.into_iter().flatten() {
                    seen.note(object.metadata, now);
                }
                page.metadata.continue_token
            });
            async move { read }
        })
        .await?;
    Ok(seen)
}

type Users = (String, Vec<String>, ReadResult<Vec<PodState>>);

async fn users(reader: &Reader, waiting: BTreeMap<String, Vec<String>>) -> Vec<Users> {
    futures::stream::iter(waiting)
        .map(|(namespace, pvcs)| async move {
            let found = pods(reader, namespace.clone()).await;
            (namespace, pvcs, found)
        })
        .buffered(PARALLEL)
        .collect()
        .await
}

/// Some of them by name, and the number of the others.
fn named(pvcs: &[String]) -> String {
    let mut names = pvcs.iter().take(NAMED).cloned().collect::<Vec<_>>();
    if pvcs.len() > NAMED {
        names.push(format!("and {} more", pvcs.len() - NAMED));
    }
    names.join(", ")
}

/// Belayer only reports, but PVCs have its finalizer from an earlier configuration.
fn still_held(pvcs: &[String]) -> Option<Finding> {
    let what = || {
        let still = one_or_many(pvcs.len(), "PVC still has", "PVCs still have");
        Finding::new(
            Level::Note,
            About::Finalizer,
            format!("{still} {PVC_PROTECTION_HOLD}: {}", named(pvcs)),
            format!(
                "pvc-protection only reports: a running Belayer removes this finalizer if the PVC also has \
                 {KUBERNETES_PVC_PROTECTION}, or if no pod uses the PVC"
            ),
        )
    };
    (!pvcs.is_empty()).then(what)
}

/// No controller removes Kubernetes' finalizer.
fn left_behind(pvcs: &[String]) -> Option<Finding> {
    let names = named(pvcs);
    let what = match pvcs.len() {
        0 => return None,
        1 => format!(
            "PVC {names} is being deleted, no pod uses it, and no controller removes {KUBERNETES_PVC_PROTECTION}"
        ),
        n => format!(
            "{n} PVCs are being deleted, no pod uses them, and no controller removes {KUBERNETES_PVC_PROTECTION}: {names}"
        ),
    };
    Some(
        Finding::new(
            Level::Missing,
            About::Finalizer,
            what,
            format!("kube-controller-manager's {PVC_CONTROLLER} does not seem to run: every deleted PVC stays in Terminating"),
        )
        .fix(format!(
            "switch it on, or set pvcProtection.finalizer: {KUBERNETES_PVC_PROTECTION}, so that Belayer does this"
        )),
    )
}

/// No controller adds it.
fn bare(pvcs: usize) -> Option<Finding> {
    let what = || {
        let do_not = one_or_many(pvcs, "PVC does", "PVCs do");
        Finding::new(
            Level::Note,
            About::Finalizer,
            format!("{do_not} not have {KUBERNETES_PVC_PROTECTION}"),
            "the kubelet does not mount a deleted PVC without it, not even for pods that restart",
        )
    };
    (pvcs > 0).then(what)
}
