//! Whether kube-controller-manager's own PVC controller runs, if it should run alongside Belayer or alone.
//! Its state cannot be read, so it is inferred from the PVCs.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::evidence::pods;
use crate::reader::{ReadResult, Reader, again_if_expired, explain};
use belayer_core::http::{METADATA_ONLY_LIST, RequestError};
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};

use super::in_tree::PVC_CONTROLLER;
use super::needs::PvcMode;
use super::report::{About, Finding};

/// A PVC deleted longer ago than this would be gone if a controller removed its finalizer.
const LEFT_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// A PVC that seems to be left behind is read again after this time: the pod that used it may have ended just before the
/// pods were listed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Namespaces whose pods are listed at once.
const PARALLEL: usize = 4;

/// What is unknown if the pods cannot be listed.
const UNUSED: &str = "whether PVCs that are being deleted are still used";

/// Maximum number of PVCs that are named.
const NAMED: usize = 3;

/// Names and UIDs of PVCs, by namespace.
type Waiting = BTreeMap<String, Vec<(String, String)>>;

/// The relevant PVCs of the cluster.
#[derive(Default)]
struct Relevant {
    /// Number of PVCs that are not being deleted and lack Kubernetes' finalizer.
    bare: usize,
    /// PVCs that have waited longer than [`LEFT_AFTER`] for the removal of that finalizer only.
    waiting: Waiting,
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
    uid: String,
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
                waiting.push((pvc.name, pvc.uid));
            }
            _ => {}
        }
    }
}

/// Reads every PVC, and the pods of the namespaces with waiting PVCs; both again before a PVC is reported as left behind.
pub(crate) async fn check(reader: &Reader, now: Timestamp, mode: PvcMode) -> Vec<Finding> {
    let kind = Resource::pvcs();
    let seen = match list(reader, &kind, now).await {
        Ok(seen) => seen,
        Err(error) => {
            let why = format!("{kind}: {}", explain(&error));
            return vec![unknown("how PVCs are protected", why)];
        }
    };
    let mut findings = Vec::new();
    let mut left = unused(reader, seen.waiting, &mut findings).await;
    if !left.is_empty() {
        tokio::time::sleep(READ_AGAIN_AFTER).await;
        match list(reader, &kind, now).await {
            Ok(seen) => {
                let mut waiting = seen.waiting;
                waiting.retain(|namespace, pvcs| {
                    let left = left.get(namespace);
                    pvcs.retain(|pvc| left.is_some_and(|left| left.contains(pvc)));
                    !pvcs.is_empty()
                });
                left = unused(reader, waiting, &mut findings).await;
            }
            Err(error) => {
                let why = format!("{kind}: {}", explain(&error));
                findings.push(unknown(UNUSED, why));
                left.clear();
            }
        }
    }
    let left = left.into_iter().flat_map(|(namespace, pvcs)| {
        let names = pvcs.into_iter().map(|(name, _)| name);
        names.map(move |name| format!("{namespace}/{name}"))
    });
    let left: Vec<String> = left.collect();
    findings.extend(left_behind(&left, mode));
    // In its place, Belayer adds it.
    if matches!(mode, PvcMode::Advise | PvcMode::Own) {
        findings.extend(bare(seen.bare));
    }
    if mode == PvcMode::Advise {
        findings.extend(still_held(&seen.held));
    }
    findings
}

async fn list(reader: &Reader, kind: &Resource, now: Timestamp) -> Result<Relevant, RequestError> {
    again_if_expired(|| async {
        let mut seen = Relevant::default();
        let path = kind.path(None);
        let read = reader.items(&path, METADATA_ONLY_LIST, None, |object: Object| {
            seen.note(object.metadata, now);
        });
        read.await?;
        Ok(seen)
    })
    .await
}

/// Those of the PVCs that no pod uses. Adds a finding for each namespace whose pods cannot be listed.
async fn unused(reader: &Reader, waiting: Waiting, findings: &mut Vec<Finding>) -> Waiting {
    let lists: Vec<_> = futures::stream::iter(waiting)
        .map(|(namespace, pvcs)| async move {
            let found = pods(reader, namespace.clone()).await;
            (namespace, pvcs, found)
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    let mut left = Waiting::new();
    for (namespace, mut pvcs, pods) in lists {
        match pods {
            ReadResult::Found(pods) => {
                pvcs.retain(|(pvc, _)| !pods.iter().any(|pod| pod.uses(pvc)));
                if !pvcs.is_empty() {
                    left.insert(namespace, pvcs);
                }
            }
            ReadResult::Absent => {}
            ReadResult::Unknown(why) => {
                findings.push(unknown(UNUSED, format!("pods of {namespace}: {why}")));
            }
        }
    }
    left
}

fn unknown(what: &str, why: String) -> Finding {
    Finding::unknown(About::Finalizer, what.to_owned(), why)
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
        Finding::note(
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
fn left_behind(pvcs: &[String], mode: PvcMode) -> Option<Finding> {
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
    let (consequence, fix) = match mode {
        PvcMode::Advise | PvcMode::Own => (
            format!("kube-controller-manager's {PVC_CONTROLLER} does not seem to run"),
            format!(
                "switch it on, or set pvcProtection.finalizer: {KUBERNETES_PVC_PROTECTION}, so that Belayer does this"
            ),
        ),
        PvcMode::InPlace => (
            "Belayer does not seem to run, or the API server denies its writes".to_owned(),
            format!(
                "see belayer status, and the Events ReleaseDenied of these PVCs; or switch {PVC_CONTROLLER} of \
                 kube-controller-manager on again"
            ),
        ),
        PvcMode::InPlaceButOff => (
            "pvc-protection is switched off by --controllers".to_owned(),
            format!(
                "switch {PVC_CONTROLLER} of kube-controller-manager on again, or pvc-protection"
            ),
        ),
    };
    let consequence = format!("{consequence}: every deleted PVC stays in Terminating");
    Some(Finding::missing(About::Finalizer, what, consequence).fix(fix))
}

/// No controller adds it.
fn bare(pvcs: usize) -> Option<Finding> {
    let what = || {
        let do_not = one_or_many(pvcs, "PVC does", "PVCs do");
        Finding::note(
            About::Finalizer,
            format!("{do_not} not have {KUBERNETES_PVC_PROTECTION}"),
            "the kubelet does not mount a deleted PVC without it, not even for pods that restart",
        )
    };
    (pvcs > 0).then(what)
}

#[cfg(test)]
mod tests {
    use belayer_core::executor::Bounds;
    use belayer_sandbox::{
        Actor, Answer, Cluster, Fault, Gvr, Match, Patch, Sandbox, Subresource, Verb,
    };
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const PVCS: &Gvr = &Gvr::PERSISTENTVOLUMECLAIMS;
    const PLACE: Option<&str> = Some("default");

    /// A PVC that is being deleted and has Kubernetes' finalizer.
    fn deleted(cluster: &Cluster) {
        let pvc = json!({
            "metadata": { "name": "data", "finalizers": [KUBERNETES_PVC_PROTECTION] },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        let actor = Actor::new("test");
        let created = cluster.create(&actor, PVCS, PLACE, pvc, &Default::default());
        created.unwrap();
        let deleted = cluster.delete(&actor, PVCS, PLACE, "data", &Default::default());
        deleted.unwrap();
    }

    fn released(cluster: &Cluster) {
        let (actor, options) = (Actor::new("test"), Default::default());
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let done = cluster.patch(
            &actor,
            PVCS,
            PLACE,
            "data",
            patch,
            Subresource::None,
            &options,
        );
        done.unwrap();
    }

    fn used(cluster: &Cluster) {
        let pod = json!({
            "metadata": { "name": "p" },
            "spec": {
                "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
            },
        });
        let actor = Actor::new("test");
        let created = cluster.create(&actor, &Gvr::PODS, PLACE, pod, &Default::default());
        created.unwrap();
    }

    fn replaced(cluster: &Cluster) {
        released(cluster);
        deleted(cluster);
    }

    async fn findings(sandbox: &Sandbox) -> Vec<String> {
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let later = Timestamp::now() + SignedDuration::from_secs(120);
        let found = check(&reader, later, PvcMode::Own).await;
        found.into_iter().map(|finding| finding.what).collect()
    }

    /// The pod that used a PVC may have ended between the list of PVCs and the list of pods: then the controller is
    /// about to remove its finalizer.
    #[rstest]
    #[case::left_behind(|_: &Cluster| {}, true)]
    #[case::released_meanwhile(released, false)]
    #[case::used_after_all(used, false)]
    #[case::another_one_of_the_same_name(replaced, false)]
    #[tokio::test(start_paused = true)]
    async fn a_pvc_is_read_again_before_it_is_reported(
        #[case] meanwhile: fn(&Cluster),
        #[case] reported: bool,
    ) {
        let sandbox = Sandbox::builder().build();
        deleted(sandbox.cluster());
        let change = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            meanwhile(sandbox.cluster());
        };
        let (found, ()) = tokio::join!(findings(&sandbox), change);
        assert_eq!(!found.is_empty(), reported, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_list_of_pvcs_starts_again() {
        let sandbox = Sandbox::builder().build();
        let lists = Fault::on(Match::verb(Verb::List).resource("persistentvolumeclaims"));
        sandbox
            .faults()
            .inject(lists.times(1).answer(Answer::gone()));
        assert_eq!(findings(&sandbox).await, Vec::<String>::new());
    }
}
