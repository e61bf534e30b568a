use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::fields::{Text, each, nullable, present, timestamp};
use super::{JsonMeta, SlimJson};
use crate::slim::{DecodeContext, DecodeError, Failure, Phase, Pod};

/// A pod as it stands in the bytes.
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
    #[serde(borrow, deserialize_with = "nullable")]
    volumes: Vec<JsonVolume<'a>>,
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
    #[serde(deserialize_with = "any_started")]
    container_statuses: bool,
    #[serde(deserialize_with = "any_started")]
    init_container_statuses: bool,
    #[serde(deserialize_with = "any_started")]
    ephemeral_container_statuses: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonContainerStatus<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    state: JsonState<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    last_state: JsonState<'a>,
    #[serde(deserialize_with = "nullable")]
    started: bool,
    #[serde(deserialize_with = "nullable")]
    restart_count: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonState<'a> {
    #[serde(deserialize_with = "present")]
    waiting: bool,
    #[serde(deserialize_with = "present")]
    running: bool,
    #[serde(borrow)]
    terminated: Option<JsonTerminated<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonTerminated<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    started_at: Text<'a>,
}

impl JsonContainerStatus<'_> {
    /// A container that terminated without ever having started has no `startedAt`: so the kubelet
    /// reports the containers of a pod that it rejects. A last state exists only after a run.
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
}

fn any_started<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let mut any = false;
    each(deserializer, |status: JsonContainerStatus<'de>| {
        any |= status.has_started();
    })?;
    Ok(any)
}

impl JsonVolume<'_> {
    fn claim(&self) -> Option<Arc<str>> {
        let claim = &*self.persistent_volume_claim.claim_name;
        (!claim.is_empty()).then(|| claim.into())
    }

    /// The claim of an ephemeral volume is named after the pod.
    fn ephemeral_claim(&self, pod: &str) -> Option<Arc<str>> {
        self.ephemeral
            .then(|| format!("{pod}-{}", &*self.name).into())
    }
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
        let some = |text: &str| (!text.is_empty()).then(|| interner.intern(text));
        let phase = Phase::parse(&status.phase);
        let failure = if phase == Phase::Failed {
            Some(Box::new(Failure {
                message: (!status.message.is_empty()).then(|| Arc::from(&*status.message)),
                start_time: timestamp("status.startTime", &status.start_time)?,
                status_written: metadata.status_written(),
            }))
        } else {
            None
        };
        Ok(Self {
            node_name: some(&spec.node_name),
            claims: spec.volumes.iter().filter_map(JsonVolume::claim).collect(),
            ephemeral_claims: spec
                .volumes
                .iter()
                .filter_map(|volume| volume.ephemeral_claim(metadata.name()))
                .collect(),
            phase,
            reason: some(&status.reason),
            has_ip: !status.pod_ip.is_empty(),
            started: status.container_statuses
                || status.init_container_statuses
                || status.ephemeral_container_statuses,
            failure,
            meta,
        })
    }
}
