//! The server as kubectl sees it; skipped, by name, if kubectl is not installed. With CI=true it must be.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::*;

struct Kubectl {
    _listener: crate::Listener,
    home: std::path::PathBuf,
}

impl Kubectl {
    /// `None` if kubectl is not installed.
    async fn new(api: &Api, test: &str) -> Option<Self> {
        let found = Command::new("kubectl")
            .args(["version", "--client"])
            .output()
            .await;
        if !found.is_ok_and(|o| o.status.success()) {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
            assert!(!is_ci, "kubectl is not installed");
            eprintln!("skipped {test}: kubectl is not installed");
            return None;
        }
        let listener = api.sandbox.listen_anywhere().await.unwrap();
        let home =
            std::env::temp_dir().join(format!("belayer-sandbox-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("config"), listener.kubeconfig()).unwrap();
        Some(Kubectl {
            _listener: listener,
            home,
        })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(line.split(' ')).env("HOME", &self.home);
        command
            .env("KUBECONFIG", self.home.join("config"))
            .kill_on_drop(true);
        command
    }

    async fn run(&self, line: &str, input: &str) -> String {
        let (code, out, err) = self.outcome(line, input).await;
        assert_eq!(code, Some(0), "{line}: {err}");
        out
    }

    /// The exit code, and what was printed.
    async fn outcome(&self, line: &str, input: &str) -> (Option<i32>, String, String) {
        let mut command = self.command(line);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output());
        let output = output.await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

const MANIFEST: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: one}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: x}]}
";

#[tokio::test]
async fn kubectl_reads_and_writes() {
    let api = Api::new();
    let Some(kubectl) = Kubectl::new(&api, "kubectl_reads_and_writes").await else {
        return;
    };
    api.make(PODS, pod("p", Some("n"), &[])).await;
    let table = kubectl.run("get pods -A", "").await;
    assert!(
        table.contains("NAMESPACE") && table.contains("0/1"),
        "{table}"
    );
    let wide = kubectl.run("get po p -o wide", "").await;
    assert!(wide.contains("NODE"), "{wide}");
    let described = kubectl.run("describe pod p", "").await;
    assert!(
        described.contains("Node:") && described.contains("main:"),
        "{described}"
    );
    let applied = kubectl.run("apply -f -", MANIFEST).await;
    assert!(applied.contains("configmap/settings created"), "{applied}");
    assert!(applied.contains("deployment.apps/web created"), "{applied}");
    let again = kubectl
        .run("apply -f -", &MANIFEST.replace("one", "two"))
        .await;
    assert!(
        again.contains("settings configured") && again.contains("web unchanged"),
        "{again}"
    );
    kubectl
        .run(
            "patch pod p -p {\"metadata\":{\"finalizers\":[\"x.y/z\"]}}",
            "",
        )
        .await;
    kubectl.run("label pod p a=b", "").await;
    kubectl.run("annotate pod p c=d", "").await;
    kubectl
        .run("delete pod p --wait=false --force --grace-period=0", "")
        .await;
    let json = kubectl.run("get pod p -o json", "").await;
    assert!(json.contains("deletionTimestamp"), "{json}");
    kubectl
        .run(
            "patch pod p --type=json -p [{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]",
            "",
        )
        .await;
    kubectl
        .run("wait --for=delete pod/p --timeout=20s", "")
        .await;
    kubectl.run("delete configmap settings", "").await;
    assert!(
        kubectl
            .run("api-resources", "")
            .await
            .contains("customresourcedefinitions")
    );
    assert_eq!(
        kubectl.run("auth can-i delete pods", "").await.trim(),
        "yes"
    );
}

#[tokio::test]
async fn kubectl_follows_a_watch() {
    let api = Api::new();
    let Some(kubectl) = Kubectl::new(&api, "kubectl_follows_a_watch").await else {
        return;
    };
    api.make(PODS, pod("first", None, &[])).await;
    let mut child = kubectl
        .command("get pods -w")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
        line.unwrap().unwrap().unwrap()
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.starts_with("first"));
    api.make(PODS, pod("second", None, &[])).await;
    assert!(next().await.starts_with("second"));
    child.kill().await.unwrap();
}

#[tokio::test]
async fn kubectl_applies_on_the_server() {
    let api = Api::new();
    let Some(kubectl) = Kubectl::new(&api, "kubectl_applies_on_the_server").await else {
        return;
    };
    let apply = "apply --server-side -f -";
    let two = MANIFEST.replace("one", "two");
    let applied = kubectl.run(apply, MANIFEST).await;
    assert!(
        applied.contains("configmap/settings serverside-applied"),
        "{applied}"
    );
    assert!(
        applied.contains("deployment.apps/web serverside-applied"),
        "{applied}"
    );
    for diff in ["diff -f -", "diff --server-side -f -"] {
        assert_eq!(kubectl.outcome(diff, MANIFEST).await.0, Some(0), "{diff}");
        let (code, out, err) = kubectl.outcome(diff, &two).await;
        assert_eq!(code, Some(1), "{diff}: {err}");
        assert!(
            out.contains("-  a: one") && out.contains("+  a: two"),
            "{diff}: {out}"
        );
    }
    let patch = "patch configmap settings --field-manager other -p {\"data\":{\"a\":\"three\"}}";
    kubectl.run(patch, "").await;
    let (code, _, err) = kubectl.outcome(apply, &two).await;
    assert_eq!(code, Some(1));
    let conflict = "Apply failed with 1 conflict: conflict with \"other\" using v1: .data.a";
    assert!(err.contains(conflict), "{err}");
    kubectl
        .run("apply --server-side --force-conflicts -f -", &two)
        .await;
    let (_, map) = api.get(&format!("{CONFIGMAPS}/settings")).await;
    assert_eq!(map["data"]["a"], "two");
}

#[tokio::test]
async fn kubectl_moves_an_object_from_client_side_to_server_side_apply() {
    let api = Api::new();
    let Some(kubectl) = Kubectl::new(&api, "kubectl_moves_an_object").await else {
        return;
    };
    kubectl.run("apply -f -", MANIFEST).await;
    let two = MANIFEST.replace("one", "two");
    kubectl.run("apply --server-side -f -", &two).await;
    let (_, map) = api.get(&format!("{CONFIGMAPS}/settings")).await;
    assert_eq!(map["data"]["a"], "two");
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let last = map["metadata"]["annotations"][annotation]
        .as_str()
        .unwrap_or_default();
    assert!(last.contains("two"), "{last}");
    // Nobody but the applier owns the fields, so that a field can be removed.
    let without = two.replace("{a: two}", "{b: three}");
    kubectl.run("apply --server-side -f -", &without).await;
    let (_, map) = api.get(&format!("{CONFIGMAPS}/settings")).await;
    assert_eq!(map["data"], json!({"b": "three"}));
}
