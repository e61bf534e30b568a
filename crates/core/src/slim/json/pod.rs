use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::fields::{Text, each, nullable, present, timestamp};
use super::{JsonMeta, SlimJson};
use crate::slim::limits::{self, Pvcs};
use crate::slim::pod::first_containers;
use crate::slim::{
    BeforeDeletion, Container, ContainerKind, ContainerSet, ContainerState, DecodeContext,
    DecodeError, Failure, Interner, Phase, Pod, Shutdown, Unstarted,
};

/// A pod as in the bytes. It is [`Pod`](crate::slim::Pod) in JSON, decoded as the object of the
/// [example](crate::slim).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonPod<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    metadata: JsonMeta<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    spec: JsonSpec<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    status: JsonStatus<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonSpec<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    node_name: Text<'a>,
    #[serde(deserialize_with = "nullable")]
    host_network: bool,
    #[serde(borrow, deserialize_with = "nullable")]
    volumes: Vec<JsonVolume<'a>>,
    /// Decoded only if the pod is being deleted.
    #[serde(borrow)]
    containers: Option<&'a RawValue>,
    #[serde(borrow)]
    init_containers: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonContainer<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    restart_policy: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    env: Vec<JsonVariable<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonVariable<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    value: Text<'a>,
}

/// What the spec of a pod that is being deleted says about its containers.
#[derive(Default)]
struct Roles<'a> {
    set: ContainerSet,
    /// The names of native sidecars.
    sidecars: Vec<Text<'a>>,
}

impl<'a> JsonSpec<'a> {
    fn roles(&self) -> Roles<'a> {
        let mut roles = Roles::default();
        for (raw, is_init) in [(self.init_containers, true), (self.containers, false)] {
            let Some(raw) = raw else { continue };
            let Ok(containers) = serde_json::from_str::<Vec<JsonContainer<'_>>>(raw.get()) else {
                roles.set = ContainerSet::Unknown;
                return roles;
            };
            for container in containers {
                for variable in &container.env {
                    roles.set.add_variable(&variable.name, &variable.value);
                }
                if is_init && &*container.restart_policy == "Always" {
                    roles.sidecars.push(container.name);
                }
            }
        }
        roles
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonVolume<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    persistent_volume_claim: JsonClaim<'a>,
    #[serde(deserialize_with = "present")]
    ephemeral: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonClaim<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    claim_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonStatus<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    phase: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    reason: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    message: Text<'a>,
    #[serde(borrow, rename = "podIP", deserialize_with = "nullable")]
    pod_ip: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    start_time: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    conditions: Conditions<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    container_statuses: Vec<JsonContainerStatus<'a>>,
    #[serde(borrow, deserialize_with = "nullable")]
    init_container_statuses: Vec<JsonContainerStatus<'a>>,
    #[serde(deserialize_with = "any_started")]
    ephemeral_container_statuses: bool,
}

/// The conditions of a pod that is being deleted or has not run.
#[derive(Debug, Default)]
struct Conditions<'a> {
    sandbox_ready: bool,
    scheduled: Text<'a>,
    by_pod_gc: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonCondition<'a> {
    #[serde(borrow, rename = "type", deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    status: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    reason: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    last_transition_time: Text<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Conditions<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut conditions = Self::default();
        each(deserializer, |condition: JsonCondition<'de>| {
            if &*condition.status != "True" {
                return;
            }
            match &*condition.name {
                "PodReadyToStartContainers" => conditions.sandbox_ready = true,
                "PodScheduled" => conditions.scheduled = condition.last_transition_time,
                "DisruptionTarget" => {
                    conditions.by_pod_gc |= &*condition.reason == "DeletionByPodGC";
                }
                _ => {}
            }
        })?;
        Ok(conditions)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonContainerStatus<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    state: JsonState<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    last_state: JsonState<'a>,
    #[serde(deserialize_with = "nullable")]
    started: bool,
    #[serde(deserialize_with = "nullable")]
    restart_count: i64,
    #[serde(borrow, rename = "containerID", deserialize_with = "nullable")]
    container_id: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonState<'a> {
    #[serde(deserialize_with = "present")]
    waiting: bool,
    #[serde(deserialize_with = "present")]
    running: bool,
    #[serde(borrow)]
    terminated: Option<JsonTerminated<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonTerminated<'a> {
    #[serde(deserialize_with = "nullable")]
    exit_code: i32,
    #[serde(borrow, deserialize_with = "nullable")]
    started_at: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    finished_at: Text<'a>,
}

impl JsonContainerStatus<'_> {
    /// A container that terminated without having started has no `startedAt`: the kubelet reports
    /// the containers of a rejected pod so. A last state exists only after a run.
    fn has_started(&self) -> bool {
        let last = &self.last_state;
        self.started
            || self.restart_count > 0
            || self.state.running
            || self
                .state
                .terminated
                .as_ref()
                .is_some_and(|t| !t.started_at.is_empty())
            || last.waiting
            || last.running
            || last.terminated.is_some()
    }

    fn has_id(&self) -> bool {
        !self.container_id.is_empty()
    }

    fn state(&self) -> ContainerState {
        match &self.state.terminated {
            Some(end) => ContainerState::Terminated {
                exit_code: end.exit_code,
                finished: !end.finished_at.is_empty(),
            },
            None if self.state.running => ContainerState::Running,
            None => ContainerState::Waiting,
        }
    }

    fn container(&self, kind: ContainerKind, interner: &Interner) -> Container {
        Container::new(
            interner.intern(limits::container_name(&self.name)),
            kind,
            self.state(),
            self.has_started(),
        )
    }
}

impl JsonStatus<'_> {
    fn any_container(&self, is: impl Fn(&JsonContainerStatus<'_>) -> bool) -> bool {
        let init = self.init_container_statuses.iter();
        self.container_statuses.iter().chain(init).any(is)
    }

    fn started(&self) -> bool {
        let containers = || {
            self.container_statuses
                .iter()
                .chain(&self.init_container_statuses)
        };
        self.ephemeral_container_statuses || containers().any(JsonContainerStatus::has_started)
    }

    fn shutdown(
        &self,
        metadata: &JsonMeta<'_>,
        spec: &JsonSpec<'_>,
        interner: &Interner,
    ) -> Shutdown {
        let Roles { set, sidecars } = spec.roles();
        let init = self.init_container_statuses.iter();
        let main = self.container_statuses.iter();
        let init_kind = |name: &str| {
            if sidecars.iter().any(|one| **one == *name) {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            }
        };
        Shutdown {
            containers: first_containers(
                init.map(|status| status.container(init_kind(&status.name), interner))
                    .chain(main.map(|status| status.container(ContainerKind::Main, interner)))
                    .take(limits::CONTAINERS + 1)
                    .collect(),
            ),
            by_pod_gc: self.conditions.by_pod_gc,
            container_set: set,
            before: BeforeDeletion::default(),
            created: metadata.created(),
        }
    }

    fn unstarted(&self, phase: Phase) -> Unstarted {
        let scheduled = &self.conditions.scheduled;
        Unstarted {
            scheduled: timestamp("status.conditions", scheduled).unwrap_or(Some(Timestamp::MIN)),
            kubelet_reported: !self.start_time.is_empty() && phase != Phase::Failed,
            seen_before_failure: phase != Phase::Failed,
            ..Unstarted::default()
        }
    }
}

fn any_started<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let mut any = false;
    each(deserializer, |status: JsonContainerStatus<'de>| {
        any |= status.has_started();
    })?;
    Ok(any)
}

impl SlimJson for Pod {
    type Json<'a> = JsonPod<'a>;
    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        let JsonPod {
            metadata,
            spec,
            status,
        } = json;
        let meta = metadata.to_meta(context)?;
        let interner = &context.interner;
        let some = |text: &str| limits::some(text, interner);
        let phase = Phase::parse(&status.phase);
        let failure = if phase == Phase::Failed {
            Some(Box::new(Failure {
                message: (!status.message.is_empty())
                    .then(|| limits::message(&status.message).into()),
                start_time: timestamp("status.startTime", &status.start_time)
                    .unwrap_or(Some(Timestamp::MIN)),
                status_written: metadata.status_written(),
                finalizers_written: metadata.finalizers_written(),
                created: metadata.created(),
                has_container: status
                    .any_container(|one| one.state.terminated.is_some() || one.has_id()),
                has_container_id: status.any_container(|one| one.has_id()),
            }))
        } else {
            None
        };
        let started = status.started();
        let has_ip = !status.pod_ip.is_empty() && !spec.host_network;
        let mut pvcs = Pvcs::default();
        for volume in &spec.volumes {
            let pvc = &volume.persistent_volume_claim.claim_name;
            pvcs.add(metadata.name(), &volume.name, pvc, volume.ephemeral);
        }
        let (pvcs, ephemeral_pvcs) = pvcs.finish();
        Ok(Self {
            node_name: some(&spec.node_name),
            pvcs,
            ephemeral_pvcs,
            phase,
            reason: some(&status.reason),
            has_ip,
            started,
            failure,
            shutdown: meta
                .is_deleting()
                .then(|| Box::new(status.shutdown(metadata, spec, interner))),
            unstarted: (!started && !has_ip && !status.conditions.sandbox_ready)
                .then(|| Box::new(status.unstarted(phase))),
            meta,
        })
    }
}
