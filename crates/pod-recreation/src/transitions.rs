//! The declared transitions of a record.
//!
//! A test compares them with the results of [`decide`](crate::decide::decide) for many thousand snapshots: both have
//! the same transitions. Another test draws them into the README. Debug builds check that every written status is a
//! declared transition.
//!
//! ```
//! use belayer_pod_recreation::transitions::DECIDED;
//!
//! assert!(!DECIDED.is_empty());
//! ```

use belayer_holds::decision::Rule;

use crate::api::{Phase, Status};
use crate::row;
use Phase::{Creating, Deleting, Ended, Exhausted, Recreated, Rejected, Started, Waiting};
use State::{In, New, NoRecord};

/// The state of a re-creation. The [module's example](self) has all that are declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is no record.
    NoRecord,
    /// The record has no status yet.
    New,
    /// The phase of the record.
    In(Phase),
}

/// Old state, rule, new state. They are the same state if the step does not change the record. The
/// [module's example](self) has all that are declared.
pub type Transition = (State, &'static Rule, State);

/// The transitions of decisions.
pub const DECIDED: &[Transition] = &[
    (NoRecord, row::REJECTED, New),
    (NoRecord, row::MARK, NoRecord),
    (New, row::BEGIN, In(Rejected)),
    (New, row::CANCELLED, In(Ended)),
    (New, row::REPORTED, In(Ended)),
    (New, row::EXPIRED, NoRecord),
    (In(Rejected), row::WIPING, In(Rejected)),
    (In(Rejected), row::INTEND, In(Deleting)),
    (In(Rejected), row::EXHAUSTED, In(Exhausted)),
    (In(Rejected), row::WIPING, In(Ended)),
    (In(Rejected), row::DENIED, In(Ended)),
    (In(Rejected), row::CANCELLED, In(Ended)),
    (In(Rejected), row::REPORTED, In(Ended)),
    (In(Deleting), row::WIPING, In(Deleting)),
    (In(Deleting), row::DELETE, In(Deleting)),
    (In(Deleting), row::FREE, In(Waiting)),
    (In(Deleting), row::CANCELLED, In(Ended)),
    (In(Deleting), row::REPORTED, In(Ended)),
    (In(Waiting), row::WIPING, In(Waiting)),
    (In(Waiting), row::OLD_ATTEMPT, In(Waiting)),
    (In(Waiting), row::RESERVE, In(Creating)),
    (In(Waiting), row::RECREATED, In(Recreated)),
    (In(Waiting), row::EXHAUSTED, In(Exhausted)),
    (In(Waiting), row::CANCELLED, In(Ended)),
    (In(Creating), row::WIPING, In(Creating)),
    (In(Creating), row::CREATE, In(Creating)),
    (In(Creating), row::OLD_ATTEMPT, In(Creating)),
    (In(Creating), row::RECREATED, In(Recreated)),
    (In(Creating), row::DENIED, In(Ended)),
    (In(Creating), row::HOLD_LOST, In(Ended)),
    (In(Creating), row::CANCELLED, In(Ended)),
    (In(Recreated), row::WIPING, In(Recreated)),
    (In(Recreated), row::REJECTED_AGAIN, In(Rejected)),
    (In(Recreated), row::POD_STARTED, In(Started)),
    (In(Recreated), row::CANCELLED, In(Ended)),
    (In(Recreated), row::REPORTED, In(Ended)),
    (In(Started), row::WIPING, In(Started)),
    (In(Started), row::MARK, In(Started)),
    (In(Started), row::IN_VAIN, In(Started)),
    (In(Started), row::EXPIRED, NoRecord),
    (In(Exhausted), row::WIPING, In(Exhausted)),
    (In(Exhausted), row::MARK, In(Exhausted)),
    (In(Exhausted), row::IN_VAIN, In(Exhausted)),
    (In(Exhausted), row::EXPIRED, NoRecord),
    (In(Ended), row::WIPING, In(Ended)),
    (In(Ended), row::MARK, In(Ended)),
    (In(Ended), row::IN_VAIN, In(Ended)),
    (In(Ended), row::EXPIRED, NoRecord),
];

/// Further transitions of steps, by the result of the live read before the write: the API server denies the pod, its
/// owner is gone, or another pod has its name.
pub const FOUND: &[Transition] = &[
    (In(Rejected), row::INTEND, In(Rejected)),
    (In(Rejected), row::INTEND, In(Ended)),
    (In(Deleting), row::FREE, In(Ended)),
    (In(Waiting), row::RESERVE, In(Ended)),
    (In(Creating), row::CREATE, In(Ended)),
];

impl State {
    /// The state of a record with this status.
    pub fn of(status: &Status) -> Self {
        status.phase.map_or(New, In)
    }
}

/// Whether a rule leads from one state to the other. The [module's example](self) has all that are
/// declared.
pub fn is_declared(from: State, to: State) -> bool {
    let mut all = DECIDED.iter().chain(FOUND);
    all.any(|(before, _, after)| (*before, *after) == (from, to))
}

#[cfg(test)]
mod tests;
