//! What a Lease says, read and written as client-go does.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::object::{ObjectKey, Resource};

/// Who leads, since when, and when that was last said. The times come from the clock of whoever
/// wrote them: they are shown, never compared with a clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Empty when it was given back.
    pub holder: String,
    /// How long others are to wait, in seconds.
    pub lease_seconds: i64,
    /// Since when the holder leads.
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed.
    pub renewed: Option<Timestamp>,
    /// How often the lease has changed hands.
    pub transitions: i64,
}

/// Which state of which Lease a write is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

/// A Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which state of it.
    pub version: Version,
    /// What it says.
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
    /// Text: a time that cannot be read must not keep anybody from leading.
    acquire_time: Option<Value>,
    renew_time: Option<Value>,
    lease_transitions: Option<i64>,
}

impl Lease {
    /// Reads a Lease, also one that somebody else's hand has written.
    ///
    /// # Errors
    ///
    /// When it has no identity.
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
    /// How long the record says that others are to wait; `otherwise` where it says nothing.
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

    /// The body that creates a Lease that says this.
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

    /// The merge patch that makes this very state of a Lease say this; any change in between makes
    /// it a conflict. Whatever else the Lease carries stays as it is.
    pub fn patch_body(&self, over: &Version) -> String {
        json!({
            "metadata": { "uid": over.uid, "resourceVersion": over.resource_version },
            "spec": self.spec(),
        })
        .to_string()
    }
}

/// Kubernetes' MicroTime.
fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
