//! The rows of the decision table, by number and name.

use belayer_holds::decision::Row;

/// Held, and nothing selects it any more.
pub const UNSELECTED: Row = row(1, "unselected");
/// Selected, not held, not being deleted.
pub const ADD_HOLD: Row = row(2, "add-hold");
/// Being deleted without our hold.
pub const NOT_HELD: Row = row(3, "not-held");
/// Being deleted, and pods of its UID still carry the pod-status hold.
pub const PODS_HELD: Row = row(4, "pods-held");
/// Being deleted, and none of its pods is known to carry one.
pub const CONFIRM: Row = row(5, "confirm");
/// As the two before, in a namespace that is being deleted: nobody can be told.
pub const NAMESPACE_TERMINATING: Row = row(6, "namespace-terminating");
/// None of the above.
pub const NOTHING: Row = row(7, "nothing");

/// All of them.
pub const ALL: &[Row] = &[
    UNSELECTED,
    ADD_HOLD,
    NOT_HELD,
    PODS_HELD,
    CONFIRM,
    NAMESPACE_TERMINATING,
    NOTHING,
];

const fn row(number: u8, name: &'static str) -> Row {
    Row { number, name }
}
