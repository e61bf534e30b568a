//! All simulated nodes, their pods, and the loop over both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admit::{check_fit, wants_host_port};
use super::decide::{Progress as PodProgress, Step, Told, check_room, decide};
use super::lifecycle::{Now, RestartPolicy, Runtime};
use super::node::{Readiness, ready};
use super::plan::{Planner, PodPlan, RunPlan};
use super::status::{self, Place};
use super::volumes::{Claims, Mount};
use super::{
    CLOUD_ACTOR, Command, KubeletConfig, Kubelets, NODE_LIFECYCLE_ACTOR, NodeSpec, actor_of,
};
use crate::address::{Actor, Gvr, Subresource};
use crate::cluster::{Cluster, DeleteOptions, Patch, Preconditions, WriteOptions};
use crate::companions::agenda::Agenda;
use crate::companions::driver::{Change, Controller, Interest, Progress};
use crate::companions::events::warn;
use crate::companions::object;
use crate::companions::quantity::Amount;
use crate::error::{ApiError, Reason};

type Uid = Arc<str>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Node(String),
    Pod(Uid),
}

/// Whether a node can be heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Silent { since: Instant },
}

/// Whether a node's kubelet has yet to create its Node object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registration {
    Wanted,
    Done,
}

struct Host {
    spec: NodeSpec,
    actor: Actor,
    address: String,
    link: Link,
    registration: Registration,
    object: Option<Arc<Value>>,
    /// What the pods that it accepted take of it.
    used: Amount,
    /// How many pod addresses it has given out.
    addresses: u32,
    number: u32,
}

impl Host {
    fn next_pod_address(&mut self) -> String {
        self.addresses = self.addresses.wrapping_add(1);
        let [_, _, high, low] = self.addresses.to_be_bytes();
        format!("10.{}.{high}.{low}", 128 + self.number % 128)
    }
}

struct Pod {
    object: Arc<Value>,
    node: String,
    plan: Option<PodPlan>,
    progress: PodProgress,
    address: String,
    /// What it is charged with on its node.
    charged: Amount,
    /// Its kubelet has restarted and has yet to check it anew.
    unchecked: bool,
    /// Why its volumes are not mounted, as last told.
    unmounted: String,
}

impl Pod {
    /// It was accepted, its containers have not ended, and nobody wants it gone.
    fn is_alive(&self) -> bool {
        let runs = |progress: &PodProgress| matches!(progress, PodProgress::Accepted { runtime, .. } if !runtime.has_ended());
        runs(&self.progress)
            && !object::is_deleting(&self.object)
            && !object::is_ended(&self.object)
    }
}

/// The simulated nodes.
pub(crate) struct Hosts {
    cluster: Cluster,
    planner: Planner,
    unreachable_after: Duration,
    hosts: BTreeMap<String, Host>,
    pods: BTreeMap<Uid, Pod>,
    by_node: BTreeMap<String, BTreeSet<Uid>>,
    claims: Claims,
    agenda: Agenda<Key>,
    commands: mpsc::UnboundedReceiver<Command>,
    inbox: VecDeque<Command>,
}

impl Hosts {
    pub(crate) fn new(cluster: Cluster, config: KubeletConfig) -> (Self, Kubelets) {
        let (sender, commands) = mpsc::unbounded_channel();
        let KubeletConfig {
            nodes,
            default_plan,
            rejections,
            script,
            seed,
            unreachable_after,
        } = config;
        let hosts = Self {
            cluster,
            planner: Planner {
                default: default_plan,
                chance: rejections,
                script,
                seed,
            },
            unreachable_after,
            hosts: BTreeMap::new(),
            pods: BTreeMap::new(),
            by_node: BTreeMap::new(),
            claims: Claims::default(),
            agenda: Agenda::default(),
            commands,
            inbox: nodes.into_iter().map(Command::Add).collect(),
        };
        (hosts, Kubelets { commands: sender })
    }

    fn now(&self, instant: Instant) -> Now {
        Now {
            instant,
            wall: self.cluster.clock().now(),
        }
    }

    fn obey(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            self.inbox.push_back(command);
        }
        while let Some(command) = self.inbox.pop_front() {
            let name = match command {
                Command::Add(spec) => self.add(spec),
                Command::Vanish(name) => {
                    if let Some(host) = self.hosts.get_mut(&name)
                        && host.link == Link::Up
                    {
                        host.link = Link::Silent { since: now };
                    }
                    name
                }
                Command::ComeBack(name) => {
                    if let Some(host) = self.hosts.get_mut(&name) {
                        host.link = Link::Up;
                        if host.object.is_none() {
                            host.registration = Registration::Wanted;
                        }
                    }
                    name
                }
                Command::Destroy(name) => {
                    self.destroy(&name, now);
                    name
                }
                Command::Restart(name) => {
                    self.restart(&name);
                    name
                }
            };
            self.look_at_all_of(&name);
            self.agenda.add(Key::Node(name));
        }
    }

    fn add(&mut self, spec: NodeSpec) -> String {
        let name = spec.name.clone();
        let number = u32::try_from(self.hosts.len())
            .unwrap_or(u32::MAX)
            .wrapping_add(1);
        let [_, _, high, low] = number.to_be_bytes();
        let host = Host {
            actor: Actor::new(actor_of(&name)),
            address: format!("10.0.{high}.{low}"),
            spec,
            link: Link::Up,
            registration: Registration::Wanted,
            object: None,
            used: Amount::default(),
            addresses: 0,
            number,
        };
        self.hosts.entry(name.clone()).or_insert(host);
        name
    }

    fn destroy(&mut self, name: &str, now: Instant) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        host.link = Link::Silent { since: now };
        host.registration = Registration::Done;
        host.used = Amount::default();
        for uid in self.by_node.get(name).into_iter().flatten() {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.progress = PodProgress::New;
                pod.charged = Amount::default();
            }
        }
        let options = DeleteOptions::default();
        let actor = Actor::new(CLOUD_ACTOR);
        if let Err(error) = self
            .cluster
            .delete(&actor, &Gvr::NODES, None, name, &options)
        {
            tracing::debug!(%error, node = name, "a destroyed machine has no node to delete");
        }
    }

    /// All that ran is counted and checked anew.
    fn restart(&mut self, name: &str) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        for uid in self.by_node.get(name).into_iter().flatten() {
            if let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.is_alive()) {
                host.used = host.used - std::mem::take(&mut pod.charged);
                pod.unchecked = true;
            }
        }
    }

    fn look_at_all_of(&mut self, node: &str) {
        for uid in self.by_node.get(node).into_iter().flatten() {
            self.agenda.add(Key::Pod(Arc::clone(uid)));
        }
    }

    fn look_at_node(&mut self, name: &str, now: Instant) -> Result<(), ApiError> {
        let Some(host) = self.hosts.get_mut(name) else {
            return Ok(());
        };
        let time = self.cluster.clock().now_rfc3339();
        let options = WriteOptions::default();
        if host.link == Link::Up && host.registration == Registration::Wanted {
            let object = host.spec.object(&host.address, &time);
            match self
                .cluster
                .create(&host.actor, &Gvr::NODES, None, object, &options)
            {
                Ok(_) => {}
                Err(error) if error.reason == Reason::AlreadyExists => {
                    let status = host.spec.status(&host.address, &time);
                    patch_status(&self.cluster, &host.actor, name, &status)?;
                }
                Err(error) => return Err(error),
            }
            host.registration = Registration::Done;
            return Ok(());
        }
        let Some(object) = &host.object else {
            return Ok(());
        };
        let told_ready = is_ready(object);
        match host.link {
            Link::Up if !told_ready => {
                let status = json!({"conditions": [ready(Readiness::Ready, &time)]});
                patch_status(&self.cluster, &host.actor, name, &status)
            }
            Link::Silent { since } if told_ready => {
                let due = since + self.unreachable_after;
                if due > now {
                    self.agenda.add_at(Key::Node(name.to_owned()), due);
                    return Ok(());
                }
                let status = json!({"conditions": [ready(Readiness::Unknown, &time)]});
                patch_status(
                    &self.cluster,
                    &Actor::new(NODE_LIFECYCLE_ACTOR),
                    name,
                    &status,
                )
            }
            _ => Ok(()),
        }
    }

    fn look_at_pod(&mut self, uid: &Uid, now: Now) -> Result<(), ApiError> {
        let Some(pod) = self.pods.get_mut(uid) else {
            return Ok(());
        };
        let Some(host) = self
            .hosts
            .get_mut(&pod.node)
            .filter(|host| host.link == Link::Up)
        else {
            return Ok(());
        };
        if let PodProgress::Accepted { runtime, .. } = &mut pod.progress {
            if runtime.waits_for_volumes() {
                match self.claims.mount(uid, &pod.object) {
                    Mount::Ready => runtime.mounted(now),
                    Mount::Waits { volume, why } => {
                        if pod.unmounted != why {
                            tell_unmounted(&self.cluster, host, &pod.object, &volume, &why);
                            pod.unmounted = why;
                        }
                    }
                }
            }
            runtime.advance(now);
            if runtime.has_ended() {
                host.used = host.used - std::mem::take(&mut pod.charged);
            }
        }
        let recheck = std::mem::take(&mut pod.unchecked) && pod.is_alive();
        let step = if recheck {
            Step::Admit
        } else {
            decide(&pod.object, &pod.progress)
        };
        match step {
            Step::Nothing => {
                if let PodProgress::Accepted { runtime, .. } = &pod.progress
                    && let Some(when) = runtime.next_timer()
                {
                    self.agenda.add_at(Key::Pod(Arc::clone(uid)), when);
                }
                return Ok(());
            }
            Step::Admit => self.admit(uid, now)?,
            Step::GiveUp => {
                let mut runtime = accept(pod, host, RunPlan::default(), now);
                runtime.stop(Duration::ZERO, now);
                pod.progress = PodProgress::Accepted {
                    runtime,
                    told: Told::Nothing,
                };
            }
            Step::Stop(grace) => {
                if let PodProgress::Accepted { runtime, .. } = &mut pod.progress {
                    runtime.stop(grace, now);
                }
            }
            Step::Tell => tell(&self.cluster, host, pod, now)?,
            Step::Remove => {
                remove(&self.cluster, host, pod)?;
                pod.progress = PodProgress::Settled;
            }
        }
        self.agenda.add(Key::Pod(Arc::clone(uid)));
        Ok(())
    }

    /// Runs the pod or refuses it; after a restart of the kubelet, lets it run on or refuses it.
    fn admit(&mut self, uid: &Uid, now: Now) -> Result<(), ApiError> {
        let neighbours = self.neighbours(uid);
        let Some(pod) = self.pods.get_mut(uid) else {
            return Ok(());
        };
        let Some(host) = self.hosts.get_mut(&pod.node) else {
            return Ok(());
        };
        let need = Amount::requested_by(&pod.object);
        let runs = matches!(pod.progress, PodProgress::Accepted { .. });
        let plan = pod
            .plan
            .get_or_insert_with(|| self.planner.plan(&host.spec.name, &pod.object))
            .clone();
        let rejection = match &plan {
            PodPlan::Reject(rejection) if !runs => Some(rejection.clone()),
            _ => {
                let others = neighbours.iter().map(|other| &**other);
                // Until it has seen its own Node object a kubelet goes by what it is about to register.
                let node = match &host.object {
                    Some(node) => Arc::clone(node),
                    None => Arc::new(host.spec.object(&host.address, "")),
                };
                let misfit = check_fit(&pod.object, &node, others);
                misfit.or_else(|| check_room(&need, &host.used, &host.spec.capacity()))
            }
        };
        if let Some(rejection) = rejection {
            let status = status::rejected(&pod.object, &rejection, now.wall);
            if let Err(error) = write_status(&self.cluster, host, pod, status) {
                pod.unchecked = runs;
                return Err(error);
            }
            let said = (rejection.reason.as_str(), rejection.detail.as_str());
            warn(&self.cluster, &host.actor, "kubelet", &pod.object, said);
            pod.progress = PodProgress::New;
            return Ok(());
        }
        pod.charged = need;
        host.used += need;
        if let PodPlan::Run(plan) = plan
            && !runs
        {
            let mut runtime = accept(pod, host, plan, now);
            if self.claims.mount(uid, &pod.object) != Mount::Ready {
                runtime.wait_for_volumes();
            }
            pod.progress = PodProgress::Accepted {
                runtime,
                told: Told::Nothing,
            };
        }
        Ok(())
    }

    /// The other pods that run on the pod's node, where it wants a port of the host.
    fn neighbours(&self, uid: &Uid) -> Vec<Arc<Value>> {
        let wants = |pod: &&Pod| wants_host_port(&pod.object);
        let Some(pod) = self.pods.get(uid).filter(wants) else {
            return Vec::new();
        };
        let there = self.by_node.get(&pod.node).into_iter().flatten();
        there
            .filter(|other| *other != uid)
            .filter_map(|other| self.pods.get(other).filter(|other| other.is_alive()))
            .map(|other| Arc::clone(&other.object))
            .collect()
    }

    fn observe_node(&mut self, change: &Change) {
        let (Change::Upserted(object) | Change::Removed(object)) = change;
        let name = object::name(object);
        if let Some(host) = self.hosts.get_mut(name) {
            host.object = match change {
                Change::Upserted(object) => Some(Arc::clone(object)),
                Change::Removed(_) => None,
            };
            self.agenda.add(Key::Node(name.to_owned()));
        }
    }

    fn observe_pod(&mut self, object: &Arc<Value>) {
        let Some(node) = object::text(object, "/spec/nodeName") else {
            return;
        };
        let uid: Uid = object::uid(object).into();
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.object = Arc::clone(object);
        } else {
            let pod = Pod {
                object: Arc::clone(object),
                node: node.to_owned(),
                plan: None,
                progress: PodProgress::New,
                address: String::new(),
                charged: Amount::default(),
                unchecked: false,
                unmounted: String::new(),
            };
            self.pods.insert(Arc::clone(&uid), pod);
            self.by_node
                .entry(node.to_owned())
                .or_default()
                .insert(Arc::clone(&uid));
        }
        self.agenda.add(Key::Pod(uid));
    }

    fn forget_pod(&mut self, object: &Value) {
        let uid: Uid = object::uid(object).into();
        let Some(pod) = self.pods.remove(&uid) else {
            return;
        };
        self.claims.forget(&uid);
        if let Some(host) = self.hosts.get_mut(&pod.node) {
            host.used = host.used - pod.charged;
        }
        if let Some(uids) = self.by_node.get_mut(&pod.node) {
            uids.remove(&uid);
            if uids.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        self.agenda.succeeded(&Key::Pod(uid));
    }
}

impl Controller for Hosts {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::NODES, Gvr::PODS, Gvr::PERSISTENTVOLUMECLAIMS])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, _: Instant) {
        match change {
            change if *gvr == Gvr::NODES => self.observe_node(change),
            change if *gvr == Gvr::PERSISTENTVOLUMECLAIMS => {
                for uid in self.claims.observe(change) {
                    self.agenda.add(Key::Pod(uid));
                }
            }
            Change::Upserted(object) => self.observe_pod(object),
            Change::Removed(object) => self.forget_pod(object),
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        self.obey(now);
        let Some(key) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        let done = match &key {
            Key::Node(name) => self.look_at_node(name, now),
            Key::Pod(uid) => self.look_at_pod(uid, self.now(now)),
        };
        match done {
            Ok(()) => self.agenda.succeeded(&key),
            // Gone, or another of the same name: the log tells.
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, ?key, "a kubelet tries again later");
                self.agenda.retry(key, now);
            }
        }
        Progress::Worked
    }

    async fn called(&mut self) {
        match self.commands.recv().await {
            Some(command) => self.inbox.push_back(command),
            None => std::future::pending().await,
        }
    }
}

fn is_ready(node: &Value) -> bool {
    object::items(node, "/status/conditions")
        .iter()
        .any(|condition| {
            object::text(condition, "/type") == Some("Ready")
                && object::text(condition, "/status") == Some("True")
        })
}

fn patch_status(
    cluster: &Cluster,
    actor: &Actor,
    node: &str,
    status: &Value,
) -> Result<(), ApiError> {
    let patch = Patch::Strategic(json!({"status": status}));
    let options = WriteOptions::default();
    cluster
        .patch(
            actor,
            &Gvr::NODES,
            None,
            node,
            patch,
            Subresource::Status,
            &options,
        )
        .map(drop)
}

/// Says why the pod's containers are not started.
fn tell_unmounted(cluster: &Cluster, host: &Host, pod: &Value, volume: &str, why: &str) {
    let message = format!(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], \
         failed to process volumes=[{volume}]: {why}"
    );
    warn(
        cluster,
        &host.actor,
        "kubelet",
        pod,
        ("FailedMount", &message),
    );
}

fn accept(pod: &mut Pod, host: &mut Host, plan: RunPlan, now: Now) -> Runtime {
    let policy = match object::text(&pod.object, "/spec/restartPolicy") {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    };
    pod.address = host.next_pod_address();
    Runtime::accept(plan, policy, now)
}

fn tell(cluster: &Cluster, host: &Host, pod: &mut Pod, now: Now) -> Result<(), ApiError> {
    let PodProgress::Accepted { runtime, .. } = &pod.progress else {
        return Ok(());
    };
    let place = Place {
        host_ip: &host.address,
        pod_ip: &pod.address,
    };
    let mut status = status::accepted(&pod.object, runtime, &place, now.wall);
    if object::is_ended(&pod.object)
        && let Some(status) = status.as_object_mut()
    {
        // Somebody has declared it dead: an end is never taken back.
        status.remove("phase");
    }
    let about = Told::about(runtime);
    write_status(cluster, host, pod, status)?;
    if let PodProgress::Accepted { told, .. } = &mut pod.progress {
        *told = about;
    }
    Ok(())
}

fn write_status(cluster: &Cluster, host: &Host, pod: &Pod, status: Value) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(&pod.object), object::name(&pod.object));
    let uid = object::uid(&pod.object);
    let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
    let options = WriteOptions::default();
    cluster
        .patch(
            &host.actor,
            &Gvr::PODS,
            namespace,
            name,
            patch,
            Subresource::Status,
            &options,
        )
        .map(drop)
}

fn remove(cluster: &Cluster, host: &Host, pod: &Pod) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(&pod.object), object::name(&pod.object));
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        preconditions: Preconditions {
            uid: Some(object::uid(&pod.object).to_owned()),
            resource_version: None,
        },
        ..DeleteOptions::default()
    };
    cluster
        .delete(&host.actor, &Gvr::PODS, namespace, name, &options)
        .map(drop)
}
