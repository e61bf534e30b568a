//! `belayer drain` as an admin runs it, and objects with holds for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::discovery::{ApiGroup, Discovery, verbs};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::cluster::Cluster;
use super::objects::{HOLD, WORKFLOW_HOLD, Workflow, pod, pvc};
use super::pvcs::{KUBERNETES_PVC_HOLD, PVC_HOLD};
use crate::kinds;
use crate::output::Output;
use crate::wait::eventually;

/// Prefix of Belayer's holds. A literal on purpose: this name is a promise to users.
pub const BELAYERS: &str = "belayer.dev/";

/// Timeout of a drain: two clean passes, an API server that learns policies late, a busy machine.
const DEADLINE: Duration = Duration::from_secs(400);

/// A finalizer of another controller that must stay.
const OTHERS: &str = "z.example.com/theirs";

/// Requests in parallel.
const PARALLEL: usize = 24;

impl Cluster {
    /// Runs `belayer drain` with the admin's kubeconfig.
    pub async fn drain(&self, arguments: &[&str]) -> Result<Output> {
        let kubeconfig = self.backend().admin_kubeconfig().to_owned();
        self.drain_as(&kubeconfig, arguments).await
    }

    /// The same with another kubeconfig.
    pub async fn drain_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
        Output::of(&mut self.drain_command(kubeconfig, arguments), DEADLINE).await
    }

    /// Starts `belayer drain` without waiting for its end.
    pub fn spawn_drain(&self, arguments: &[&str]) -> Result<Child> {
        let kubeconfig: PathBuf = self.backend().admin_kubeconfig().to_owned();
        self.drain_command(&kubeconfig, arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start belayer drain")
    }

    fn drain_command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = self.belayer_command(kubeconfig, &["drain"]);
        command
            .args(arguments)
            .env("NO_COLOR", "1")
            .env_remove("POD_NAMESPACE")
            .kill_on_drop(true);
        command
    }

    /// Creates about `count` objects with holds, of several kinds, as an earlier Belayer would have left
    /// them: some terminating, some with further finalizers.
    pub async fn fill(&self, count: usize) -> Result<()> {
        let of = |share: usize| count * share / 100;
        let workflow = self.workflow("filled").await?;
        let pods = (0..of(60)).map(|n| held_pod(n, &workflow));
        self.create_all(pods).await?;
        let namespace = self.namespace();
        let workflows = kinds::workflows(self.client(), namespace);
        let held = (0..of(20)).map(|n| {
            json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "metadata": { "name": format!("w-{n}"), "finalizers": finalizers(n, &[WORKFLOW_HOLD]) },
            })
        });
        create(&workflows, held).await?;
        let pvcs = kinds::pvcs(self.client(), namespace);
        let held = (0..of(10)).map(|n| {
            let finalizers = finalizers(n, &[KUBERNETES_PVC_HOLD, PVC_HOLD]);
            pvc(&format!("c-{n}"), json!({ "finalizers": finalizers }))
                .map(|pvc| serde_json::to_value(pvc).unwrap_or_default())
                .unwrap_or_default()
        });
        create(&pvcs, held).await?;
        let outcomes = kinds::outcomes(self.client(), namespace);
        let held = (0..of(5)).map(|n| {
            json!({
                "apiVersion": "belayer.dev/v1alpha1", "kind": "PodOutcome",
                "metadata": { "name": format!("o-{n}"), "finalizers": finalizers(n, &[HOLD]) },
                "spec": { "podName": "p", "podUID": "u", "phase": "Succeeded", "complete": true },
            })
        });
        create(&outcomes, held).await?;
        let maps = kinds::config_maps(self.client(), namespace);
        let held = (0..of(5)).map(|n| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("m-{n}"), "finalizers": finalizers(n, &[WORKFLOW_HOLD]) },
            })
        });
        create(&maps, held).await?;
        // Some are already terminating.
        for n in (0..of(60)).step_by(7) {
            self.pods()
                .delete(&format!("p-{n}"), &kube::api::DeleteParams::default())
                .await?;
        }
        for n in (0..of(20)).step_by(7) {
            workflows
                .delete(&format!("w-{n}"), &kube::api::DeleteParams::background())
                .await?;
        }
        Ok(())
    }

    /// All objects of the kinds that [`Cluster::fill`] creates, without the fields that a release changes.
    pub async fn held_objects(&self) -> Result<HeldObjects> {
        let mut held_objects = HeldObjects::default();
        for (kind, api) in self.kinds() {
            let mut list = ListParams::default().limit(500);
            loop {
                let page = match api.list(&list).await {
                    Ok(page) => page,
                    // The kind itself was deleted.
                    Err(kube::Error::Api(status)) if status.code == 404 => break,
                    Err(error) => return Err(error.into()),
                };
                for object in page.items {
                    held_objects.note(kind, &object)?;
                }
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => list.continue_token = Some(token),
                    None => break,
                }
            }
        }
        Ok(held_objects)
    }

    /// Requires that no object of any kind, in any namespace, has a finalizer of Belayer.
    /// The error names the objects that have one.
    pub async fn nothing_is_held(&self) -> Result<()> {
        let discovery = eventually("all kinds are known", DEADLINE, async || {
            // A group whose CRDs are being deleted is listed, and not served.
            Ok(Discovery::new(self.client().clone()).run().await?)
        })
        .await?;
        let kinds = discovery.groups().flat_map(ApiGroup::recommended_resources);
        let listed = kinds.filter(|(_, can)| can.supports_operation(verbs::LIST));
        let mut left = Vec::new();
        for (kind, _) in listed {
            let objects: Api<DynamicObject> = Api::all_with(self.client().clone(), &kind);
            let all = eventually("a kind is listed", DEADLINE, async || {
                match objects.list_metadata(&ListParams::default()).await {
                    Ok(all) => Ok(all.items),
                    // Some kinds are being deleted.
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                    // A server that has just learnt a kind asks to wait.
                    Err(error) => Err(error).with_context(|| kind.plural.clone()),
                }
            })
            .await?;
            let held = all.iter().filter(|object| {
                let mut names = object.finalizers().iter();
                names.any(|name| name.starts_with(BELAYERS))
            });
            left.extend(held.map(|object| {
                let namespace = object.namespace().unwrap_or_default();
                format!("{} {namespace}/{}", kind.plural, object.name_any())
            }));
        }
        ensure!(left.is_empty(), "holds are left: {left:?}");
        Ok(())
    }

    fn kinds(&self) -> Vec<(&'static str, Api<DynamicObject>)> {
        let (client, namespace) = (self.client(), self.namespace());
        vec![
            ("pods", self.pods()),
            ("workflows", kinds::workflows(client, namespace)),
            ("claims", kinds::pvcs(client, namespace)),
            ("outcomes", kinds::outcomes(client, namespace)),
            ("configmaps", kinds::config_maps(client, namespace)),
        ]
    }
}

/// The objects of a namespace and their holds.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct HeldObjects {
    /// By kind and name: everything that Belayer must not change, and finalizers of others.
    others: BTreeMap<String, (Value, Vec<String>)>,
    /// By kind and name: Belayer's holds.
    pub belayers: BTreeMap<String, Vec<String>>,
    deleting: Vec<String>,
}

impl HeldObjects {
    fn note(&mut self, kind: &str, object: &DynamicObject) -> Result<()> {
        let name = format!("{kind}/{}", object.name_any());
        let (belayers, others): (Vec<String>, Vec<String>) = object
            .finalizers()
            .iter()
            .cloned()
            .partition(|name| name.starts_with(BELAYERS));
        let mut plain = serde_json::to_value(object)?;
        // A kubelet continues to write the status of its pods.
        plain.as_object_mut().map(|plain| plain.remove("status"));
        let metadata = plain["metadata"]
            .as_object_mut()
            .context("metadata is missing")?;
        for key in ["resourceVersion", "managedFields", "finalizers"] {
            metadata.remove(key);
        }
        if !belayers.is_empty() {
            self.belayers.insert(name.clone(), belayers);
        }
        if object.metadata.deletion_timestamp.is_some() {
            self.deleting.push(name.clone());
        }
        self.others.insert(name, (plain, others));
        Ok(())
    }

    /// Requires that only Belayer's holds have been removed since `before`. Terminating objects without
    /// other finalizers may have been removed. The error is the difference.
    pub fn lost_only_belayer_holds(&self, before: &Self) -> Result<()> {
        for (name, (plain, finalizers)) in &before.others {
            let Some((now, left)) = self.others.get(name) else {
                let may_go = before.deleting.contains(name) && finalizers.is_empty();
                ensure!(may_go, "{name} was removed");
                continue;
            };
            ensure!(
                left == finalizers,
                "{name} had the finalizers {finalizers:?}, now {left:?}"
            );
            // A kubelet or a garbage collector may have changed terminating objects.
            if !before.deleting.contains(name) && !name.starts_with("claims/") {
                ensure!(now == plain, "{name} was {plain}, now {now}");
            }
        }
        Ok(())
    }
}

fn finalizers(n: usize, belayers: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = belayers.iter().map(|hold| (*hold).to_owned()).collect();
    if n.is_multiple_of(3) {
        all.insert(n % (belayers.len() + 1), OTHERS.to_owned());
    }
    all
}

fn held_pod(n: usize, workflow: &Workflow) -> super::objects::PodBuilder {
    let mut built = pod(format!("p-{n}"));
    if n.is_multiple_of(2) {
        built = built.of(workflow);
    }
    for finalizer in finalizers(n, &[HOLD]) {
        built = built.finalizer(&finalizer);
    }
    if n.is_multiple_of(5) {
        built = built.finalizer("belayer.dev/pod-recreation");
    }
    built
}

async fn create(
    api: &Api<DynamicObject>,
    documents: impl IntoIterator<Item = Value>,
) -> Result<()> {
    let mut created = futures::stream::iter(documents)
        .map(|document| async move {
            let object: DynamicObject = serde_json::from_value(document)?;
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(PARALLEL);
    while let Some(done) = created.next().await {
        done?;
    }
    Ok(())
}
