//! Decides about the holds of one object: a pure function, one rule per case.
//!
//! | rule | hold | decision |
//! | --- | --- | --- |
//! | 1 | another controller's finalizer | nothing: it is never touched |
//! | 2 | has Belayer's prefix, unknown to this version | kept and reported |
//! | 3 | outside of the purpose: of another controller, or still selected | nothing |
//! | 4 | on a PVC that has `kubernetes.io/pvc-protection` as well | release: Kubernetes still protects the PVC |
//! | 5 | only hold of a PVC, and the pods were not listed since the PVC was read | list the pods |
//! | 6 | only hold of a PVC that a pod uses | kept and reported |
//! | 7 | only hold of a PVC that no pod uses | release |
//! | 8 | any other | release |
//! | 9 | of pod-recreation on a pod that it created, and its record has not been read | read the record |
//! | 10 | the same, and the pod could not be written into its record | kept and reported |
//!
//! The [crate's example](crate) decides about a PVC.

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Resource;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::{POD_RECREATION_HOLD, PVC_PROTECTION_HOLD, RECREATION_ANNOTATION};
use belayer_pvc_protection::uses::Users;

use crate::evidence::{Evidence, NoUser, Order, StillProtected};
use crate::holds::{Finalizer, classify, is_pod, is_pvc};
use crate::records::Recorded;
use crate::selection::Selected;

/// Which holds a run removes. The [crate's example](crate) decides about a PVC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Every hold.
    Everything(Order),
    /// The holds of objects that are not selected any more.
    Unselected(Order),
    /// These holds: their components are switched off.
    SwitchedOff(Order, Vec<&'static str>),
}

/// An object with holds, as it was read. The [crate's example](crate) decides about a PVC.
#[derive(Clone)]
pub struct View<'a> {
    /// Its kind.
    pub kind: &'a Resource,
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// When it was read, or later: a pod list that began after this includes its users.
    pub seen: LogicalTime,
    /// Whether a hold is still selected. Called only if the purpose depends on it.
    pub selected: &'a dyn Fn(&'static str) -> Selected,
    /// The users of the PVC, if its pods were listed.
    pub usage: Option<&'a Usage>,
    /// Whether the pod's record names it, if pod-recreation created the pod and its record was read.
    pub recorded: Option<&'a Recorded>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("kind", self.kind)
            .field("meta", self.meta)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

/// Result of listing the pods of a PVC's namespace. The [crate's example](crate) decides about a
/// PVC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// The pods were listed.
    Listed {
        /// Pods that use the PVC.
        users: Users,
        /// When the list began.
        begun: LogicalTime,
    },
    /// The list failed; the message of the error.
    Unknown(String),
}

/// A hold that stays. The [crate's example](crate) decides about a PVC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Name of the finalizer.
    pub hold: String,
    /// Reason.
    pub why: Why,
}

/// Why a hold stays. The [crate's example](crate) decides about a PVC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Only this hold protects the PVC, and these pods use it.
    InUse(Users),
    /// Listing the users of the PVC failed.
    UseUnknown(String),
    /// This version of Belayer does not have this hold.
    OfAnotherVersion,
    /// Whether the object is still selected could not be determined.
    SelectionUnknown(String),
    /// The record of the re-created pod does not name it yet, and writing it failed.
    Unrecorded(String),
}

/// The decision about the holds of one object. The [crate's example](crate) decides about a PVC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Holds to remove in one patch, with their evidence.
    pub release: Vec<(&'static str, Evidence)>,
    /// Holds of the purpose that stay.
    pub keep: Vec<Kept>,
    /// Whether the pods must be listed before a decision.
    pub list_pods: bool,
    /// Whether the pod's record must be read before a decision.
    pub read_record: bool,
}

/// Decides about one object. The [crate's example](crate) decides about a PVC.
pub fn decide(view: &View<'_>, purpose: &Purpose) -> Verdict {
    let mut verdict = Verdict::default();
    for finalizer in &view.meta.finalizers {
        match classify(finalizer) {
            // Rule 1.
            Finalizer::Others => {}
            // Rule 2. Reported only if every hold is to be removed.
            Finalizer::OfAnotherVersion => {
                if let Purpose::Everything(_) = purpose {
                    verdict.keep(finalizer, Why::OfAnotherVersion);
                }
            }
            Finalizer::Belayer(hold) => one(view, purpose, hold, &mut verdict),
        }
    }
    verdict
}

fn one(view: &View<'_>, purpose: &Purpose, hold: &'static str, verdict: &mut Verdict) {
    // Rule 3.
    let evidence = match purpose {
        Purpose::Everything(order) => Evidence::Drained(*order),
        Purpose::SwitchedOff(order, holds) if holds.contains(&hold) => {
            Evidence::SwitchedOff(*order)
        }
        Purpose::SwitchedOff(..) => return,
        Purpose::Unselected(order) => match (view.selected)(hold) {
            Selected::Yes => return,
            Selected::No => Evidence::Unselected(*order),
            Selected::Unknown(why) => {
                return verdict.keep(hold, Why::SelectionUnknown(why));
            }
        },
    };
    if hold == POD_RECREATION_HOLD
        && is_pod(view.kind)
        && view.meta.annotations.get(RECREATION_ANNOTATION).is_some()
    {
        match view.recorded {
            // Rule 9.
            None => return verdict.read_record = true,
            // Rule 10.
            Some(Recorded::Unknown(why)) => {
                return verdict.keep(hold, Why::Unrecorded(why.clone()));
            }
            Some(Recorded::Yes) => {}
        }
    }
    // Rule 8.
    if hold != PVC_PROTECTION_HOLD || !is_pvc(view.kind) {
        return verdict.release.push((hold, evidence));
    }
    // Rule 4.
    if let Some(proof) = StillProtected::prove(view.meta) {
        return verdict.release.push((hold, Evidence::HandedOver(proof)));
    }
    match view.usage {
        // Rule 5.
        None => verdict.list_pods = true,
        Some(Usage::Unknown(why)) => verdict.keep(hold, Why::UseUnknown(why.clone())),
        // Rule 6.
        Some(Usage::Listed { users, .. }) if !users.is_empty() => {
            verdict.keep(hold, Why::InUse(users.clone()));
        }
        // Rule 7.
        Some(Usage::Listed { users, begun }) => match NoUser::prove(users, *begun, view.seen) {
            Some(proof) => verdict.release.push((hold, Evidence::Unused(proof))),
            None => verdict.list_pods = true,
        },
    }
}

impl Verdict {
    fn keep(&mut self, hold: &str, why: Why) {
        self.keep.push(Kept {
            hold: hold.to_owned(),
            why,
        });
    }

    /// The holds to remove.
    pub fn holds(&self) -> Vec<&'static str> {
        self.release.iter().map(|(hold, _)| *hold).collect()
    }
}

#[cfg(test)]
mod tests;
