//! Kinds whose objects own pods, with the part of their status that the published expressions read. A server drops
//! fields that a schema does not have, so that an expression with a wrong path never becomes true.

use serde_json::{Value, json};

/// A kind that owns pods, as documented in docs/src/tasks/other-owners.md.
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) when: &'static str,
    /// The properties of the status.
    status: fn() -> Value,
    /// A status of an owner that runs, and one of an owner that has ended.
    pub(super) runs: fn() -> Value,
    pub(super) ended: fn() -> Value,
}

const AT: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:01:00Z";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "tekton.dev",
        version: "v1",
        kind: "TaskRun",
        plural: "taskruns",
        when: "has(owner.status.completionTime)",
        status: || {
            json!({
                "podName": text(), "startTime": time(), "completionTime": time(), "conditions": conditions(),
                "results": list(&json!({ "name": text(), "type": text(), "value": text() })),
            })
        },
        runs: || json!({ "podName": "build-pod", "startTime": AT, "conditions": [condition("Succeeded", "Unknown")] }),
        ended: || {
            json!({
                "podName": "build-pod", "startTime": AT, "completionTime": LATER,
                "conditions": [condition("Succeeded", "True")],
            })
        },
    },
    Kind {
        group: "sparkoperator.k8s.io",
        version: "v1beta2",
        kind: "SparkApplication",
        plural: "sparkapplications",
        when: r#"owner.status.applicationState.state in ["COMPLETED", "FAILED"]"#,
        status: || {
            json!({
                "applicationState": object(&json!({ "state": text(), "errorMessage": text() })),
                "driverInfo": object(&json!({ "podName": text() })),
                "executorState": { "type": "object", "additionalProperties": text() },
                "executionAttempts": number(), "submissionAttempts": number(), "submissionID": text(),
                "lastSubmissionAttemptTime": time(), "terminationTime": time(), "sparkApplicationId": text(),
            })
        },
        runs: || {
            json!({
                "applicationState": { "state": "RUNNING" }, "driverInfo": { "podName": "done-driver" },
                "executorState": { "done-exec-1": "RUNNING" }, "executionAttempts": 1,
            })
        },
        ended: || {
            json!({
                "applicationState": { "state": "COMPLETED" }, "driverInfo": { "podName": "done-driver" },
                "executorState": { "done-exec-1": "COMPLETED" }, "executionAttempts": 1, "terminationTime": LATER,
            })
        },
    },
    Kind {
        group: "ray.io",
        version: "v1",
        kind: "RayCluster",
        plural: "rayclusters",
        when: r#"owner.status.state == "suspended""#,
        status: || {
            json!({
                "state": text(), "reason": text(), "lastUpdateTime": time(), "desiredWorkerReplicas": number(),
                "readyWorkerReplicas": number(), "conditions": conditions(),
            })
        },
        runs: || json!({ "state": "ready", "desiredWorkerReplicas": 1, "readyWorkerReplicas": 1 }),
        ended: || {
            json!({
                "state": "suspended", "desiredWorkerReplicas": 0, "readyWorkerReplicas": 0, "lastUpdateTime": LATER,
            })
        },
    },
    Kind {
        group: "ray.io",
        version: "v1",
        kind: "RayJob",
        plural: "rayjobs",
        when: r#"owner.status.jobDeploymentStatus in ["Complete", "Failed"]"#,
        status: || {
            json!({
                "jobId": text(), "jobStatus": text(), "jobDeploymentStatus": text(), "message": text(),
                "rayClusterName": text(), "startTime": time(), "endTime": time(),
            })
        },
        runs: || {
            json!({
                "jobId": "done-1", "jobStatus": "RUNNING", "jobDeploymentStatus": "Running",
                "rayClusterName": "done-cluster", "startTime": AT,
            })
        },
        ended: || {
            json!({
                "jobId": "done-1", "jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete",
                "rayClusterName": "done-cluster", "startTime": AT, "endTime": LATER,
            })
        },
    },
    Kind {
        group: "jobset.x-k8s.io",
        version: "v1alpha2",
        kind: "JobSet",
        plural: "jobsets",
        when: r#"owner.status.conditions.exists(c, c.type in ["Completed", "Failed"] && c.status == "True")"#,
        status: || {
            let jobs = json!({
                "name": text(), "ready": number(), "active": number(), "succeeded": number(), "failed": number(),
                "suspended": number(),
            });
            json!({
                "conditions": conditions(), "restarts": number(), "terminalState": text(),
                "replicatedJobsStatus": list(&jobs),
            })
        },
        runs: || {
            let workers = json!({
                "name": "workers", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0,
            });
            json!({ "restarts": 0, "replicatedJobsStatus": [workers] })
        },
        ended: || {
            let workers = json!({
                "name": "workers", "ready": 0, "active": 0, "succeeded": 1, "failed": 0, "suspended": 0,
            });
            json!({
                "conditions": [condition("Completed", "True")], "restarts": 0, "terminalState": "Completed",
                "replicatedJobsStatus": [workers],
            })
        },
    },
    Kind {
        group: "trainer.kubeflow.org",
        version: "v1alpha1",
        kind: "TrainJob",
        plural: "trainjobs",
        when: r#"owner.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")"#,
        status: || {
            let jobs = json!({
                "name": text(), "ready": number(), "active": number(), "succeeded": number(), "failed": number(),
                "suspended": number(),
            });
            json!({ "conditions": conditions(), "jobsStatus": list(&jobs) })
        },
        runs: || json!({ "conditions": [condition("Suspended", "False")] }),
        ended: || json!({ "conditions": [condition("Suspended", "False"), condition("Complete", "True")] }),
    },
    Kind {
        group: "batch",
        version: "v1",
        kind: "Job",
        plural: "jobs",
        when: r#"owner.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")"#,
        // Built in.
        status: || json!({}),
        runs: || json!({ "startTime": AT }),
        ended: || {
            let condition = |kind| {
                let mut condition = condition(kind, "True");
                condition["lastProbeTime"] = LATER.into();
                condition
            };
            json!({
                "startTime": AT, "completionTime": LATER,
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            })
        },
    },
];

impl Kind {
    /// The schema of the kind. What is not in its status is dropped; its spec is of no interest here.
    pub(super) fn schema(&self) -> Value {
        object(&json!({
            "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "status": object(&(self.status)()),
        }))
    }
}

fn object(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn list(of: &Value) -> Value {
    json!({ "type": "array", "items": object(of) })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn number() -> Value {
    json!({ "type": "integer", "format": "int32" })
}

fn conditions() -> Value {
    list(&json!({
        "type": text(), "status": text(), "reason": text(), "message": text(), "lastTransitionTime": time(),
    }))
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Scenario", "message": "as the scenario says",
        "lastTransitionTime": LATER,
    })
}
