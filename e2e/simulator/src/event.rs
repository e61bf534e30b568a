//! What users, admins, machines and networks do during a run.

pub(crate) mod admin;
pub(crate) mod tenant;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use belayer_holds::names::{DEFAULT_NAMESPACE, RECREATION_ANNOTATION, RELEASE_ANNOTATION};
use belayer_sandbox::simulated::NodeSpec;
use belayer_sandbox::{
    Actor, Cluster, DeleteOptions, Gvr, ListOptions, Patch, Propagation, Sandbox, Subresource,
    WriteOptions,
};
use belayer_workload::{Argo, USER, WORKFLOWS, WorkflowScript, workflow};
use serde_json::{Value, json};

use crate::fault::FaultKind;
use crate::objects::{self, BATCH, BIG, NAMESPACES, SMALL};
use crate::replica::{Controllers, Replica};

/// Something that happens in a run. A number chooses among the objects, nodes or replicas that exist then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A fault begins; it ends after this time.
    Fault {
        /// Which.
        kind: FaultKind,
        /// How long.
        lasts: Duration,
    },
    /// A user does something.
    User(UserAction, u64),
    /// The workflow controller stops.
    StopArgo,
    /// The workflow controller starts.
    StartArgo,
    /// A node loses its connection.
    Vanish(u64),
    /// All nodes have their connection again.
    ComeBack,
    /// A node is destroyed.
    Destroy(u64),
    /// A kubelet restarts and checks its pods again.
    RestartKubelet(u64),
    /// A replica of Belayer is killed.
    Kill(u64),
    /// A replica of Belayer is stopped gracefully.
    Stop(u64),
    /// All replicas of Belayer are killed.
    KillAll,
    /// Replicas that are down start.
    Start,
    /// An admin switches controllers on and off, and restarts the replicas one after the other.
    Reconfigure(u64),
    /// A tenant changes or deletes something that it should not touch.
    Meddle(u64),
    /// An admin changes the configuration of the replicas while they run.
    Reload(u64),
    /// An admin drains Belayer.
    Drain,
    /// An admin ends the drain.
    Resume,
    /// Another process replaces each replica; for some seconds both run.
    Upgrade,
    /// The wall clock of the replicas jumps.
    JumpClock(u64),
    /// The node agents stop.
    StopAgents,
    /// The node agents start.
    StartAgents,
}

/// Something that a user does. The last five are no part of [`Event::ALL`]: see
/// [`MORE_REJECTIONS`](crate::plan::MORE_REJECTIONS) and [`MORE_NAMES`](crate::plan::MORE_NAMES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UserAction {
    /// Deletes a pod.
    DeletePod,
    /// Deletes all pods of a namespace.
    DeletePods,
    /// Deletes a pod without a grace period.
    ForceDeletePod,
    /// Deletes a workflow in the background.
    DeleteWorkflow,
    /// Deletes a workflow in the foreground.
    DeleteWorkflowForeground,
    /// Deletes a workflow and keeps its pods.
    OrphanPods,
    /// Removes all finalizers of a workflow that is being deleted, and creates one of the same name.
    ReplaceByForce,
    /// Creates a workflow.
    CreateWorkflow,
    /// Deletes a namespace.
    DeleteNamespace,
    /// Requests a release by annotation.
    RequestRelease,
    /// Creates a PVC and a pod that uses it.
    UsePvc,
    /// Deletes a PVC.
    DeletePvc,
    /// Creates pods that request re-creation, and binds more to a node than fit.
    Overcommit,
    /// Deletes a pod that its node has rejected.
    DeleteRejectedPod,
    /// Creates pods that request re-creation; the batch scheduler binds them later, more than fit.
    CreateTrainers,
    /// Creates a pod with the name of one that is re-created, while there is none.
    TakeName,
    /// Deletes a pod, and creates one with the same name, labels and owner, as `kubectl replace --force` does.
    CopyPod,
    /// Creates the namespaces that are gone.
    CreateNamespace,
}

/// The records of re-creations.
const RECORDS: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("podrecreations"),
};

const ACTIONS: [UserAction; 13] = [
    UserAction::DeletePod,
    UserAction::DeletePods,
    UserAction::ForceDeletePod,
    UserAction::DeleteWorkflow,
    UserAction::DeleteWorkflowForeground,
    UserAction::OrphanPods,
    UserAction::ReplaceByForce,
    UserAction::CreateWorkflow,
    UserAction::DeleteNamespace,
    UserAction::RequestRelease,
    UserAction::UsePvc,
    UserAction::DeletePvc,
    UserAction::Overcommit,
];

impl Event {
    /// All but the faults.
    pub(crate) const ALL: [Self; 32] = {
        let mut all = [Self::StopArgo; 32];
        let mut index = 0;
        while index < ACTIONS.len() {
            all[index] = Self::User(ACTIONS[index], 0);
            index += 1;
        }
        let others = [
            Self::StopArgo,
            Self::StartArgo,
            Self::Vanish(0),
            Self::ComeBack,
            Self::Destroy(0),
            Self::RestartKubelet(0),
            Self::Kill(0),
            Self::Stop(0),
            Self::KillAll,
            Self::Start,
            Self::Reconfigure(0),
            Self::Meddle(0),
            Self::Reload(0),
            Self::Drain,
            Self::Resume,
            Self::Upgrade,
            Self::JumpClock(0),
            Self::StopAgents,
            Self::StartAgents,
        ];
        let mut other = 0;
        while other < others.len() {
            all[index + other] = others[other];
            other += 1;
        }
        all
    };

    /// The same, with another choice.
    pub(crate) fn with(self, choice: u64) -> Self {
        match self {
            Self::User(action, _) => Self::User(action, choice),
            Self::Vanish(_) => Self::Vanish(choice),
            Self::Destroy(_) => Self::Destroy(choice),
            Self::RestartKubelet(_) => Self::RestartKubelet(choice),
            Self::Kill(_) => Self::Kill(choice),
            Self::Stop(_) => Self::Stop(choice),
            Self::Reconfigure(_) => Self::Reconfigure(choice),
            Self::Meddle(_) => Self::Meddle(choice),
            Self::Reload(_) => Self::Reload(choice),
            Self::JumpClock(_) => Self::JumpClock(choice),
            other => other,
        }
    }

    /// Its name in the coverage.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Fault { kind, .. } => format!("fault {kind:?}"),
            Self::User(action, _) => format!("user {action:?}"),
            other => {
                let text = format!("{other:?}");
                let name = text.split('(').next().unwrap_or(&text);
                format!("event {name}")
            }
        }
    }
}

/// Everything that events act on.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) argo: Argo,
    pub(crate) replicas: Vec<Replica>,
    /// The script of workflows that users create during the run.
    pub(crate) script: WorkflowScript,
    /// Gives each created object a name of its own.
    pub(crate) created: usize,
    /// Whether pods that request re-creation also require a wipe of their node.
    pub(crate) wipes: bool,
    /// How far Belayer's wall clock is ahead, in seconds.
    pub(crate) skew: Arc<AtomicI64>,
    /// The admin, and the node agents.
    pub(crate) admin: admin::Admin,
    /// Pods to create once their names are free.
    pub(crate) copies: Vec<Value>,
}

impl Stage {
    /// Carries out an event that is not a fault.
    pub(crate) async fn carry_out(&mut self, event: Event) {
        let kubelets = self.sandbox.controllers().kubelets().clone();
        match event {
            Event::Fault { .. } => {}
            Event::User(action, choice) => self.act(action, choice),
            Event::StopArgo => self.argo.stop(),
            Event::StartArgo => self.argo.start(),
            Event::Vanish(choice) => kubelets.vanish(node(choice)),
            Event::ComeBack => {
                for node in objects::nodes() {
                    kubelets.come_back(node.name);
                }
            }
            Event::Destroy(choice) => {
                let node = node(choice);
                kubelets.destroy(node.as_str());
                kubelets.add(NodeSpec::new(format!("{node}-new")));
            }
            Event::RestartKubelet(choice) => kubelets.restart(node(choice)),
            Event::Kill(choice) => self.replica(choice).kill(),
            Event::Stop(choice) => self.replica(choice).stop().await,
            Event::KillAll => self.replicas.iter_mut().for_each(Replica::kill),
            Event::Start => self.replicas.iter_mut().for_each(Replica::start),
            Event::Reconfigure(choice) => self.reconfigure(Controllers::some(choice)).await,
            Event::Meddle(choice) => tenant::meddle(self, choice),
            Event::Reload(choice) => self.reload(Controllers::some(choice)),
            Event::Drain => self.admin.drain(&self.sandbox),
            Event::Resume => self.admin.resume(&self.sandbox).await,
            Event::Upgrade => {
                for replica in &mut self.replicas {
                    replica.upgrade().await;
                }
            }
            Event::JumpClock(choice) => {
                let to = admin::CLOCKS[index(choice, admin::CLOCKS.len())];
                self.skew.store(to, Ordering::Relaxed);
            }
            Event::StopAgents => self.admin.stop_agents(),
            Event::StartAgents => self.admin.start_agents(&self.sandbox),
        }
    }

    /// Restarts the replicas that run, one after the other, with these controllers.
    pub(crate) async fn reconfigure(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            replica.configure(controllers).await;
        }
    }

    /// Restarts only the replicas that have other controllers: a restart would hide that a replica has forgotten something.
    pub(crate) async fn give_controllers(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            if !replica.has(controllers) {
                replica.configure(controllers).await;
            }
        }
    }

    /// Changes the controllers of the replicas that run, without a restart.
    fn reload(&mut self, controllers: Controllers) {
        for replica in &mut self.replicas {
            replica.reload(controllers);
        }
    }

    fn replica(&mut self, choice: u64) -> &mut Replica {
        let index = index(choice, self.replicas.len());
        &mut self.replicas[index]
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.sandbox.cluster()
    }

    fn act(&mut self, action: UserAction, choice: u64) {
        match action {
            UserAction::DeletePod => self.delete_one(&Gvr::PODS, choice, &DeleteOptions::default()),
            UserAction::DeletePods => {
                let namespace = NAMESPACES[index(choice, NAMESPACES.len())];
                for pod in self.list(&Gvr::PODS, Some(namespace)) {
                    self.delete(&Gvr::PODS, &pod, &DeleteOptions::default());
                }
            }
            UserAction::ForceDeletePod => {
                let at_once = DeleteOptions {
                    grace_period_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                self.delete_one(&Gvr::PODS, choice, &at_once);
            }
            UserAction::DeleteWorkflow => self.delete_workflow(choice, Propagation::Background),
            UserAction::DeleteWorkflowForeground => {
                self.delete_workflow(choice, Propagation::Foreground);
            }
            UserAction::OrphanPods => self.delete_workflow(choice, Propagation::Orphan),
            UserAction::ReplaceByForce => self.replace_by_force(choice),
            UserAction::CreateWorkflow => {
                let namespace = NAMESPACES[index(choice, NAMESPACES.len())];
                let name = self.name("more");
                self.create(
                    &WORKFLOWS,
                    namespace,
                    workflow(namespace, &name, &self.script),
                );
            }
            UserAction::DeleteNamespace => {
                let namespace = NAMESPACES[index(choice, NAMESPACES.len())];
                let options = DeleteOptions::default();
                let user = Actor::new(USER);
                drop(
                    self.cluster()
                        .delete(&user, &Gvr::NAMESPACES, None, namespace, &options),
                );
            }
            UserAction::RequestRelease => {
                if let Some(pod) = self.choose(&Gvr::PODS, choice) {
                    let body = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}});
                    self.patch(&Gvr::PODS, &pod, body);
                }
            }
            UserAction::UsePvc => {
                let namespace = NAMESPACES[index(choice, NAMESPACES.len())];
                let name = self.name("data");
                self.create(&Gvr::PERSISTENTVOLUMECLAIMS, namespace, objects::pvc(&name));
                self.create(
                    &Gvr::PODS,
                    namespace,
                    objects::pvc_user(&format!("{name}-user"), &name),
                );
            }
            UserAction::DeletePvc => {
                self.delete_one(
                    &Gvr::PERSISTENTVOLUMECLAIMS,
                    choice,
                    &DeleteOptions::default(),
                );
            }
            UserAction::DeleteRejectedPod => {
                let mut pods = self.list(&Gvr::PODS, None);
                pods.retain(|pod| pod["status"]["reason"].is_string());
                if let Some(pod) = pods.get(index(choice, pods.len())) {
                    self.delete(&Gvr::PODS, pod, &DeleteOptions::default());
                }
            }
            UserAction::TakeName => {
                let records = self.list(&RECORDS, None);
                if let Some(record) = records.get(index(choice, records.len()))
                    && let Some((namespace, _)) = key(record)
                    && let Some(name) = record["spec"]["podName"].as_str()
                {
                    self.copies.push(objects::stranger(namespace, name));
                    self.create_copies();
                }
            }
            UserAction::CopyPod => {
                if let Some(pod) = self.choose(&Gvr::PODS, choice) {
                    self.delete(&Gvr::PODS, &pod, &DeleteOptions::default());
                    self.copies.push(objects::copy(&pod));
                }
            }
            UserAction::CreateNamespace => {
                for name in NAMESPACES {
                    let namespace = json!({ "metadata": { "name": name } });
                    let options = WriteOptions::default();
                    let user = Actor::new(USER);
                    drop(
                        self.cluster()
                            .create(&user, &Gvr::NAMESPACES, None, namespace, &options),
                    );
                }
            }
            UserAction::CreateTrainers => self.create_trainers(choice),
            UserAction::Overcommit => {
                self.create_trainers(choice);
                self.bind_waiting();
            }
        }
    }

    fn create_trainers(&mut self, choice: u64) {
        let namespace = NAMESPACES[index(choice, NAMESPACES.len())];
        let names: Vec<String> = (0..3).map(|_| self.name("train")).collect();
        for name in &names {
            self.create(&Gvr::PODS, namespace, objects::trainer(name, self.wipes));
        }
    }

    /// The batch scheduler binds its waiting pods: new ones to the small node, re-created ones to a big one.
    pub(crate) fn bind_waiting(&self) {
        for pod in self.list(&Gvr::PODS, None) {
            let waits = pod["spec"]["schedulerName"] == BATCH && pod["spec"]["nodeName"].is_null();
            let is_recreated = !pod["metadata"]["annotations"][RECREATION_ANNOTATION].is_null();
            let node = if is_recreated { BIG } else { SMALL };
            if let (true, Some((namespace, name))) = (waits, key(&pod)) {
                let options = WriteOptions::default();
                drop(
                    self.cluster()
                        .bind(&Actor::new(BATCH), namespace, name, node, &options),
                );
            }
        }
    }

    /// Creates the pods whose names are free.
    pub(crate) fn create_copies(&mut self) {
        let (user, options) = (Actor::new(USER), WriteOptions::default());
        let cluster = self.sandbox.cluster();
        self.copies.retain(|copy| {
            let namespace = copy["metadata"]["namespace"].as_str();
            let created = cluster.create(&user, &Gvr::PODS, namespace, copy.clone(), &options);
            created.is_err()
        });
    }

    /// A workflow, a PVC and pods that do not all fit, in each namespace.
    pub(crate) fn create_in_healthy_cluster(&mut self) {
        for choice in 0..NAMESPACES.len() as u64 {
            self.act(UserAction::CreateWorkflow, choice);
            self.act(UserAction::UsePvc, choice);
            self.act(UserAction::Overcommit, choice);
        }
    }

    /// Deletes the newest workflow of a namespace in the background, and the pods of that of another.
    pub(crate) fn delete_in_healthy_cluster(&self) {
        let newest = |namespace| {
            let all = self.list(&WORKFLOWS, Some(namespace));
            all.into_iter()
                .max_by_key(|workflow| created(workflow).to_owned())
        };
        if let Some(workflow) = newest(NAMESPACES[0]) {
            let options = DeleteOptions {
                propagation_policy: Some(Propagation::Background),
                ..DeleteOptions::default()
            };
            self.delete(&WORKFLOWS, &workflow, &options);
        }
        if let Some(workflow) = newest(NAMESPACES[1]) {
            let uid = &workflow["metadata"]["uid"];
            for pod in self.list(&Gvr::PODS, Some(NAMESPACES[1])) {
                if pod["metadata"]["ownerReferences"][0]["uid"] == *uid {
                    self.delete(&Gvr::PODS, &pod, &DeleteOptions::default());
                }
            }
        }
    }

    /// Deletes everything that would otherwise run or wait for ever.
    pub(crate) fn delete_bare_objects(&self) {
        for pod in self.list(&Gvr::PODS, None) {
            if pod["metadata"]["ownerReferences"].is_null() {
                self.delete(&Gvr::PODS, &pod, &DeleteOptions::default());
            }
        }
        for pvc in self.list(&Gvr::PERSISTENTVOLUMECLAIMS, None) {
            self.delete(
                &Gvr::PERSISTENTVOLUMECLAIMS,
                &pvc,
                &DeleteOptions::default(),
            );
        }
    }

    fn delete_workflow(&self, choice: u64, policy: Propagation) {
        let options = DeleteOptions {
            propagation_policy: Some(policy),
            ..DeleteOptions::default()
        };
        self.delete_one(&WORKFLOWS, choice, &options);
    }

    fn replace_by_force(&self, choice: u64) {
        let Some(old) = self.choose(&WORKFLOWS, choice) else {
            return;
        };
        let Some((namespace, name)) = key(&old) else {
            return;
        };
        let options = DeleteOptions {
            propagation_policy: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        self.delete(&WORKFLOWS, &old, &options);
        self.patch(&WORKFLOWS, &old, json!({"metadata": {"finalizers": []}}));
        self.create(
            &WORKFLOWS,
            namespace,
            workflow(namespace, name, &self.script),
        );
    }

    fn name(&mut self, prefix: &str) -> String {
        self.created += 1;
        format!("{prefix}-{}", self.created)
    }

    fn create(&self, gvr: &Gvr, namespace: &str, object: Value) {
        let options = WriteOptions::default();
        drop(
            self.cluster()
                .create(&Actor::new(USER), gvr, Some(namespace), object, &options),
        );
    }

    fn patch(&self, gvr: &Gvr, object: &Value, body: Value) {
        let Some((namespace, name)) = key(object) else {
            return;
        };
        drop(self.cluster().patch(
            &Actor::new(USER),
            gvr,
            Some(namespace),
            name,
            Patch::Merge(body),
            Subresource::None,
            &WriteOptions::default(),
        ));
    }

    fn delete_one(&self, gvr: &Gvr, choice: u64, options: &DeleteOptions) {
        if let Some(object) = self.choose(gvr, choice) {
            self.delete(gvr, &object, options);
        }
    }

    fn delete(&self, gvr: &Gvr, object: &Value, options: &DeleteOptions) {
        if let Some((namespace, name)) = key(object) {
            let user = Actor::new(USER);
            drop(
                self.cluster()
                    .delete(&user, gvr, Some(namespace), name, options),
            );
        }
    }

    pub(crate) fn choose(&self, gvr: &Gvr, choice: u64) -> Option<Arc<Value>> {
        let mut all = self.list(gvr, None);
        all.retain(|object| {
            key(object).is_some_and(|(namespace, _)| namespace != DEFAULT_NAMESPACE)
        });
        match all.len() {
            0 => None,
            count => Some(all.swap_remove(index(choice, count))),
        }
    }

    /// The objects of a kind. None if the kind does not exist yet.
    pub(crate) fn list(&self, gvr: &Gvr, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let page = self.cluster().list(gvr, namespace, &ListOptions::default());
        page.map(|page| page.items).unwrap_or_default()
    }
}

fn key(object: &Value) -> Option<(&str, &str)> {
    let meta = &object["metadata"];
    Some((meta["namespace"].as_str()?, meta["name"].as_str()?))
}

fn created(object: &Value) -> &str {
    object["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap_or_default()
}

fn node(choice: u64) -> String {
    let mut nodes = objects::nodes();
    nodes.swap_remove(index(choice, nodes.len())).name
}

fn index(choice: u64, count: usize) -> usize {
    usize::try_from(choice % count.max(1) as u64).unwrap_or_default()
}
