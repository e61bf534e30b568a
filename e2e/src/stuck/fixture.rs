//! The file format of a fixture.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// A cause: objects to create, objects to delete, and commands to run.
///
/// `$ns` is the scenario's namespace, `$now` the current time, `$uid(Kind/name)` the UID of an
/// object created before.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fixture {
    /// In order.
    pub(crate) steps: Vec<FixtureStep>,
    /// In order, after all steps.
    pub(crate) runs: Vec<Run>,
}

/// One step of creating stuck objects.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FixtureStep {
    /// An object to create.
    #[serde(default)]
    pub(crate) create: Option<Value>,
    /// The field manager that creates it.
    #[serde(default)]
    pub(crate) by: Option<String>,
    /// A status to write, as part of an object.
    #[serde(default)]
    pub(crate) status: Option<Value>,
    /// A merge patch, as part of an object.
    #[serde(default)]
    pub(crate) patch: Option<Value>,
    /// An object to delete.
    #[serde(default)]
    pub(crate) delete: Option<Value>,
    /// Its propagation.
    #[serde(default)]
    pub(crate) propagation: Option<String>,
    /// Its grace, in seconds.
    #[serde(default)]
    pub(crate) grace: Option<u32>,
}

/// One run of the binary.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Run {
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Its exit code.
    pub(crate) exit: i32,
}

/// A fixture's name, text and expected output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    yaml: &'static str,
    pub(crate) expected: &'static str,
}

impl File {
    /// Parses it, with the scenario's values substituted.
    pub(crate) fn read(&self, namespace: &str) -> Result<Fixture> {
        let now = jiff::Timestamp::now();
        let text = self
            .yaml
            .replace("$ns", namespace)
            .replace("$now", &format!("{now:.6}"));
        serde_saphyr::from_str(&text).with_context(|| format!("read the fixture {}", self.name))
    }
}

macro_rules! fixtures {
    ($($name:literal: $shows:literal,)*) => {
        /// All fixtures.
        pub(crate) const FIXTURES: &[File] = &[$(File {
            name: concat!("stuck-", $name),
            shows: $shows,
            yaml: include_str!(concat!("../../fixtures/stuck/", $name, ".yaml")),
            expected: include_str!(concat!("../../fixtures/stuck/", $name, ".txt")),
        }),*];
    };
}

fixtures! {
    "namespace-controller-gone": "a namespace with custom resources whose controller is not running",
    "dead-api": "an aggregated API that is down, and a namespace that waits for it",
    "foreground": "foreground deletion that a dependent blocks",
    "foreground-cycle": "foreground deletion of an object that owns itself",
    "claim-in-use": "a PVC that a pod uses",
    "volume-attached": "a VolumeAttachment whose attacher is scaled to zero",
    "volume-other-driver": "a VolumeAttachment where only the attacher of another driver exists",
    "node-gone": "a pod on a missing node",
    "crd-instances": "a CRD with instances",
    "argo-controller-down": "Argo's finalizer with its controller scaled to zero",
    "artifact-gc": "artifact GC whose controller is alive",
    "two-causes": "two finalizers on one object",
    "unknown-finalizer": "an unknown finalizer",
    "webhook": "a webhook without endpoints that refuses the removal",
    "within-grace": "a deletion within its grace period is not stuck",
    "our-rows": "pods for each rule of pod-finalizer",
    "our-claim": "PVCs with Belayer's hold: one in use, one not",
    "our-lease": "a PVC in use, and a Belayer of which only the Lease exists",
    "our-down": "a PVC in use, and a Belayer that is down",
    "our-workflow": "workflows with Belayer's hold: one whose pods have holds, one without",
    "our-status": "what Belayer holds in a namespace, and that it does not run",
    "our-hold": "a pod that Belayer's hold keeps",
    "our-restored": "objects restored with Belayer's finalizers where no Belayer is installed",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixture_can_be_read() {
        for file in FIXTURES {
            let fixture = file.read("here").unwrap();
            assert!(
                !fixture.steps.is_empty() && !fixture.runs.is_empty(),
                "{}",
                file.name
            );
        }
    }

    #[test]
    fn there_are_the_fifteen_causes() {
        // The permission that is missing is a scenario of its own: it is a matter of permissions.
        assert!(FIXTURES.len() >= 14);
    }
}
