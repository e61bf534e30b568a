//! What an admin does to Belayer itself, and the node agents.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::client;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::progress::Silent;
use belayer_drain::run::{Drain, DrainParts, Kinds};
use belayer_drain::selection::NoSelection;
use belayer_holds::names;
use belayer_inspect::reader::Reader;
use belayer_sandbox::{
    Actor, Cluster, Gvr, ListOptions, Patch, Sandbox, Subresource, WriteOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::nodes::Nodes;
use crate::objects::{AGENT, WIPES};

/// The actor of a drain. The checker does not judge what it has changed.
const ADMIN: &str = "admin";

/// How far ahead the wall clock is after a jump, in seconds.
pub(crate) const CLOCKS: [i64; 7] = [0, -90, 90, -600, 600, -86_400, 86_400];

/// How often an agent looks at its list.
const AGENT_INTERVAL: Duration = Duration::from_secs(5);

/// How long a drain goes on without progress.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An admin with a drain that may be running, and the node agents.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    drain: Option<JoinHandle<()>>,
    agents: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts a drain, unless one is running.
    pub(crate) fn drain(&mut self, sandbox: &Sandbox) {
        if self
            .drain
            .as_ref()
            .is_some_and(|drain| !drain.is_finished())
        {
            return;
        }
        let drain = drain(sandbox);
        self.drain = Some(tokio::spawn(async move {
            drop(drain.run(&Silent).await);
        }));
    }

    /// Ends the command, as Ctrl-C does. Belayer stays drained.
    pub(crate) fn stop_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            drain.abort();
        }
    }

    /// Ends the drain: holds are added again.
    pub(crate) async fn resume(&mut self, sandbox: &Sandbox) {
        self.stop_drain();
        drop(drain(sandbox).resume(&Silent).await);
    }

    /// Starts the agents: the real ones, if the nodes have files.
    pub(crate) fn start_agents(&mut self, sandbox: &Sandbox, nodes: Option<&Nodes>) {
        if self.agents.is_some() {
            return;
        }
        let cluster = sandbox.cluster().clone();
        self.agents = Some(match nodes.map(|nodes| nodes.agents(sandbox)) {
            Some(mut agents) => {
                tokio::spawn(async move { while agents.join_next().await.is_some() {} })
            }
            None => tokio::spawn(async move {
                loop {
                    wipe(&cluster);
                    tokio::time::sleep(AGENT_INTERVAL).await;
                }
            }),
        });
    }

    /// Stops the agents.
    pub(crate) fn stop_agents(&mut self) {
        if let Some(agents) = self.agents.take() {
            agents.abort();
        }
    }
}

fn drain(sandbox: &Sandbox) -> Drain {
    let client = client::in_process(sandbox.service(ADMIN), names::USER_AGENT);
    let bounds = Bounds::default();
    let executor = Executor::new(client.clone(), names::FIELD_MANAGER, bounds, Writes::Sent);
    Drain::new(DrainParts {
        executor: Arc::new(executor),
        reader: Reader::new(client, bounds),
        namespace: names::DEFAULT_NAMESPACE.to_owned(),
        purpose: Purpose::Everything(Order::of_the_admin()),
        kinds: Kinds::Served,
        selection: Box::new(NoSelection),
        timeout: TIMEOUT,
        except_namespaces: Vec::new(),
    })
}

/// Reports every requested wipe: done if no pod of the UID is left or it was rejected, otherwise not done.
fn wipe(cluster: &Cluster) {
    let list = |gvr: &Gvr| {
        let page = cluster.list(gvr, None, &ListOptions::default());
        page.map(|page| page.items).unwrap_or_default()
    };
    let pods = list(&Gvr::PODS);
    for wipes in list(&WIPES) {
        let (requested, reported) = (&wipes["spec"]["wipes"], &wipes["status"]["wipes"]);
        let mut reports = serde_json::Map::new();
        for uid in requested.as_object().into_iter().flat_map(|all| all.keys()) {
            let pod = pods
                .iter()
                .find(|pod| pod["metadata"]["uid"] == uid.as_str());
            let runs = pod.is_some_and(|pod| pod["status"]["phase"] != "Failed");
            let state = if runs { "NotWiped" } else { "Wiped" };
            if reported[uid]["state"] != state {
                reports.insert(
                    uid.clone(),
                    json!({ "state": state, "reason": "Simulated" }),
                );
            }
        }
        if !reports.is_empty() {
            report(cluster, &wipes, Value::Object(reports));
        }
    }
}

fn report(cluster: &Cluster, wipes: &Value, reports: Value) {
    let Some(node) = wipes["metadata"]["name"].as_str() else {
        return;
    };
    let body = json!({ "status": { "wipes": reports } });
    drop(cluster.patch(
        &Actor::new(AGENT),
        &WIPES,
        None,
        node,
        Patch::Merge(body),
        Subresource::Status,
        &WriteOptions::default(),
    ));
}
