//! A pod that can be encoded in both formats, as the API server does.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::messages::*;

#[derive(Debug, Clone, Default)]
pub(super) struct ModelPod {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) node_name: String,
    pub(super) host_network: bool,
    pub(super) deletion: Option<(i64, i64)>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Appended to the kind, the version and the name of each owner.
    pub(super) owner_suffix: String,
    pub(super) owners: Vec<(String, Option<bool>)>,
    pub(super) finalizers: Vec<String>,
    pub(super) managers: Vec<(String, String, Option<i64>)>,
    pub(super) volumes: Vec<(String, Source)>,
    /// The environment of a container and of an init container.
    pub(super) env: [Vec<(String, String)>; 2],
    /// Of the init container.
    pub(super) restart_policy: String,
    pub(super) phase: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) pod_ip: String,
    pub(super) start_time: Option<i64>,
    pub(super) containers: [Vec<Container>; 3],
    pub(super) conditions: Vec<Condition>,
}

/// Type, status, reason and time of the last transition.
type Condition = (String, String, String, Option<i64>);

#[derive(Debug, Clone)]
pub(super) enum Source {
    EmptyDir,
    Pvc(String),
    Ephemeral,
}

#[derive(Debug, Clone)]
pub(super) struct Container {
    name: String,
    state: State,
    last: State,
    restarts: i32,
    started: Option<bool>,
}

#[derive(Debug, Clone)]
pub(super) enum State {
    None,
    Waiting,
    Running,
    Terminated {
        exit_code: i32,
        started_at: Option<i64>,
        finished_at: Option<i64>,
    },
}

fn text(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds);
    time.map_or_else(
        |_| "14645-07-08T02:40:00Z".to_owned(),
        |time| time.to_string(),
    )
}

fn time(seconds: i64) -> TimeMessage {
    TimeMessage {
        seconds: Some(seconds),
        nanos: Some(0),
    }
}

impl State {
    fn json(&self) -> Value {
        match self {
            Self::None => json!({}),
            Self::Waiting => json!({ "waiting": { "reason": "ContainerCreating" } }),
            Self::Running => json!({ "running": {} }),
            Self::Terminated {
                exit_code,
                started_at,
                finished_at,
            } => json!({
                "terminated": {
                    "exitCode": exit_code, "startedAt": started_at.map(text),
                    "finishedAt": finished_at.map(text),
                },
            }),
        }
    }

    fn message(&self) -> StateMessage {
        let mut message = StateMessage::default();
        match self {
            Self::None => {}
            Self::Waiting => message.waiting = Some(EmptyMessage {}),
            Self::Running => message.running = Some(EmptyMessage {}),
            Self::Terminated {
                exit_code,
                started_at,
                finished_at,
            } => {
                // A zero time is encoded as an empty message.
                let of = |at: &Option<i64>| Some(at.map_or_else(TimeMessage::default, time));
                message.terminated = Some(TerminatedMessage {
                    exit_code: Some(*exit_code),
                    started_at: of(started_at),
                    finished_at: of(finished_at),
                });
            }
        }
        message
    }
}

impl Container {
    fn json(&self) -> Value {
        let mut json = json!({
            "name": self.name, "ready": false, "restartCount": self.restarts,
            "state": self.state.json(), "lastState": self.last.json(),
        });
        if let Some(started) = self.started {
            json["started"] = started.into();
        }
        json
    }

    fn message(&self) -> ContainerMessage {
        ContainerMessage {
            name: Some(self.name.clone()),
            state: Some(self.state.message()),
            last_state: Some(self.last.message()),
            ready: Some(false),
            restart_count: Some(self.restarts),
            started: self.started,
        }
    }
}

/// The fields of an entry of `managedFields`.
fn written(subresource: &str) -> Value {
    match subresource {
        "" => json!({ "f:metadata": { "f:finalizers": {} }, "f:spec": { "f:nodeName": {} } }),
        _ => json!({ "f:status": {} }),
    }
}

impl ModelPod {
    pub(super) fn json(&self) -> Value {
        let owner = |(uid, controller): &(String, Option<bool>)| {
            json!({
                "apiVersion": format!("argoproj.io/v1alpha1{}", self.owner_suffix),
                "kind": format!("Workflow{}", self.owner_suffix),
                "name": format!("w{}", self.owner_suffix), "uid": uid, "controller": controller,
            })
        };
        let manager = |(manager, subresource, time): &(String, String, Option<i64>)| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1",
                "subresource": subresource, "time": time.map(text), "fieldsV1": written(subresource),
            })
        };
        let volume = |(name, source): &(String, Source)| {
            let mut volume = json!({ "name": name });
            match source {
                Source::EmptyDir => volume["emptyDir"] = json!({}),
                Source::Pvc(pvc) => {
                    volume["persistentVolumeClaim"] = json!({ "claimName": pvc });
                }
                Source::Ephemeral => volume["ephemeral"] = json!({ "volumeClaimTemplate": {} }),
            }
            volume
        };
        let condition = |(name, status, reason, at): &Condition| {
            json!({
                "type": name, "status": status, "reason": reason,
                "lastTransitionTime": at.map(text),
            })
        };
        let statuses = |of: &[Container]| of.iter().map(Container::json).collect::<Vec<_>>();
        let containers = |env: &[(String, String)], restart_policy: &str| {
            let variable =
                |(name, value): &(String, String)| json!({ "name": name, "value": value });
            json!([{
                "name": "c", "env": env.iter().map(variable).collect::<Vec<_>>(),
                "restartPolicy": restart_policy,
            }])
        };
        let mut json = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "uid": self.uid,
                "resourceVersion": self.resource_version, "generation": 3,
                "labels": self.labels, "annotations": self.annotations,
                "ownerReferences": self.owners.iter().map(owner).collect::<Vec<_>>(),
                "finalizers": self.finalizers,
                "managedFields": self.managers.iter().map(manager).collect::<Vec<_>>(),
            },
            "spec": {
                "nodeName": self.node_name, "hostNetwork": self.host_network, "priority": -5,
                "volumes": self.volumes.iter().map(volume).collect::<Vec<_>>(),
                "containers": containers(&self.env[0], ""),
                "initContainers": containers(&self.env[1], &self.restart_policy),
            },
            "status": {
                "phase": self.phase, "reason": self.reason, "message": self.message,
                "hostIP": "10.0.0.1", "podIP": self.pod_ip,
                "startTime": self.start_time.map(text),
                "conditions": self.conditions.iter().map(condition).collect::<Vec<_>>(),
                "containerStatuses": statuses(&self.containers[0]),
                "initContainerStatuses": statuses(&self.containers[1]),
                "ephemeralContainerStatuses": statuses(&self.containers[2]),
            },
        });
        if let Some((at, grace)) = self.deletion {
            json["metadata"]["deletionTimestamp"] = text(at).into();
            json["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        }
        json
    }

    pub(super) fn message(&self) -> PodMessage {
        let owners = self.owners.iter().map(|(uid, controller)| OwnerMessage {
            kind: Some(format!("Workflow{}", self.owner_suffix)),
            name: Some(format!("w{}", self.owner_suffix)),
            uid: Some(uid.clone()),
            api_version: Some(format!("argoproj.io/v1alpha1{}", self.owner_suffix)),
            controller: *controller,
        });
        let managers =
            self.managers
                .iter()
                .map(|(manager, subresource, at)| ManagedFieldsMessage {
                    manager: Some(manager.clone()),
                    operation: Some("Update".into()),
                    time: at.map(time),
                    fields_v1: Some(FieldsMessage {
                        raw: Some(written(subresource).to_string().into_bytes()),
                    }),
                    subresource: Some(subresource.clone()),
                });
        let volumes = self.volumes.iter().map(|(name, source)| VolumeMessage {
            name: Some(name.clone()),
            source: Some(match source {
                Source::EmptyDir => VolumeSourceMessage {
                    empty_dir: Some(EmptyMessage {}),
                    ..VolumeSourceMessage::default()
                },
                Source::Pvc(pvc) => VolumeSourceMessage {
                    pvc: Some(ClaimMessage {
                        claim_name: Some(pvc.clone()),
                        read_only: Some(false),
                    }),
                    ..VolumeSourceMessage::default()
                },
                Source::Ephemeral => VolumeSourceMessage {
                    ephemeral: Some(EmptyMessage {}),
                    ..VolumeSourceMessage::default()
                },
            }),
        });
        let conditions =
            self.conditions
                .iter()
                .map(|(name, status, reason, at)| ConditionMessage {
                    name: Some(name.clone()),
                    status: Some(status.clone()),
                    last_transition_time: Some(at.map_or_else(TimeMessage::default, time)),
                    reason: Some(reason.clone()),
                });
        let statuses = |of: &[Container]| of.iter().map(Container::message).collect();
        let containers = |env: &[(String, String)], restart_policy: &str| {
            let variable = |(name, value): &(String, String)| VariableMessage {
                name: Some(name.clone()),
                value: Some(value.clone()),
            };
            vec![SpecContainerMessage {
                name: Some("c".into()),
                env: env.iter().map(variable).collect(),
                restart_policy: Some(restart_policy.to_owned()),
            }]
        };
        PodMessage {
            metadata: Some(MetaMessage {
                name: Some(self.name.clone()),
                generate_name: Some(String::new()),
                namespace: Some(self.namespace.clone()),
                uid: Some(self.uid.clone()),
                resource_version: Some(self.resource_version.clone()),
                generation: Some(3),
                deletion_timestamp: self.deletion.map(|(at, _)| time(at)),
                deletion_grace_period_seconds: self.deletion.map(|(_, grace)| grace),
                labels: self.labels.clone(),
                annotations: self.annotations.clone(),
                owner_references: owners.collect(),
                finalizers: self.finalizers.clone(),
                managed_fields: managers.collect(),
            }),
            spec: Some(SpecMessage {
                volumes: volumes.collect(),
                containers: containers(&self.env[0], ""),
                init_containers: containers(&self.env[1], &self.restart_policy),
                termination_grace_period_seconds: Some(30),
                node_name: Some(self.node_name.clone()),
                host_network: Some(self.host_network),
                priority: Some(-5),
            }),
            status: Some(PodStatusMessage {
                phase: Some(self.phase.clone()),
                conditions: conditions.collect(),
                message: Some(self.message.clone()),
                reason: Some(self.reason.clone()),
                host_ip: Some("10.0.0.1".into()),
                pod_ip: Some(self.pod_ip.clone()),
                start_time: self.start_time.map(time),
                containers: statuses(&self.containers[0]),
                init_containers: statuses(&self.containers[1]),
                ephemeral_containers: statuses(&self.containers[2]),
            }),
        }
    }
}

fn short_text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z0-9.-]{1,12}", 1 => "[ -~äß\\n\"\\\\]{0,6}", 1 => Just(String::new())]
}

fn seconds() -> impl Strategy<Value = i64> {
    // Some are beyond the range of the time library (T9).
    prop_oneof![20 => -2_000_000_000_i64..4_000_000_000, 1 => Just(400_000_000_000)]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::None),
        Just(State::Waiting),
        Just(State::Running),
        (-3..300_i32, option::of(seconds()), option::of(seconds())).prop_map(
            |(exit_code, started_at, finished_at)| State::Terminated {
                exit_code,
                started_at,
                finished_at,
            }
        ),
    ]
}

fn container() -> impl Strategy<Value = Container> {
    (
        // The container of the spec is named c.
        prop_oneof![Just("c".to_owned()), short_text()],
        state(),
        state(),
        0..3_i32,
        option::of(any::<bool>()),
    )
        .prop_map(|(name, state, last, restarts, started)| Container {
            name,
            state,
            last,
            restarts,
            started,
        })
}

fn condition() -> impl Strategy<Value = Condition> {
    let name = prop_oneof![
        Just("PodScheduled".to_owned()),
        Just("PodReadyToStartContainers".to_owned()),
        Just("DisruptionTarget".to_owned()),
        short_text(),
    ];
    let status = prop_oneof![Just("True".to_owned()), Just("False".to_owned())];
    let reason = prop_oneof![Just("DeletionByPodGC".to_owned()), short_text()];
    (name, status, reason, option::of(seconds()))
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::EmptyDir),
        short_text().prop_map(Source::Pvc),
        Just(Source::Ephemeral),
    ]
}

fn variable() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![Just("ARGO_TEMPLATE".to_owned()), short_text()];
    let set = |name| format!(r#"{{"containerSet":{{"containers":[{{"name":"{name}"}}]}}}}"#);
    let value = prop_oneof![
        Just("{}".to_owned()),
        "[a-z]{1,2}".prop_map(set),
        short_text()
    ];
    (name, value)
}

fn pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    let name = prop_oneof![
        Just("app".to_owned()),
        Just("gone".to_owned()),
        Just("example.com/release".to_owned()),
        Just("example.com/parent".to_owned()),
        short_text(),
    ];
    btree_map(name, short_text(), 0..5)
}

prop_compose! {
    fn identified()(
        name in short_text(),
        namespace in short_text(),
        uid in short_text(),
        version in prop_oneof![6 => "[1-9][0-9]{0,9}", 1 => short_text()],
        deletion in option::of((seconds(), 0..600_i64)),
        labels in pairs(),
        annotations in pairs(),
        owners in vec((short_text(), option::of(any::<bool>())), 0..4),
        finalizers in vec(short_text(), 0..4),
        managers in vec(
            (
                prop_oneof![Just("kubelet".to_owned()), short_text()],
                prop_oneof![Just("status".to_owned()), Just(String::new())],
                option::of(seconds()),
            ),
            0..4,
        ),
    ) -> ModelPod {
        ModelPod {
            name, namespace, uid, resource_version: version, deletion, labels, annotations,
            owners, finalizers, managers, ..ModelPod::default()
        }
    }
}

/// A text of up to 18 KB, with characters of several bytes.
fn long_text() -> impl Strategy<Value = String> {
    let long = ("[a-zß/%.]{1,3}", 1..6_000_usize).prop_map(|(text, times)| text.repeat(times));
    prop_oneof![
        short_text(),
        "[a-zß]{60,64}",
        "[a-zß]{252,254}",
        "[a-zß]{1022,1026}",
        long
    ]
}

/// Up to 1,500 entries, all different or all the same.
fn many(of: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    let count = prop_oneof![3 => 0..4_usize, 1 => 0..1_500_usize];
    (of, count, any::<bool>()).prop_map(|(text, count, differ)| {
        let length = text.len().clamp(1, (1 << 20) / count.max(1));
        let text = &text[..text.floor_char_boundary(length)];
        let one = |n| {
            if differ {
                format!("{text}{n}")
            } else {
                text.to_owned()
            }
        };
        (0..count).map(one).collect()
    })
}

prop_compose! {
    /// A pod of any size that the API server accepts, and larger.
    pub(super) fn any_large_pod()(
        pod in any_pod(),
        owner in long_text(),
        owner_suffix in long_text(),
        value in long_text(),
        finalizers in many(long_text()),
        ours_at in any::<prop::sample::Index>(),
        (pvcs, volumes) in (many(long_text()), many(short_text())),
        texts in (long_text(), long_text(), long_text()),
        phase in prop_oneof![Just("Failed"), Just("Running")],
        (containers, copies) in (vec(container(), 0..3), prop_oneof![1..3_usize, 250..600_usize]),
        container_name in long_text(),
        members in many(short_text()),
    ) -> ModelPod {
        let mut finalizers = finalizers;
        finalizers.insert(ours_at.index(finalizers.len() + 1), "ours.dev/hold".to_owned());
        let (reason, message, node_name) = texts;
        let pvcs = pvcs.into_iter().map(|pvc| ("v".to_owned(), Source::Pvc(pvc)));
        let volumes = volumes.into_iter().map(|name| (name, Source::Ephemeral));
        let mut statuses: Vec<_> = (0..copies).flat_map(|_| containers.clone()).collect();
        if let Some(first) = statuses.first_mut() {
            first.name = container_name;
        }
        let members: Vec<_> = members.iter().map(|name| json!({ "name": name })).collect();
        let template = json!({ "containerSet": { "containers": members } }).to_string();
        ModelPod {
            owners: vec![(owner, Some(true))],
            owner_suffix,
            annotations: [("example.com/release".to_owned(), value.clone())].into(),
            labels: [("app".to_owned(), value)].into(),
            finalizers,
            volumes: pvcs.chain(volumes).collect(),
            reason, message, node_name,
            phase: phase.to_owned(),
            containers: [statuses.clone(), statuses, Vec::new()],
            env: [vec![("ARGO_TEMPLATE".to_owned(), template)], Vec::new()],
            ..pod
        }
    }
}

prop_compose! {
    pub(super) fn any_pod()(
        pod in identified(),
        (node_name, host_network) in (short_text(), any::<bool>()),
        volumes in vec((short_text(), source()), 0..4),
        env in [vec(variable(), 0..2), vec(variable(), 0..2)],
        restart_policy in prop_oneof![Just("Always".to_owned()), Just(String::new()), short_text()],
        phase in prop_oneof![
            Just("Failed".to_owned()), Just("Running".to_owned()),
            Just("Succeeded".to_owned()), Just("Pending".to_owned()), short_text(),
        ],
        reason in short_text(),
        message in short_text(),
        pod_ip in short_text(),
        start_time in option::of(seconds()),
        conditions in vec(condition(), 0..4),
        containers in [vec(container(), 0..3), vec(container(), 0..2), vec(container(), 0..2)],
    ) -> ModelPod {
        ModelPod {
            node_name, host_network, volumes, env, restart_policy, phase, reason, message, pod_ip, start_time, conditions, containers,
            ..pod
        }
    }
}
