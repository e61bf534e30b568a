//! What is to become of the holds on one object: a pure function, one row per case.
//!
//! | row | hold | what happens |
//! | --- | --- | --- |
//! | 1 | not one of ours | nothing: it is never touched |
//! | 2 | called like ours, unknown to this version | left, and told |
//! | 3 | not meant: another component's, or still selected | left alone |
//! | 4 | on a claim that has `kubernetes.io/pvc-protection` as well | off: Kubernetes goes on protecting it |
//! | 5 | alone on a claim, and nobody has looked at the pods since it was read | look |
//! | 6 | alone on a claim that a pod uses | left, and told |
//! | 7 | alone on a claim that no pod uses | off |
//! | 8 | any other | off |
//! | 9 | of pod-recreation on a pod that it created, and its record has not been read | read the record |
//! | 10 | the same, and the pod could not be written into its record | left, and reported |

use belayer_core::moment::LogicalTime;
use belayer_core::object::Resource;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::{POD_RECREATION_HOLD, PVC_PROTECTION_HOLD, RECREATION_ANNOTATION};
use belayer_pvc_protection::uses::Users;

use crate::evidence::{Evidence, NoUser, Order, StillProtected};
use crate::holds::{Whose, is_claim, is_pod, whose};
use crate::records::Recorded;
use crate::selection::Selected;

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Every hold off.
    Everything(Order),
    /// The holds off that nothing selects any more.
    Unselected(Order),
    /// These holds off: their components were switched off.
    SwitchedOff(Order, Vec<&'static str>),
}

/// An object that carries holds of ours, as it was read.
#[derive(Clone)]
pub struct View<'a> {
    /// Its kind.
    pub kind: &'a Resource,
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// When it was read, or later: a look that began after this knows of its deletion.
    pub seen: LogicalTime,
    /// Whether a hold is still selected. Asked only where that matters.
    pub selected: &'a dyn Fn(&'static str) -> Selected,
    /// Who uses it, if it is a claim and somebody looked.
    pub look: Option<&'a Look>,
    /// Whether its record names it, if pod-recreation created the pod and the record was read.
    pub recorded: Option<&'a Recorded>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("kind", self.kind)
            .field("meta", self.meta)
            .field("look", &self.look)
            .finish_non_exhaustive()
    }
}

/// What came of a look at the pods of a claim's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// They were listed.
    Seen {
        /// Those that use the claim.
        users: Users,
        /// When the look began.
        begun: LogicalTime,
    },
    /// They could not be; why, in words.
    Failed(String),
}

/// A hold that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub hold: String,
    /// Why.
    pub why: Why,
}

/// Why a hold stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is on a claim that these pods use, and nothing else protects it.
    InUse(Users),
    /// Whether a pod uses the claim could not be found out.
    UseUnknown(String),
    /// This version does not know it.
    OfAnotherVersion,
    /// Whether something selects it could not be found out.
    SelectionUnknown(String),
    /// It is on a re-created pod that its record must name first, and does not.
    Unrecorded(String),
}

/// What is to become of the holds on one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Those that go, in one patch.
    pub release: Vec<(&'static str, Evidence)>,
    /// Those that stay though they were meant.
    pub keep: Vec<Kept>,
    /// Whether somebody has to look at the pods before more can be said.
    pub look: Wanted,
    /// Whether the pod's record has to be read before more can be decided.
    pub ask_record: Wanted,
}

/// Whether something is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// It is.
    Yes,
    /// It is not.
    #[default]
    No,
}

/// Decides about one object.
pub fn decide(view: &View<'_>, purpose: &Purpose) -> Verdict {
    let mut verdict = Verdict::default();
    for finalizer in &view.meta.finalizers {
        match whose(finalizer) {
            // Row 1.
            Whose::Foreign => {}
            // Row 2. Which of our versions it belongs to is its own affair unless all has to go.
            Whose::OfAnotherVersion => {
                if let Purpose::Everything(_) = purpose {
                    verdict.keep(finalizer, Why::OfAnotherVersion);
                }
            }
            Whose::Ours(hold) => one(view, purpose, hold, &mut verdict),
        }
    }
    verdict
}

fn one(view: &View<'_>, purpose: &Purpose, hold: &'static str, verdict: &mut Verdict) {
    // Row 3.
    let word = match purpose {
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
            // Row 9.
            None => return verdict.ask_record = Wanted::Yes,
            // Row 10.
            Some(Recorded::Unknown(why)) => {
                return verdict.keep(hold, Why::Unrecorded(why.clone()));
            }
            Some(Recorded::Yes) => {}
        }
    }
    // Row 8.
    if hold != PVC_PROTECTION_HOLD || !is_claim(view.kind) {
        return verdict.release.push((hold, word));
    }
    // Row 4.
    if let Some(proof) = StillProtected::prove(view.meta) {
        return verdict.release.push((hold, Evidence::HandedOver(proof)));
    }
    match view.look {
        // Row 5.
        None => verdict.look = Wanted::Yes,
        Some(Look::Failed(why)) => verdict.keep(hold, Why::UseUnknown(why.clone())),
        // Row 6.
        Some(Look::Seen { users, .. }) if !users.is_empty() => {
            verdict.keep(hold, Why::InUse(users.clone()));
        }
        // Row 7.
        Some(Look::Seen { users, begun }) => match NoUser::prove(users, *begun, view.seen) {
            Some(proof) => verdict.release.push((hold, Evidence::Unused(proof))),
            None => verdict.look = Wanted::Yes,
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

    /// The holds that go.
    pub fn holds(&self) -> Vec<&'static str> {
        self.release.iter().map(|(hold, _)| *hold).collect()
    }
}

#[cfg(test)]
mod tests;
