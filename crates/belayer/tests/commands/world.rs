//! A sandbox with a listener, and the binary run against it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use belayer_sandbox::{
    Actor, Answer as Response, DeleteOptions, Fault, Gvr, Listener, Match, Patch, Sandbox,
    Subresource, Verb, WriteOptions,
};
use serde_json::{Value, json};

/// The name under which the binary's requests are recorded.
pub(crate) const TOOL: &str = "viewer";

/// Belayer's gates.
pub(crate) fn gates() -> Gvr {
    Gvr::new("belayer.dev", "v1alpha1", "gates")
}

pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    _listener: Listener,
    dir: tempfile::TempDir,
}

impl World {
    /// Without simulated controllers: only the test changes objects.
    pub(crate) async fn new() -> Self {
        let sandbox = Sandbox::builder().build();
        let listener = sandbox.listen_anywhere().await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let text = listener.kubeconfig_for(TOOL);
        std::fs::write(dir.path().join("kubeconfig"), text).unwrap();
        Self {
            sandbox,
            _listener: listener,
            dir,
        }
    }

    /// Creates the gate with these keys, and its kind.
    pub(crate) fn gate(&self, namespace: &str, data: &Value) {
        self.gate_kind();
        let gate = json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate",
            "metadata": { "name": "belayer-gate" }, "data": data });
        self.create(&gates(), Some(namespace), gate);
    }

    /// Defines the kind of the gate, unless it is defined.
    pub(crate) fn gate_kind(&self) {
        let kinds = Gvr::CUSTOMRESOURCEDEFINITIONS;
        let cluster = self.sandbox.cluster();
        if cluster.get(&kinds, None, "gates.belayer.dev").is_err() {
            let definition = serde_saphyr::from_str(belayer_holds::gate::CRD).unwrap();
            self.create(&kinds, None, definition);
        }
    }

    pub(crate) fn create(&self, gvr: &Gvr, namespace: Option<&str>, object: Value) {
        self.create_by(None, gvr, namespace, object);
    }

    /// Creates an object as this field manager.
    pub(crate) fn create_by(
        &self,
        manager: Option<&str>,
        gvr: &Gvr,
        namespace: Option<&str>,
        object: Value,
    ) {
        let actor = Actor::new("test");
        let options = WriteOptions {
            manager: manager.map(Into::into),
            ..WriteOptions::default()
        };
        self.sandbox
            .cluster()
            .create(&actor, gvr, namespace, object, &options)
            .unwrap();
    }

    /// Defines the kind `Widget` in the group `stuck.example.com`.
    pub(crate) fn widgets(&self) -> Gvr {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.stuck.example.com" },
            "spec": {
                "group": "stuck.example.com", "scope": "Namespaced",
                "names": { "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } } }],
            },
        });
        self.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
        Gvr::new("stuck.example.com", "v1", "widgets")
    }

    /// A ConfigMap that is being deleted and has a finalizer.
    pub(crate) fn stuck_config_map(&self, name: &str, finalizer: &str, labels: Value) {
        self.create(
            &Gvr::CONFIGMAPS,
            Some("default"),
            json!({"metadata": {"name": name, "finalizers": [finalizer], "labels": labels}}),
        );
        self.delete(&Gvr::CONFIGMAPS, Some("default"), name);
    }

    /// Deletes an object without a grace period.
    pub(crate) fn delete(&self, gvr: &Gvr, namespace: Option<&str>, name: &str) {
        self.delete_in(0, gvr, namespace, name);
    }

    /// Deletes an object with a grace period of this many seconds, if it has one.
    pub(crate) fn delete_in(&self, seconds: i64, gvr: &Gvr, namespace: Option<&str>, name: &str) {
        let options = DeleteOptions {
            grace_period_seconds: Some(seconds),
            ..DeleteOptions::default()
        };
        let cluster = self.sandbox.cluster();
        cluster
            .delete(&Actor::new("test"), gvr, namespace, name, &options)
            .unwrap();
    }

    /// The server refuses the binary's credentials from now on.
    pub(crate) fn refuse_credentials(&self) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized",
            "message": "Unauthorized",
        });
        let no = Fault::on(Match::any().client(TOOL));
        let no = no.answer(Response::raw(401, "application/json", status.to_string()));
        self.sandbox.faults().inject(no);
    }

    /// Merges a status into an object.
    pub(crate) fn status(&self, gvr: &Gvr, namespace: Option<&str>, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let (actor, options) = (Actor::new("test"), WriteOptions::default());
        let cluster = self.sandbox.cluster();
        cluster
            .patch(
                &actor,
                gvr,
                namespace,
                name,
                patch,
                Subresource::Status,
                &options,
            )
            .unwrap();
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belayer"));
        command
            .args(args)
            .env_clear()
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end against the server, and asserts that it wrote nothing.
    pub(crate) async fn run(&self, args: &[&str]) -> Answer {
        let mut command = self.command(args);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        self.wrote_nothing();
        let answer = Answer::of(&output);
        let is_data = ["json", "yaml"]
            .iter()
            .any(|format| args.iter().any(|arg| arg.ends_with(format)));
        if !is_data {
            fits_80_columns(&answer.out);
        }
        answer
    }

    pub(crate) fn wrote_nothing(&self) {
        let recorder = self.sandbox.recorder();
        assert!(recorder.writes_by(TOOL).is_empty());
        let verbs = recorder.requests_by(TOOL);
        assert!(
            verbs
                .keys()
                .all(|(verb, resource)| matches!(verb, Verb::Get | Verb::List)
                    // An access review is a create that stores nothing.
                    || (*verb == Verb::Create && resource.ends_with("accessreviews.authorization.k8s.io"))),
            "{verbs:?}"
        );
    }

    /// Number of requests about objects that the binary has sent.
    pub(crate) fn requests(&self) -> u64 {
        self.sandbox.recorder().requests_by(TOOL).values().sum()
    }
}

/// Every text fits 80 columns, except commands, which are copied, and long names.
pub(crate) fn fits_80_columns(text: &str) {
    for line in text.lines().filter(|line| line.chars().count() > 80) {
        let is_command = ["kubectl ", "helm ", "belayer "]
            .iter()
            .any(|program| line.trim_start().starts_with(program));
        let is_name = line.split_whitespace().count() <= 2;
        assert!(
            is_command || is_name,
            "more than 80 columns: {line}\n{text}"
        );
    }
}

/// The only group of a report about this finalizer or, without one, of this cause.
pub(crate) fn group<'a>(report: &'a Value, what: &str) -> &'a Value {
    let groups = report["groups"].as_array().unwrap();
    let is_it = |group: &&Value| group["finalizer"] == what || group["cause"] == what;
    let mut found = groups.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(group), None) => group,
        _ => panic!("not one group about {what}: {report:#}"),
    }
}

pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            code: output.status.code().unwrap(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Whether the text contains these words, also across the ends of lines.
    pub(crate) fn has(&self, words: &str) -> bool {
        let text: Vec<&str> = self.out.split_whitespace().collect();
        text.join(" ").contains(words.trim())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}
