//! The rows of the decision table, by number and name.

use belayer_core::decision::Row;

/// Not in the cache.
pub const NOT_IN_CACHE: Row = Row {
    number: 1,
    name: "not-in-cache",
};
/// Not being deleted, and the hold is missing.
pub const ADD_HOLD: Row = Row {
    number: 2,
    name: "add-hold",
};
/// Being deleted and held, and the index shows a pod that uses it.
pub const IN_USE: Row = Row {
    number: 3,
    name: "in-use",
};
/// Being deleted and held, and the index shows no user: a look begun after the deletion decides.
pub const CONFIRM: Row = Row {
    number: 4,
    name: "confirm",
};
/// Anything else.
pub const NOTHING: Row = Row {
    number: 5,
    name: "nothing",
};

/// All of them.
pub const ALL: &[Row] = &[NOT_IN_CACHE, ADD_HOLD, IN_USE, CONFIRM, NOTHING];
