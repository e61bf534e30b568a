//! Every transition of a re-creation, as a declaration that [`decide`](crate::decide::decide) is checked against.
//!
//! A test compares the declaration with what `decide` does about many thousand snapshots: neither may have a
//! transition that the other has not. Another test draws it into the README. In debug builds no status is written
//! that is not declared.

use belayer_holds::decision::Row;

use crate::api::{Phase, Status};
use crate::row;
use Phase::{Creating, Deleting, Ended, Exhausted, Recreated, Rejected, Started, Waiting};
use State::{In, New, NoRecord};

/// Where a re-creation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is no record: not yet, or not any more.
    NoRecord,
    /// The record says nothing yet.
    New,
    /// What the record says.
    In(Phase),
}

/// From where, by which rule, and to where. A step that leaves the record as it is leads to where it came from.
pub type Transition = (State, Row, State);

/// What follows from a decision.
pub const DECIDED: &[Transition] = &[
    (NoRecord, row::REJECTED, New),
    (NoRecord, row::MARK, NoRecord),
    (New, row::BEGIN, In(Rejected)),
    (New, row::CANCELLED, In(Ended)),
    (New, row::REPORTED, In(Ended)),
    (In(Rejected), row::WIPING, In(Rejected)),
    (In(Rejected), row::INTEND, In(Deleting)),
    (In(Rejected), row::EXHAUSTED, In(Exhausted)),
    (In(Rejected), row::WIPING, In(Ended)),
    (In(Rejected), row::DENIED, In(Ended)),
    (In(Rejected), row::CANCELLED, In(Ended)),
    (In(Rejected), row::REPORTED, In(Ended)),
    (In(Deleting), row::DELETE, In(Deleting)),
    (In(Deleting), row::FREE, In(Waiting)),
    (In(Deleting), row::CANCELLED, In(Ended)),
    (In(Waiting), row::OLD_ATTEMPT, In(Waiting)),
    (In(Waiting), row::RESERVE, In(Creating)),
    (In(Waiting), row::RECREATED, In(Recreated)),
    (In(Waiting), row::CANCELLED, In(Ended)),
    (In(Creating), row::CREATE, In(Creating)),
    (In(Creating), row::OLD_ATTEMPT, In(Creating)),
    (In(Creating), row::RECREATED, In(Recreated)),
    (In(Creating), row::DENIED, In(Ended)),
    (In(Creating), row::HOLD_LOST, In(Ended)),
    (In(Creating), row::CANCELLED, In(Ended)),
    (In(Recreated), row::REJECTED_AGAIN, In(Rejected)),
    (In(Recreated), row::POD_STARTED, In(Started)),
    (In(Recreated), row::CANCELLED, In(Ended)),
    (In(Recreated), row::REPORTED, In(Ended)),
    (In(Started), row::MARK, In(Started)),
    (In(Started), row::IN_VAIN, In(Started)),
    (In(Started), row::EXPIRED, NoRecord),
    (In(Exhausted), row::MARK, In(Exhausted)),
    (In(Exhausted), row::IN_VAIN, In(Exhausted)),
    (In(Exhausted), row::EXPIRED, NoRecord),
    (In(Ended), row::MARK, In(Ended)),
    (In(Ended), row::IN_VAIN, In(Ended)),
    (In(Ended), row::EXPIRED, NoRecord),
];

/// What a live read leads to that a step makes before it writes: the API server refuses the pod, its owner is gone,
/// another pod has its name.
pub const FOUND: &[Transition] = &[
    (In(Rejected), row::INTEND, In(Rejected)),
    (In(Rejected), row::INTEND, In(Ended)),
    (In(Deleting), row::FREE, In(Ended)),
    (In(Waiting), row::RESERVE, In(Ended)),
    (In(Creating), row::CREATE, In(Ended)),
];

impl State {
    /// That of a record with this status.
    pub fn of(status: &Status) -> Self {
        status.phase.map_or(New, In)
    }
}

/// Whether some rule leads from one state to the other.
pub fn is_declared(from: State, to: State) -> bool {
    let mut all = DECIDED.iter().chain(FOUND);
    all.any(|(before, _, after)| (*before, *after) == (from, to))
}

#[cfg(test)]
mod tests;
