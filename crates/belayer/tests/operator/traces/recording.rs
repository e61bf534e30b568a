//! Reads a recorded workflow.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde_json::Value;

/// Whether Belayer ran while the workflow was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Yes (9e06281): the behaviour of Argo with holds.
    Held,
    /// No: the behaviour of Argo alone.
    Free,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Free => "free",
        })
    }
}

/// One watch event of a pod or a workflow.
#[derive(Debug, Clone)]
pub(super) struct Version {
    /// Time since the workflow was created.
    pub(super) at: Duration,
    pub(super) gone: bool,
    pub(super) object: Value,
}

impl Version {
    pub(super) fn is_pod(&self) -> bool {
        self.object["kind"] == "Pod"
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata("uid").as_str().unwrap()
    }

    pub(super) fn name(&self) -> &str {
        self.metadata("name").as_str().unwrap()
    }

    pub(super) fn metadata(&self, field: &str) -> &Value {
        &self.object["metadata"][field]
    }

    /// The grace period of its deletion in seconds; `None` if it is not being deleted.
    pub(super) fn grace(&self) -> Option<i64> {
        let deleting = !self.metadata("deletionTimestamp").is_null();
        deleting.then(|| {
            let grace = self.metadata("deletionGracePeriodSeconds").as_i64();
            grace.unwrap_or(0)
        })
    }
}

/// All recorded events of one workflow and its pods, in order.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) versions: Vec<Version>,
}

pub(super) fn folder(side: Side) -> PathBuf {
    let root = env!("CARGO_MANIFEST_DIR");
    PathBuf::from(format!("{root}/../../e2e/fixtures/argo/{side}"))
}

impl Recording {
    pub(super) fn read(trace: &str, side: Side) -> Self {
        let file = folder(side).join(format!("{trace}.jsonl.gz"));
        let packed = std::fs::read(&file).unwrap();
        let mut text = String::new();
        GzDecoder::new(&*packed).read_to_string(&mut text).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let versions = events.map(|mut event: Value| Version {
            at: Duration::from_millis(event["ms"].as_u64().unwrap()),
            gone: event["type"] == "DELETED",
            object: event["object"].take(),
        });
        // Belayer reads no other kind.
        let kinds = ["Pod", "Workflow"].map(Value::from);
        let versions = versions.filter(|version| kinds.contains(&version.object["kind"]));
        Self {
            versions: versions.collect(),
        }
    }

    pub(super) fn workflow(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(|version| !version.is_pod())
    }

    /// When the workflow was created, by the server's clock.
    pub(super) fn epoch(&self) -> Timestamp {
        let created = self
            .workflow()
            .next()
            .unwrap()
            .metadata("creationTimestamp");
        created.as_str().unwrap().parse().unwrap()
    }

    pub(super) fn namespace(&self) -> &str {
        self.versions[0].metadata("namespace").as_str().unwrap()
    }

    /// The pods' UIDs in the order of their creation, by the name of their step. A step whose pod was created again has
    /// several.
    pub(super) fn steps(&self) -> BTreeMap<String, Vec<String>> {
        let mut steps = BTreeMap::<String, Vec<String>>::new();
        for pod in self.versions.iter().filter(|version| version.is_pod()) {
            let pods = steps.entry(self.step(pod)).or_default();
            if !pods.iter().any(|known| known == pod.uid()) {
                pods.push(pod.uid().to_owned());
            }
        }
        steps
    }

    fn step(&self, pod: &Version) -> String {
        let Some(node) = node_id(pod) else {
            return "agent".to_owned();
        };
        let name = |workflow: &Version| {
            let name = &workflow.object["status"]["nodes"][node]["displayName"];
            name.as_str().map(str::to_owned)
        };
        self.workflow().find_map(name).unwrap()
    }

    /// The names of the nodes that its pods ran on.
    pub(super) fn machines(&self) -> Vec<&str> {
        let machine =
            |version: &'_ Version| version.object["spec"]["nodeName"].as_str().map(str::len);
        let bound = self
            .versions
            .iter()
            .filter(|version| machine(version).is_some());
        let mut machines: Vec<&str> = bound
            .filter_map(|version| version.object["spec"]["nodeName"].as_str())
            .collect();
        machines.sort_unstable();
        machines.dedup();
        machines
    }
}

/// The key of the pod's node in the workflow's status.
pub(super) fn node_id(pod: &Version) -> Option<&str> {
    pod.metadata("annotations")["workflows.argoproj.io/node-id"].as_str()
}
