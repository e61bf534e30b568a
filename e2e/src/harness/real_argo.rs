//! The real controller of Argo Workflows, in the network of real nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use belayer_image::{Compression, Image};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::belayer::rerouted;
use super::cluster::Cluster;
use crate::control_plane::{ArgoBinaries, Process};
use crate::providers::apply;
use crate::wait::{SOON, eventually};

/// The image of the containers that Argo adds to each pod.
const EXECUTOR_IMAGE: &str = "registry.invalid/argoexec:1";

/// The API server's address in the network of the nodes.
const API_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 443);

/// The namespace of the controller's configuration.
const HOME: &str = "argo";

/// The kinds of Argo Workflows but Workflow: plural, kind, scope, and whether they have a subresource for the status.
const KINDS: [(&str, &str, &str, bool); 7] = [
    ("workflowtemplates", "WorkflowTemplate", "Namespaced", false),
    (
        "clusterworkflowtemplates",
        "ClusterWorkflowTemplate",
        "Cluster",
        false,
    ),
    ("cronworkflows", "CronWorkflow", "Namespaced", false),
    ("workflowtasksets", "WorkflowTaskSet", "Namespaced", true),
    (
        "workflowtaskresults",
        "WorkflowTaskResult",
        "Namespaced",
        false,
    ),
    (
        "workflowartifactgctasks",
        "WorkflowArtifactGCTask",
        "Namespaced",
        true,
    ),
    (
        "workfloweventbindings",
        "WorkflowEventBinding",
        "Namespaced",
        false,
    ),
];

/// The running controller. Dropping it kills it.
pub struct RealArgo {
    cluster: Cluster,
    binaries: ArgoBinaries,
    process: Option<Process>,
}

impl RealArgo {
    /// Installs Argo's kinds and starts the controller for all namespaces.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let binaries = ArgoBinaries::find()?;
        let archive = cluster.dir().join("image-argoexec.tar");
        Image::in_folder(EXECUTOR_IMAGE, "bin/", &binaries.executor)?
            .write_archive(&archive, Compression::None)?;
        for node in cluster.backend().nodes() {
            node.import(std::slice::from_ref(&archive)).await?;
        }
        for (plural, kind, scope, has_status) in KINDS {
            let definition = definition(plural, kind, scope, has_status);
            apply(cluster.client(), &definition.to_string()).await?;
        }
        apply(cluster.client(), CONFIGURATION).await?;
        let mut argo = Self {
            cluster: cluster.clone(),
            binaries,
            process: None,
        };
        argo.resume()?;
        Ok(argo)
    }

    /// Starts the controller again after [`RealArgo::kill`].
    pub fn resume(&mut self) -> Result<()> {
        let node = self.cluster.backend().nodes().first();
        let node = node.context("the provider has no real node")?;
        let admin = self.cluster.backend().admin_kubeconfig();
        let kubeconfig = rerouted(admin, API_SERVER, self.cluster.dir())?;
        let arguments = [
            "env".to_owned(),
            "LEADER_ELECTION_DISABLE=true".to_owned(),
            self.binaries.controller.display().to_string(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={HOME}"),
            format!("--executor-image={EXECUTOR_IMAGE}"),
            "--executor-image-pull-policy=Never".to_owned(),
        ];
        self.process = Some(node.start_in_network("workflow-controller", &arguments)?);
        Ok(())
    }

    /// Kills the controller.
    pub async fn kill(&mut self) -> Result<()> {
        let mut process = self
            .process
            .take()
            .context("the controller is not running")?;
        process.check_running()?;
        process.signal(Signal::KILL)?;
        process.wait(SOON).await?;
        Ok(())
    }

    /// Checks that the controller is running. If it has ended, the error contains the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_running)
    }

    /// Lets the pods of a namespace write the results of their steps.
    pub async fn permit(&self, namespace: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": { "name": "steps", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "argo-steps" },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
        });
        apply(self.cluster.client(), &binding.to_string()).await?;
        self.create_token(namespace).await
    }

    /// Agent pods mount the token of their account as a Secret of this name.
    async fn create_token(&self, namespace: &str) -> Result<()> {
        const NAME: &str = "default.service-account-token";
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": NAME, "namespace": namespace,
                "annotations": { "kubernetes.io/service-account.name": "default" },
            },
        });
        apply(self.cluster.client(), &secret.to_string()).await?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        let secrets: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client().clone(), namespace, &kind);
        eventually("the token of the steps exists", SOON, async || {
            let secret = secrets.get(NAME).await?;
            ensure!(secret.data["data"]["token"].is_string(), "it has none");
            Ok(())
        })
        .await
    }

    /// The workflows of a namespace.
    pub fn workflows(&self, namespace: &str) -> Api<DynamicObject> {
        crate::kinds::workflows(self.cluster.client(), namespace)
    }

    /// Removes Argo's kinds, but for Workflow.
    pub async fn remove(mut self) -> Result<()> {
        self.process = None;
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> =
            Api::all_with(self.cluster.client().clone(), &ApiResource::from_gvk(&kind));
        for (plural, ..) in KINDS {
            let name = format!("{plural}.argoproj.io");
            definitions.delete(&name, &Default::default()).await?;
            eventually("the kinds of Argo are gone", SOON, async || {
                let left = definitions.get_opt(&name).await?;
                ensure!(left.is_none(), "{name} is still there");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// A definition that keeps every field.
fn definition(plural: &str, kind: &str, scope: &str, has_status: bool) -> Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut version = json!({
        "name": "v1alpha1",
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": open },
    });
    if has_status {
        version["subresources"] = json!({ "status": {} });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.argoproj.io") },
        "spec": {
            "group": "argoproj.io",
            "scope": scope,
            "names": { "plural": plural, "kind": kind },
            "versions": [version],
        },
    })
}

const CONFIGURATION: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: argo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: workflow-controller-configmap, namespace: argo}
data: {}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: argo-steps}
rules:
- apiGroups: [argoproj.io]
  resources: [workflowtaskresults]
  verbs: [create, patch]
# For agent pods.
- apiGroups: [argoproj.io]
  resources: [workflowtasksets]
  verbs: [list, watch]
- apiGroups: [argoproj.io]
  resources: [workflowtasksets/status]
  verbs: [patch]
";
