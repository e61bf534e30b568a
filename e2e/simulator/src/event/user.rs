//! What users do.

use std::ops::Range;

use belayer_holds::names::{
    KUBERNETES_PVC_PROTECTION as PROTECTION, RECREATION_ANNOTATION, RELEASE_ANNOTATION,
};
use belayer_sandbox::simulated::kubelet::annotations;
use belayer_sandbox::{Actor, DeleteOptions, Gvr, Propagation, WriteOptions};
use belayer_workload::{ARGO, ARGO_SERVER, USER, WORKFLOWS, names, workflow};
use serde_json::{Value, json};

use super::others::{KEPT, KUBERNETES};
use super::{RECORDS, Stage, index, key};
use crate::objects::{self, ARGOS, BATCH, BIG, JOBS, SMALL};

/// Something that a user does. Only later seeds use the last sixteen, which [`Event::ALL`](super::Event::ALL) does not contain: see
/// [`MORE_REJECTIONS`](crate::plan::MORE_REJECTIONS), [`MORE_NAMES`](crate::plan::MORE_NAMES),
/// [`SMALL`](crate::plan::SMALL), [`PROFILES`](crate::plan::PROFILES), [`MORE_RULES`](crate::plan::MORE_RULES) and
/// [`LATE_REQUESTS`](crate::plan::LATE_REQUESTS).
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
    /// Runs the failed steps of a workflow again, as `argo retry` does.
    RetryWorkflow,
    /// Creates pods whose consumer reads the records of their outcomes. Only with that profile.
    CreateReports,
    /// Argo adds its finalizer to the pods of its workflows in a namespace. Only if Belayer removes it.
    AddArgosFinalizer,
    /// Creates a PVC that belongs to a workflow, and a pod that uses it for some seconds.
    UseWorkflowsPvc,
    /// Deletes a PVC that belongs to a workflow, as Argo does at its end.
    DeleteWorkflowsPvc,
    /// Kubernetes adds its finalizer to all PVCs.
    ProtectPvcs,
    /// Deletes a workflow that runs, and that another program keeps.
    KeepWorkflow,
    /// Creates a Job, and pods of it that request re-creation.
    CreateJob,
    /// Deletes a Job, in the background or in the foreground. Another program may keep it.
    DeleteJob,
    /// Argo creates the agent pod of a workflow, which Belayer never holds.
    CreateAgent,
    /// A step of a workflow creates pods that request re-creation and belong to the workflow.
    CreateWorkflowsTrainers,
}

/// All but those of later seeds.
pub(super) const ACTIONS: [UserAction; 13] = [
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

/// Those of later seeds.
pub(crate) const LATER: [UserAction; 6] = [
    UserAction::DeleteRejectedPod,
    UserAction::CreateTrainers,
    UserAction::TakeName,
    UserAction::CopyPod,
    UserAction::CreateNamespace,
    UserAction::RetryWorkflow,
];

impl Stage {
    pub(super) fn act(&mut self, action: UserAction, choice: u64) {
        match action {
            UserAction::DeletePod => self.delete_one(&Gvr::PODS, choice, &DeleteOptions::default()),
            UserAction::DeletePods => {
                let namespace = self.namespace(choice);
                for pod in self.list(&Gvr::PODS, Some(namespace)) {
                    self.delete(USER, &Gvr::PODS, &pod, &DeleteOptions::default());
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
                let namespace = self.namespace(choice);
                let name = self.name("more");
                self.create(
                    &WORKFLOWS,
                    namespace,
                    workflow(namespace, &name, &self.script),
                );
            }
            UserAction::DeleteNamespace => {
                let namespace = self.namespace(choice);
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
                    self.patch(USER, &Gvr::PODS, &pod, body);
                }
            }
            UserAction::UsePvc => {
                let namespace = self.namespace(choice);
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
                    self.delete(USER, &Gvr::PODS, pod, &DeleteOptions::default());
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
                    self.delete(USER, &Gvr::PODS, &pod, &DeleteOptions::default());
                    self.copies.push(objects::copy(&pod));
                }
            }
            UserAction::CreateNamespace => {
                for name in self.namespaces {
                    let namespace = json!({ "metadata": { "name": name } });
                    let options = WriteOptions::default();
                    let user = Actor::new(USER);
                    drop(
                        self.cluster()
                            .create(&user, &Gvr::NAMESPACES, None, namespace, &options),
                    );
                }
            }
            UserAction::RetryWorkflow => self.retry_workflow(choice),
            UserAction::CreateTrainers => self.create_trainers(choice),
            UserAction::CreateReports => {
                let namespace = self.namespace(choice);
                for seconds in [1 + choice % 4, 10 + choice % 16] {
                    let name = self.name("report");
                    self.create(&Gvr::PODS, namespace, objects::report(&name, seconds));
                }
            }
            UserAction::AddArgosFinalizer => {
                for pod in self.list(&Gvr::PODS, Some(self.namespace(choice))) {
                    if pod["metadata"]["labels"][names::WORKFLOW].is_string() {
                        self.add_finalizer(ARGO, &Gvr::PODS, &pod, ARGOS);
                    }
                }
            }
            UserAction::UseWorkflowsPvc => self.use_workflows_pvc(choice),
            UserAction::DeleteWorkflowsPvc => {
                let mut pvcs = self.list(&Gvr::PERSISTENTVOLUMECLAIMS, None);
                pvcs.retain(|pvc| pvc["metadata"]["ownerReferences"].is_array());
                if let Some(pvc) = pvcs.get(index(choice, pvcs.len())) {
                    let options = DeleteOptions::default();
                    self.delete(ARGO, &Gvr::PERSISTENTVOLUMECLAIMS, pvc, &options);
                }
            }
            UserAction::ProtectPvcs => {
                for pvc in self.list(&Gvr::PERSISTENTVOLUMECLAIMS, None) {
                    self.add_finalizer(KUBERNETES, &Gvr::PERSISTENTVOLUMECLAIMS, &pvc, PROTECTION);
                }
            }
            UserAction::KeepWorkflow => {
                let mut running = self.list(&WORKFLOWS, None);
                running.retain(|workflow| {
                    let metadata = &workflow["metadata"];
                    metadata["labels"][names::COMPLETED] != "true"
                        && metadata["deletionTimestamp"].is_null()
                });
                if let Some(workflow) = running.get(index(choice, running.len())) {
                    self.add_finalizer(USER, &WORKFLOWS, workflow, KEPT);
                    self.delete(USER, &WORKFLOWS, workflow, &DeleteOptions::default());
                }
            }
            UserAction::CreateJob => self.create_job(choice),
            UserAction::DeleteJob => {
                let policy = match choice % 4 {
                    0 => Propagation::Foreground,
                    _ => Propagation::Background,
                };
                if let Some(job) = self.choose(&JOBS, choice / 4) {
                    if choice % 2 == 1 {
                        self.add_finalizer(USER, &JOBS, &job, KEPT);
                    }
                    self.delete(USER, &JOBS, &job, &propagating(policy));
                }
            }
            UserAction::CreateAgent => {
                if let Some(workflow) = self.choose(&WORKFLOWS, choice)
                    && let Some((namespace, name)) = key(&workflow)
                {
                    let mut agent = objects::stranger(namespace, &format!("{name}-agent"));
                    agent["metadata"]["ownerReferences"] = owned_by(&workflow);
                    agent["metadata"]["labels"] =
                        json!({ names::WORKFLOW: name, names::COMPONENT: "agent" });
                    self.create(&Gvr::PODS, namespace, agent);
                }
            }
            UserAction::CreateWorkflowsTrainers => {
                if let Some(workflow) = self.choose(&WORKFLOWS, choice) {
                    let name = self.name("step");
                    self.create_trainers_of(&workflow, &name);
                    if choice % 2 == 1 {
                        self.bind_waiting();
                    }
                }
            }
            UserAction::Overcommit => {
                self.create_trainers(choice);
                self.bind_waiting();
            }
        }
    }

    fn use_workflows_pvc(&mut self, choice: u64) {
        let Some(workflow) = self.choose(&WORKFLOWS, choice) else {
            return;
        };
        let Some((namespace, _)) = key(&workflow) else {
            return;
        };
        let name = self.name("work");
        let mut pvc = objects::pvc(&name);
        pvc["metadata"]["ownerReferences"] = owned_by(&workflow);
        let mut pod = objects::pvc_user(&format!("{name}-user"), &name);
        let seconds = 1 + choice % 8;
        pod["metadata"]["annotations"] = json!({ annotations::RUN_SECONDS: seconds.to_string() });
        pod["spec"]["restartPolicy"] = json!("Never");
        self.create(&Gvr::PERSISTENTVOLUMECLAIMS, namespace, pvc);
        self.create(&Gvr::PODS, namespace, pod);
    }

    fn create_job(&mut self, choice: u64) {
        let namespace = self.namespace(choice);
        let name = self.name("job");
        let main = json!({"name": "main", "image": "trainer"});
        let job = json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [main]}}},
        });
        self.create(&JOBS, namespace, job);
        let jobs = self.list(&JOBS, Some(namespace));
        let Some(job) = jobs.iter().find(|job| job["metadata"]["name"] == *name) else {
            return;
        };
        self.create_trainers_of(job, &name);
    }

    /// Creates pods that request re-creation and have this owner.
    fn create_trainers_of(&self, owner: &Value, name: &str) {
        let Some((namespace, _)) = key(owner) else {
            return;
        };
        for index in 0..2 {
            let mut pod = objects::trainer(&format!("{name}-{index}"), self.wipes);
            pod["metadata"]["ownerReferences"] = owned_by(owner);
            self.create(&Gvr::PODS, namespace, pod);
        }
    }

    fn create_trainers(&mut self, choice: u64) {
        let namespace = self.namespace(choice);
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

    /// Does this in each of these namespaces.
    pub(crate) fn create_in_healthy_cluster(
        &mut self,
        choices: Range<u64>,
        actions: &[UserAction],
    ) {
        for choice in choices {
            for action in actions {
                self.act(*action, choice);
            }
        }
    }

    /// Deletes the newest workflow of the first namespace in the background, and the pods of that of the last.
    pub(crate) fn delete_in_healthy_cluster(&self) {
        let newest = |namespace| {
            let all = self.list(&WORKFLOWS, Some(namespace));
            all.into_iter()
                .max_by_key(|workflow| created(workflow).to_owned())
        };
        let (first, last) = (self.namespace(0), self.namespace(1));
        if let Some(workflow) = newest(first) {
            let options = propagating(Propagation::Background);
            self.delete(USER, &WORKFLOWS, &workflow, &options);
        }
        if let Some(workflow) = newest(last) {
            let uid = &workflow["metadata"]["uid"];
            for pod in self.list(&Gvr::PODS, Some(last)) {
                if pod["metadata"]["ownerReferences"][0]["uid"] == *uid {
                    self.delete(USER, &Gvr::PODS, &pod, &DeleteOptions::default());
                }
            }
        }
    }

    /// Deletes everything that would otherwise run or wait for ever.
    pub(crate) fn delete_bare_objects(&self) {
        for pod in self.list(&Gvr::PODS, None) {
            if pod["metadata"]["ownerReferences"].is_null() {
                self.delete(USER, &Gvr::PODS, &pod, &DeleteOptions::default());
            }
        }
        let options = propagating(Propagation::Background);
        for job in self.list(&JOBS, None) {
            self.delete(USER, &JOBS, &job, &options);
        }
        for pvc in self.list(&Gvr::PERSISTENTVOLUMECLAIMS, None) {
            self.delete(
                USER,
                &Gvr::PERSISTENTVOLUMECLAIMS,
                &pvc,
                &DeleteOptions::default(),
            );
        }
    }

    fn delete_workflow(&self, choice: u64, policy: Propagation) {
        self.delete_one(&WORKFLOWS, choice, &propagating(policy));
    }

    fn replace_by_force(&self, choice: u64) {
        let Some(old) = self.choose(&WORKFLOWS, choice) else {
            return;
        };
        let Some((namespace, name)) = key(&old) else {
            return;
        };
        let options = propagating(Propagation::Background);
        self.delete(USER, &WORKFLOWS, &old, &options);
        self.patch(
            USER,
            &WORKFLOWS,
            &old,
            json!({"metadata": {"finalizers": []}}),
        );
        self.create(
            &WORKFLOWS,
            namespace,
            workflow(namespace, name, &self.script),
        );
    }

    /// The pods of the failed steps are deleted, and their nodes removed. The controller runs them again, with pods of the same
    /// names.
    fn retry_workflow(&self, choice: u64) {
        let mut failed = self.list(&WORKFLOWS, None);
        failed.retain(|workflow| {
            workflow["metadata"]["labels"][names::COMPLETED] == "true"
                && workflow["metadata"]["deletionTimestamp"].is_null()
                && is_failed(&workflow["status"])
        });
        let Some(workflow) = failed.get(index(choice, failed.len())) else {
            return;
        };
        let nodes = workflow["status"]["nodes"].as_object();
        let mut changed = serde_json::Map::new();
        for (id, node) in nodes
            .into_iter()
            .flatten()
            .filter(|(_, node)| is_failed(node))
        {
            let reset = if node["type"] == "Pod" {
                Value::Null
            } else {
                json!({ "phase": "Running", "message": null, "finishedAt": null })
            };
            changed.insert(id.clone(), reset);
        }
        let namespace = workflow["metadata"]["namespace"].as_str();
        for pod in self.list(&Gvr::PODS, namespace) {
            let is_of_it =
                pod["metadata"]["ownerReferences"][0]["uid"] == workflow["metadata"]["uid"];
            let node = pod["metadata"]["annotations"][names::NODE_ID].as_str();
            if is_of_it
                && node
                    .and_then(|id| changed.get(id))
                    .is_some_and(Value::is_null)
            {
                self.delete(ARGO_SERVER, &Gvr::PODS, &pod, &DeleteOptions::default());
            }
        }
        let mut labels = json!({ names::COMPLETED: "false", names::PHASE: "Running" });
        if workflow["metadata"]["labels"][names::ARCHIVING].is_string() {
            labels[names::ARCHIVING] = Value::Null;
        }
        let body = json!({
            "metadata": { "labels": labels },
            "status": {
                "phase": "Running", "message": null, "finishedAt": null, "nodes": changed,
                "startedAt": self.cluster().clock().now_rfc3339(),
                "conditions": [{ "type": "Completed", "status": "False" }],
            },
        });
        self.patch(ARGO_SERVER, &WORKFLOWS, workflow, body);
    }

    fn namespace(&self, choice: u64) -> &'static str {
        self.namespaces[index(choice, self.namespaces.len())]
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

    fn delete_one(&self, gvr: &Gvr, choice: u64, options: &DeleteOptions) {
        if let Some(object) = self.choose(gvr, choice) {
            self.delete(USER, gvr, &object, options);
        }
    }
}

fn propagating(policy: Propagation) -> DeleteOptions {
    DeleteOptions {
        propagation_policy: Some(policy),
        ..DeleteOptions::default()
    }
}

fn is_failed(status: &Value) -> bool {
    ["Failed", "Error"]
        .iter()
        .any(|phase| status["phase"] == *phase)
}

/// The owner references of an object that this one controls.
fn owned_by(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"],
        "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true,
    }])
}

fn created(object: &Value) -> &str {
    object["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap_or_default()
}
