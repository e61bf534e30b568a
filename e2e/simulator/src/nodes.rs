//! The file systems of the nodes, in a temporary folder, and the real node agents that remove files there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use belayer_core::client;
use belayer_core::executor::Bounds;
use belayer_holds::names;
use belayer_node_agent::agent::{Agent, Options};
use belayer_node_agent::config::Settings;
use belayer_node_agent::host::Host;
use belayer_node_agent::layout::Layout;
use belayer_sandbox::simulated::{self, Agenda, Change, Controller, Interest, Progress, object};
use belayer_sandbox::{Gvr, Sandbox};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::objects::{self, AGENT, WIPES};

/// How long the containers of a pod need to end after its status says so: a kubelet that restarts rejects pods whose containers run.
const ENDS_WITHIN: Duration = Duration::from_secs(4);

/// The nodes' file systems. They are removed with the last clone.
#[derive(Clone)]
pub(crate) struct Nodes {
    home: Arc<TempDir>,
    broken: Arc<Mutex<Vec<String>>>,
}

impl Nodes {
    /// Creates them. From then on they contain the files of the pods that are bound to each node.
    pub(crate) fn start(sandbox: &Sandbox, stop: &CancellationToken) -> io::Result<Self> {
        let nodes = Self {
            home: Arc::new(tempfile::tempdir()?),
            broken: Arc::default(),
        };
        for node in objects::nodes() {
            for tree in ["proc", CGROUPS, WORKSPACES] {
                fs::create_dir_all(nodes.root(&node.name).join(tree))?;
            }
        }
        let kubelets = Kubelets {
            nodes: nodes.clone(),
            pods: BTreeMap::new(),
            rejected: BTreeSet::new(),
            ending: Agenda::default(),
        };
        drop(simulated::spawn(sandbox.cluster(), kubelets, stop));
        Ok(nodes)
    }

    /// Where the files are.
    pub(crate) fn home(&self) -> String {
        self.home.path().display().to_string()
    }

    /// FILES: what agents removed although they should not, or left although they said that they had removed it.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.broken.lock().clone()
    }

    /// The agents of all nodes.
    pub(crate) fn agents(&self, sandbox: &Sandbox) -> JoinSet<()> {
        let mut agents = JoinSet::new();
        for node in objects::nodes() {
            match self.agent(sandbox, &node.name) {
                Ok(agent) => drop(agents.spawn(agent.run(CancellationToken::new()))),
                Err(error) => self.broken.lock().push(format!("FILES: no agent: {error}")),
            }
        }
        agents
    }

    fn agent(&self, sandbox: &Sandbox, node: &str) -> Result<Agent, Box<dyn std::error::Error>> {
        let root = self.root(node);
        let workspaces = root.join(WORKSPACES);
        let settings = Settings {
            layout: Layout::new([&*workspaces.to_string_lossy()], [""; 0])?,
            host: Host::at(root),
            workers: 4,
            handlers: Vec::new(),
            hooks: Vec::new(),
        };
        let service = sandbox.service(format!("{AGENT}/{node}"));
        Ok(Agent::new(Options {
            client: client::in_process(service, names::USER_AGENT),
            node: node.to_owned(),
            settings,
            bounds: Bounds::default(),
        })?)
    }

    fn root(&self, node: &str) -> PathBuf {
        self.home.path().join(node)
    }

    fn workspace(&self, node: &str, uid: &str) -> PathBuf {
        self.root(node).join(WORKSPACES).join(uid)
    }

    fn cgroup(&self, node: &str, uid: &str) -> PathBuf {
        self.root(node).join(CGROUPS).join(format!("pod{uid}"))
    }

    fn violated(&self, how: String) {
        self.broken.lock().push(format!("FILES: {how}"));
    }
}

/// Below the root of a node: what runs there.
const CGROUPS: &str = "sys/fs/cgroup/kubepods";

/// Below the root of a node: the directories of its pods.
const WORKSPACES: &str = "workspaces";

/// A pod on a node.
struct OnNode {
    node: String,
    name: String,
    runs: bool,
}

/// Makes the files of pods, as what runs on nodes does, and looks at what agents do with them.
struct Kubelets {
    nodes: Nodes,
    /// By UID.
    pods: BTreeMap<String, OnNode>,
    rejected: BTreeSet<String>,
    /// Pods whose containers end.
    ending: Agenda<String>,
}

impl Kubelets {
    /// The directories of a pod exist once it is bound, before its kubelet may reject it.
    fn pod(&mut self, pod: &Value, now: Instant) -> io::Result<()> {
        let (uid, Some(node)) = (object::uid(pod), object::text(pod, "/spec/nodeName")) else {
            return Ok(());
        };
        if is_rejected(pod) {
            self.rejected.insert(uid.to_owned());
        }
        let statuses = object::items(pod, "/status/containerStatuses");
        let runs = statuses
            .iter()
            .any(|status| status["state"]["running"].is_object());
        let is_known = self.pods.contains_key(uid);
        let known = self.pods.entry(uid.to_owned()).or_insert_with(|| OnNode {
            node: node.to_owned(),
            name: object::name(pod).to_owned(),
            runs: false,
        });
        if !is_known {
            let workspace = self.nodes.workspace(node, uid);
            fs::create_dir_all(&workspace)?;
            fs::write(workspace.join("result"), uid)?;
        }
        if runs && !known.runs {
            fs::create_dir_all(self.nodes.cgroup(node, uid))?;
        }
        if known.runs && !runs {
            self.ending.add_at(uid.to_owned(), now + ENDS_WITHIN);
        }
        known.runs = runs;
        Ok(())
    }

    /// The last container has ended: until now nothing may have been removed.
    fn ended(&self, uid: &str) -> io::Result<()> {
        let Some(pod) = self.pods.get(uid) else {
            return Ok(());
        };
        let cgroup = self.nodes.cgroup(&pod.node, uid);
        if cgroup.exists() && !self.nodes.workspace(&pod.node, uid).exists() {
            let how = format!("files of pod {} were removed while it ran", pod.name);
            self.nodes.violated(how);
        }
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Only files of rejected pods are removed, and what an agent reports is true.
    fn reports(&self, wipes: &Value) {
        let node = object::name(wipes);
        let reports = wipes["status"]["wipes"].as_object();
        for (uid, report) in reports.into_iter().flatten() {
            if report["state"] == "Wiped" && self.nodes.workspace(node, uid).exists() {
                let how =
                    format!("files of pod {uid} on {node} exist, but are reported as removed");
                self.nodes.violated(how);
            }
        }
        self.look_at(node);
    }

    fn look_at(&self, node: &str) {
        let on_it = self.pods.iter().filter(|(_, pod)| pod.node == node);
        for (uid, pod) in on_it {
            if !self.rejected.contains(uid) && !self.nodes.workspace(node, uid).exists() {
                let how = format!(
                    "files of pod {} were removed: no node rejected it",
                    pod.name
                );
                self.nodes.violated(how);
            }
        }
    }
}

impl Controller for Kubelets {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::PODS, WIPES])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, now: Instant) {
        let done = match change {
            Change::Upserted(pod) if *gvr == Gvr::PODS => self.pod(pod, now),
            Change::Removed(pod) if *gvr == Gvr::PODS => {
                self.ending
                    .add_at(object::uid(pod).to_owned(), now + ENDS_WITHIN);
                Ok(())
            }
            Change::Upserted(wipes) => {
                self.reports(wipes);
                Ok(())
            }
            Change::Removed(_) => Ok(()),
        };
        if let Err(error) = done {
            self.nodes
                .violated(format!("cannot write files of a node: {error}"));
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        let Some(uid) = self.ending.pop(now) else {
            return Progress::Idle {
                until: self.ending.next_timer(),
            };
        };
        if let Err(error) = self.ended(&uid) {
            self.nodes
                .violated(format!("cannot remove files of a node: {error}"));
        }
        Progress::Worked
    }
}

/// Whether a kubelet rejected the pod: its status then has a reason.
fn is_rejected(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" && pod["status"]["reason"].is_string()
}
