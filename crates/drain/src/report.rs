//! The result of a run as data: documented and stable, for `-o json`. The report of a drain, which
//! ends with an [outcome](crate::passes), contains it.

use std::collections::{BTreeMap, HashSet};

use serde::{Serialize, Serializer};

use belayer_core::object::Uid;

use crate::decide::Why;
use crate::passes::Outcome;
pub use crate::site::GateState;

/// `apiVersion` of the report.
pub const API_VERSION: &str = "drain.belayer.dev/v1alpha1";

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `DrainReport`.
    pub kind: &'static str,
    /// What was removed, or would be in a dry run.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "Shown<'static>"))]
    pub taken: Taken,
    /// Result as one word.
    pub outcome: Outcome,
    /// The process's exit code.
    pub exit_code: u8,
    /// Whether the run ended for lack of progress.
    pub timed_out: bool,
    /// State of the gate.
    pub gate: GateState,
    /// Namespaces in which only new holds were found, because a client keeps adding them, with the number of
    /// objects. The namespace is empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "NewHolds::is_empty")]
    pub new_holds: NewHolds,
    /// Namespaces whose holds do not affect the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_namespaces: Vec<String>,
    /// Holds that stay.
    pub left: Vec<Left>,
    /// Requests that the server denied.
    pub refused: Vec<Refused>,
    /// Releases that failed for a reason that may pass.
    pub failed: Vec<Refused>,
    /// Kinds that could not be listed, and objects that could not be decoded.
    pub unseen: Vec<Unseen>,
    /// API groups that do not respond.
    pub dead_apis: Vec<Unseen>,
    /// PVCs that are being deleted and wait only for Kubernetes' own controller.
    pub handed_over: u64,
    /// PVCs that have `kubernetes.io/pvc-protection`, which drain never removes.
    pub kubernetes_finalizers: u64,
    /// Further information.
    pub notes: Vec<String>,
    /// Whether only the kinds that the configuration holds were listed.
    #[serde(skip)]
    pub configured_kinds: bool,
    /// Number of passes.
    pub passes: u32,
    /// Objects in the last pass.
    pub objects: u64,
    /// Duration of the run in seconds.
    pub seconds: f64,
}

impl Report {
    /// Whether holds in this namespace do not affect the outcome.
    pub(crate) fn excepts(&self, namespace: &str) -> bool {
        self.except_namespaces.iter().any(|name| name == namespace)
    }
}

/// Holds that a client keeps adding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewHolds {
    /// The number of the pass, from 1, since which only new holds were found.
    pub since_pass: u32,
    /// Objects by namespace.
    pub namespaces: BTreeMap<String, u64>,
}

impl NewHolds {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }
}

/// What was removed. In a dry run nothing was, and the keys have other names, so that a program
/// cannot take a plan for a result. The report of a drain, which ends with an
/// [outcome](crate::passes), contains it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Deleted policies, as `mutatingadmissionpolicies.../NAME`.
    pub policies: Vec<String>,
    /// Number of released objects. One that was released twice counts once.
    pub objects: u64,
    /// Their UIDs.
    pub(crate) uids: HashSet<Uid>,
    /// Number of removed holds, by name and evidence.
    pub holds: Holds,
}

/// Number of holds, by name and evidence. The report of a drain, which ends with an
/// [outcome](crate::passes), contains it.
pub type Holds = BTreeMap<String, BTreeMap<&'static str, u64>>;

/// [`Taken`] as it is in JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Shown<'a> {
    /// What was removed.
    Done {
        dry_run: bool,
        policies_removed: &'a [String],
        objects_released: u64,
        released: &'a Holds,
    },
    /// What would be removed: a dry run.
    Planned {
        dry_run: bool,
        policies_to_remove: &'a [String],
        objects_to_release: u64,
        to_release: &'a Holds,
    },
}

impl Serialize for Taken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            dry_run,
            ref policies,
            objects,
            ref holds,
            uids: _,
        } = *self;
        let shown = if dry_run {
            Shown::Planned {
                dry_run,
                policies_to_remove: policies,
                objects_to_release: objects,
                to_release: holds,
            }
        } else {
            Shown::Done {
                dry_run,
                policies_removed: policies,
                objects_released: objects,
                released: holds,
            }
        };
        shown.serialize(serializer)
    }
}

/// A hold that stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Reason as one word.
    pub reason: Reason,
    /// `persistentvolumeclaims`, `workflows.argoproj.io`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The hold.
    pub hold: String,
    /// Reason as text.
    pub why: String,
}

/// Why a hold stays, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A PVC in use that only Belayer protects.
    InUse,
    /// A PVC whose users could not be read.
    UseUnknown,
    /// A hold of another version of Belayer.
    OfAnotherVersion,
    /// A hold of a component that is not in this build or not configured, so its selection is unknown.
    SelectionUnknown,
    /// A pod that pod-recreation created and that could not be written into its record.
    Unrecorded,
    /// Not a hold: a pod that exists only in its `PodRecreation` and that no Belayer creates.
    InItsRecord,
}

impl Reason {
    pub(crate) fn of(why: &Why) -> Self {
        match why {
            Why::InUse(_) => Self::InUse,
            Why::UseUnknown(_) => Self::UseUnknown,
            Why::OfAnotherVersion => Self::OfAnotherVersion,
            Why::SelectionUnknown(_) => Self::SelectionUnknown,
            Why::Unrecorded(_) => Self::Unrecorded,
        }
    }
}

/// The reason as text.
pub(crate) fn why_text(why: &Why) -> String {
    match why {
        Why::InUse(users) => format!("in use by {users}"),
        Why::UseUnknown(why) | Why::SelectionUnknown(why) | Why::Unrecorded(why) => why.clone(),
        Why::OfAnotherVersion => "unknown to this version of belayer".to_owned(),
    }
}

/// A request that failed or was denied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// `shop/pods/web-0`, or a step.
    pub what: String,
    /// Message of the server.
    pub why: String,
    /// HTTP status; 0 without one.
    pub code: u16,
}

/// A kind or an object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Unseen {
    /// `secrets`, or an object.
    pub what: String,
    /// Reason.
    pub why: String,
    /// Whether the API server does not accept the credentials.
    #[serde(skip)]
    pub unauthenticated: bool,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::generate::SchemaSettings;

    use super::*;

    /// `UPDATE_SNAPSHOTS=1` writes it again.
    #[test]
    fn the_json_schema_matches_the_types() {
        let generator = SchemaSettings::draft2020_12().for_serialize();
        let schema = generator.into_generator().into_root_schema_for::<Report>();
        let mut schema = schema.to_value();
        schema["$id"] = API_VERSION.into();
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/drain.json");
        let now = std::fs::read_to_string(&file).unwrap_or_default();
        if now != schema && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, schema).unwrap();
            return;
        }
        assert!(now == schema, "{} is outdated", file.display());
    }
}
