//! The record in a Lease, read and written as client-go does.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::object::{ObjectKey, Resource};

/// The leader, since when it leads, and when it last renewed. The times come from the leader's
/// clock: they are shown to users and never compared with another clock.
/// [`Action`](crate::election::Action) contains the one to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Holder identity; empty if the lease was released.
    pub holder: String,
    /// Lease duration in seconds.
    pub lease_seconds: i64,
    /// Since when the holder leads.
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed.
    pub renewed: Option<Timestamp>,
    /// How often the holder has changed.
    pub transitions: i64,
}

/// The version of a Lease that a write expects. [`Action`](crate::election::Action) contains the
/// one that a [`Candidate`](crate::election::Candidate) expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

/// A Lease as read from the server. The input of
/// [`Candidate::seen`](crate::election::Candidate::seen).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its version.
    pub version: Version,
    /// Its record.
    pub record: Record,
}

#[derive(Deserialize)]
struct Written {
    metadata: WrittenMetadata,
    #[serde(default)]
    spec: Option<WrittenSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    /// Any JSON: an invalid time must not prevent an election.
    acquire_time: Option<Value>,
    renew_time: Option<Value>,
    lease_transitions: Option<i64>,
}

impl Lease {
    /// Parses a Lease, including one that another program has written.
    ///
    /// # Errors
    ///
    /// If it has no UID or no resourceVersion.
    pub fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let written: Written = serde_json::from_slice(body)?;
        let spec = written.spec.unwrap_or_default();
        let time = |value: Option<Value>| value.and_then(|value| value.as_str()?.parse().ok());
        Ok(Self {
            version: Version {
                uid: written.metadata.uid,
                resource_version: written.metadata.resource_version,
            },
            record: Record {
                holder: spec.holder_identity.unwrap_or_default(),
                lease_seconds: spec.lease_duration_seconds.unwrap_or_default(),
                acquired: time(spec.acquire_time),
                renewed: time(spec.renew_time),
                transitions: spec.lease_transitions.unwrap_or_default().max(0),
            },
        })
    }
}

impl Record {
    /// The lease duration of the record; `otherwise` if the record has none.
    pub fn lease_duration(&self, otherwise: Duration) -> Duration {
        match u64::try_from(self.lease_seconds) {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => otherwise,
        }
    }

    fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": self.acquired.map(micros),
            "renewTime": self.renewed.map(micros),
            "leaseTransitions": self.transitions,
        })
    }

    /// The body of the POST that creates a Lease with this record.
    pub fn create_body(&self, lease: &ObjectKey) -> String {
        let kind = Resource::leases();
        json!({
            "apiVersion": kind.api_version(),
            "kind": &*kind.kind,
            "metadata": { "namespace": lease.namespace(), "name": lease.name() },
            "spec": self.spec(),
        })
        .to_string()
    }

    /// The merge patch that writes this record into the Lease; it fails with a conflict if the
    /// Lease has changed since `over`. Other fields of the Lease are left as they are.
    pub fn patch_body(&self, over: &Version) -> String {
        json!({
            "metadata": { "uid": over.uid, "resourceVersion": over.resource_version },
            "spec": self.spec(),
        })
        .to_string()
    }
}

/// The time in Kubernetes' MicroTime format.
fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
