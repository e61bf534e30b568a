//! What a run came to, as data: documented and stable, for `-o json`.

use std::collections::{BTreeMap, HashSet};

use serde::{Serialize, Serializer};

use belayer_core::object::Uid;

use crate::decide::Why;
use crate::passes::Outcome;
pub use crate::site::GateState;

/// `apiVersion` of everything here.
pub const API_VERSION: &str = "drain.belayer.dev/v1alpha1";

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `DrainReport`.
    pub kind: &'static str,
    /// What was taken off, or would be.
    #[serde(flatten)]
    pub taken: Taken,
    /// In one word.
    pub outcome: Outcome,
    /// The process's exit code.
    pub exit_code: u8,
    /// Whether time ran out before two passes in a row were clean.
    pub timed_out: bool,
    /// What became of the gate.
    pub gate: GateState,
    /// The namespaces in which only new holds were found, because someone there keeps adding them, with the
    /// number of objects. The namespace is empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "NewHolds::is_empty")]
    pub new_holds: NewHolds,
    /// The namespaces whose holds do not affect the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_namespaces: Vec<String>,
    /// Holds that stay.
    pub left: Vec<Left>,
    /// What the server refused.
    pub refused: Vec<Refused>,
    /// What was not done for a reason that may pass.
    pub failed: Vec<Refused>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
    /// APIs that do not answer at all.
    pub dead_apis: Vec<Unseen>,
    /// Claims that are being deleted and wait for Kubernetes' own controller alone.
    pub handed_over: u64,
    /// What else a person should know.
    pub notes: Vec<String>,
    /// How many times everything was looked at.
    pub passes: u32,
    /// Objects looked at in the last pass.
    pub objects: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Holds that someone keeps adding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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

/// What was taken off. In a dry run nothing was, and its keys say so: nobody takes a plan for a deed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Whether nothing was sent that changes the cluster.
    pub dry_run: bool,
    /// Policies that were removed, as `mutatingadmissionpolicies.../NAME`.
    pub policies: Vec<String>,
    /// How many objects were let go. One that was held again meanwhile is one object.
    pub objects: u64,
    /// Their UIDs.
    pub(crate) uids: HashSet<Uid>,
    /// How many holds were taken off, by their name and the evidence.
    pub holds: Holds,
}

/// Holds by their name and the evidence.
pub type Holds = BTreeMap<String, BTreeMap<&'static str, u64>>;

impl Serialize for Taken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Done<'a> {
            dry_run: bool,
            policies_removed: &'a [String],
            objects_released: u64,
            released: &'a Holds,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Planned<'a> {
            dry_run: bool,
            policies_to_remove: &'a [String],
            objects_to_release: u64,
            to_release: &'a Holds,
        }
        let Self {
            dry_run,
            policies,
            objects,
            holds,
            uids: _,
        } = self;
        if *dry_run {
            Planned {
                dry_run: *dry_run,
                policies_to_remove: policies,
                objects_to_release: *objects,
                to_release: holds,
            }
            .serialize(serializer)
        } else {
            Done {
                dry_run: *dry_run,
                policies_removed: policies,
                objects_released: *objects,
                released: holds,
            }
            .serialize(serializer)
        }
    }
}

/// A hold that stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// One word for it.
    pub reason: Reason,
    /// `persistentvolumeclaims`, `workflows.argoproj.io`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The hold.
    pub hold: String,
    /// In words.
    pub why: String,
}

/// Why a hold stays, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A claim in use that only we hold.
    InUse,
    /// A claim of which that could not be found out.
    UseUnknown,
    /// A hold of another version of Belayer.
    OfAnotherVersion,
    /// A hold of a component that cannot say here what it selects.
    SelectionUnknown,
    /// A pod that pod-recreation created and that could not be written into its record.
    Unrecorded,
    /// No hold: a pod that exists only in its `PodRecreation` and that no Belayer creates.
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

/// In words, for people.
pub(crate) fn why_in_words(why: &Why) -> String {
    match why {
        Why::InUse(users) => format!("in use by {users}"),
        Why::UseUnknown(why) | Why::SelectionUnknown(why) | Why::Unrecorded(why) => why.clone(),
        Why::OfAnotherVersion => "this version of belayer does not know this hold".to_owned(),
    }
}

/// Something that was not done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// `shop/pods/web-0`, or a step.
    pub what: String,
    /// The server's words.
    pub why: String,
    /// HTTP status; 0 if there was none.
    pub code: u16,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unseen {
    /// `secrets`, or an object.
    pub what: String,
    /// In words.
    pub why: String,
}
