//! What decisions read of a `PodRecreation`. The pod to create is not cached: the steps that need
//! it read it. The records are named as in the [crate's example](crate).

use belayer_core::object::Uid;
use belayer_core::slim::json::{JsonMeta, SlimJson};
use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
use jiff::Timestamp;
use serde::Deserialize;

use crate::api::{Phase, Policy, Status};

/// A `PodRecreation` without its pod. The records are named as in the [crate's example](crate).
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Metadata.
    pub meta: ObjectMeta,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.podName`.
    pub pod_name: String,
    /// `spec.firstUID`.
    pub first_uid: String,
    /// `spec.policy`.
    pub policy: Policy,
    /// `status`.
    pub status: Status,
}

impl Record {
    /// The UIDs of the last pod that was re-created, and of the last that was rejected, by the status.
    pub fn named(&self) -> [Option<&str>; 2] {
        let status = &self.status;
        [&status.pod_uid, &status.rejected_uid].map(Option::as_deref)
    }

    /// Whether the status names `pod` as the last pod that was re-created or rejected.
    pub fn names(&self, pod: &Uid) -> bool {
        self.named().contains(&Some(pod.as_str()))
    }

    /// Whether the record may still create a pod, and does not name `pod`, which one of its attempts
    /// created. Until it does, only the hold on that pod proves that it was created.
    pub fn awaits(&self, pod: &Uid) -> bool {
        let may_create = matches!(
            self.status.phase,
            Some(Phase::Deleting | Phase::Waiting | Phase::Creating)
        );
        may_create && !self.names(pod)
    }
}

impl Slim for Record {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta) || self.status != older.status
    }
}

/// A record as the API server sends it. The records are named as in the [crate's example](crate).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonRecord<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
    spec: JsonSpec,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonSpec {
    pod_name: String,
    #[serde(rename = "firstUID")]
    first_uid: String,
    policy: Policy,
}

impl SlimJson for Record {
    type Json<'a> = JsonRecord<'a>;
    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        let JsonSpec {
            pod_name,
            first_uid,
            policy,
        } = &json.spec;
        if pod_name.is_empty() {
            return Err(DecodeError::Missing("spec.podName"));
        }
        if first_uid.is_empty() {
            return Err(DecodeError::Missing("spec.firstUID"));
        }
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            created: json.metadata.created(),
            pod_name: pod_name.clone(),
            first_uid: first_uid.clone(),
            policy: *policy,
            status: json.status.clone().unwrap_or_default(),
        })
    }
}
