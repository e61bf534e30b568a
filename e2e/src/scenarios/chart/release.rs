//! One release of the chart.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::process::Command;

use super::installation;
use crate::chart::chart;
use crate::control_plane::{HelmBinaries, Program};
use crate::harness::{BelayerOptions, Cluster, SOON, eventually};
use crate::kinds;
use crate::output::Output;
use crate::providers::Capability::AdmissionPolicies;

/// The controllers that the chart enables by default.
pub(in crate::scenarios) const CONTROLLERS: &str =
    "--controllers=pod-finalizer,workflow-finalizer,pvc-protection";

/// Longer than any hook.
const DEADLINE: Duration = Duration::from_secs(300);

/// The release `belayer` in a namespace of its own.
pub(in crate::scenarios) struct Release {
    pub(in crate::scenarios) cluster: Cluster,
    pub(in crate::scenarios) namespace: String,
    helm: PathBuf,
    /// Helm 4 does, and names fields that another client set.
    applies_on_the_server: bool,
    runs_pods: bool,
}

impl Release {
    pub(in crate::scenarios) async fn new(cluster: &Cluster, program: Program) -> Result<Self> {
        let helm = tokio::task::spawn_blocking(HelmBinaries::find_or_build).await??;
        let namespace = cluster.another_namespace("ops", json!({})).await?;
        Ok(Self {
            cluster: cluster.clone(),
            namespace,
            helm: helm.path(program),
            applies_on_the_server: program == Program::Helm4,
            runs_pods: false,
        })
    }

    /// The same where its pods run.
    pub(in crate::scenarios) async fn with_pods(
        cluster: &Cluster,
        program: Program,
    ) -> Result<Self> {
        let release = Self::new(cluster, program).await?;
        Ok(Self {
            runs_pods: true,
            ..release
        })
    }

    /// The same in another namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            cluster: self.cluster.clone(),
            namespace: namespace.to_owned(),
            helm: self.helm.clone(),
            applies_on_the_server: self.applies_on_the_server,
            runs_pods: self.runs_pods,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let home = self.cluster.dir().join("helm");
        let mut command = Command::new(&self.helm);
        command
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env("KUBECONFIG", self.cluster.backend().admin_kubeconfig())
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .env("HELM_CACHE_HOME", home.join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs Helm, which may fail.
    pub(in crate::scenarios) async fn output(&self, arguments: &[&str]) -> Result<Output> {
        let output = Output::of(&mut self.command(arguments), DEADLINE).await;
        output.with_context(|| format!("helm {}", arguments.join(" ")))
    }

    /// Runs Helm, which must succeed. Returns its standard output.
    pub(in crate::scenarios) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments).await?;
        let (arguments, why) = (arguments.join(" "), &output.err);
        ensure!(output.code == 0, "helm {arguments}: {why}");
        Ok(output.out)
    }

    /// Installs or upgrades. Where pods run, Helm waits until they are ready; elsewhere none is created, because the
    /// harness runs Belayer.
    pub(in crate::scenarios) async fn applied(
        &self,
        verb: &str,
        values: &[&str],
    ) -> Result<String> {
        let mut options: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        if verb == "install" {
            // The cluster has the Roles of the manifests, as one whose admin moves to the chart.
            options.push("--take-ownership");
            if self.applies_on_the_server {
                options.push("--force-conflicts");
            }
        }
        self.applied_with(verb, &options).await
    }

    /// The same with these options.
    pub(super) async fn applied_with(&self, verb: &str, options: &[&str]) -> Result<String> {
        let chart = chart();
        let chart = chart.to_string_lossy();
        let mut arguments = vec![verb, "belayer", &*chart];
        if self.runs_pods {
            arguments.extend(["--wait", "--timeout=3m"]);
        } else {
            arguments.extend(["--set-string", "nodeSelector.example\\.com/never=true"]);
        }
        arguments.extend(options);
        self.helm(&arguments).await
    }

    /// A kubeconfig of one of the release's accounts.
    pub(in crate::scenarios) async fn kubeconfig(&self, account: &str) -> Result<PathBuf> {
        installation::kubeconfig(&self.cluster, &self.namespace, account).await
    }

    /// The options with which the Deployment of the release starts Belayer, without leader election.
    pub(in crate::scenarios) async fn options(&self) -> Result<BelayerOptions> {
        let kept = ["--controllers", "--on-disable", "--workers"];
        installation::options(&self.cluster, &self.namespace, "belayer", &kept).await
    }

    /// The data of the gate.
    pub(in crate::scenarios) async fn gate(&self) -> Result<Value> {
        let gates = kinds::gates(self.cluster.client(), &self.namespace);
        Ok(gates.get("belayer-gate").await?.data["data"].clone())
    }

    /// `belayer` with the admin's kubeconfig, in the namespace of the release.
    pub(in crate::scenarios) async fn belayer(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let kubeconfig = self.cluster.backend().admin_kubeconfig().to_owned();
        self.belayer_as(&kubeconfig, arguments).await
    }

    async fn belayer_as(
        &self,
        kubeconfig: &std::path::Path,
        arguments: &[&str],
    ) -> Result<(i32, String)> {
        let mut command = self.cluster.belayer_command(kubeconfig, arguments);
        command.env("POD_NAMESPACE", &self.namespace);
        let output = Output::of(&mut command, DEADLINE).await?;
        Ok((output.code, output.printed()))
    }

    /// Runs a command that ends with the pod of a hook: with the pod's arguments and its account, as its container
    /// would. Returns what Helm printed, whether it succeeded, and exit code and output of the hook's command.
    pub(in crate::scenarios) async fn with_hook(
        &self,
        arguments: &[&str],
        hook: &str,
    ) -> Result<(bool, String, i32, String)> {
        let helm = self.command(arguments).output();
        let both = async { tokio::try_join!(async { Ok(helm.await?) }, self.run_hook(hook)) };
        let (helm, (code, printed)) = tokio::time::timeout(DEADLINE, both)
            .await
            .context("helm did not exit")??;
        let helm = Output::from(helm);
        Ok((helm.code == 0, helm.printed(), code, printed))
    }

    async fn run_hook(&self, hook: &str) -> Result<(i32, String)> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().clone(), &self.namespace);
        let of_hook = ListParams::default().labels(&format!("app.kubernetes.io/name={hook}"));
        let pod = eventually("the pod of the hook exists", SOON, async || {
            let found = pods.list(&of_hook).await?.items.into_iter().next();
            found.context("there is none")
        })
        .await?;
        let spec = pod.spec.context("a pod without spec")?;
        let arguments = spec.containers[0].args.clone().unwrap_or_default();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let account = self
            .kubeconfig(spec.service_account_name.as_deref().unwrap_or_default())
            .await?;
        let (code, printed) = self.belayer_as(&account, &arguments).await?;
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let status = json!({ "status": { "phase": phase, "containerStatuses": [{
            "name": spec.containers[0].name, "image": "registry.invalid/belayer:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "terminated": { "exitCode": code, "reason": "Ended" } },
        }]}});
        let name = pod.metadata.name.unwrap_or_default();
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok((code, printed))
    }

    /// The cluster-wide kinds of the release that the server has, apart from CRDs.
    fn kinds(&self) -> String {
        let mutating = if self.cluster.can(AdmissionPolicies) {
            "mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
        } else {
            ""
        };
        format!(
            "clusterroles,clusterrolebindings,{mutating}\
             validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas"
        )
    }

    /// The cluster-wide objects of the release that exist, apart from CRDs.
    pub(in crate::scenarios) async fn remaining(&self) -> Result<String> {
        let list = format!(
            "kubectl get {} -o name -l app.kubernetes.io/part-of=belayer",
            self.kinds()
        );
        let listed = self.cluster.sh(&list).await?;
        // A Role of the harness, which the default values do not have.
        let own = listed
            .lines()
            .filter(|line| !line.contains("outcome-capture"));
        Ok(own.collect::<Vec<_>>().join("\n"))
    }

    /// Removes what a failed scenario may have left.
    pub(in crate::scenarios) async fn removed_by_force(&self) -> Result<()> {
        let script = format!(
            "kubectl delete {} -l app.kubernetes.io/part-of=belayer
            kubectl -n {} delete secrets -l owner=helm",
            self.kinds(),
            self.namespace
        );
        self.cluster.sh(&script).await.map(drop)
    }
}
