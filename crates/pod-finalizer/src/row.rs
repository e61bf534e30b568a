//! The rows of the decision table, by number and name.

use belayer_holds::decision::Row;

/// Not in the cache, or being of no concern: not selected and not held.
pub const NOT_OURS: Row = Row {
    number: 1,
    name: "not-ours",
};
/// The admin asked for the release by annotation.
pub const ADMIN_ASKED: Row = Row {
    number: 2,
    name: "admin-asked",
};
/// The pod's namespace is being deleted.
pub const NAMESPACE_TERMINATING: Row = Row {
    number: 3,
    name: "namespace-terminating",
};
/// Held, and no profile selects the pod any more.
pub const UNSELECTED: Row = Row {
    number: 4,
    name: "unselected",
};
/// The owner's UID is confirmed gone.
pub const OWNER_GONE: Row = Row {
    number: 5,
    name: "owner-gone",
};
/// The owner is being deleted.
pub const OWNER_DELETING: Row = Row {
    number: 6,
    name: "owner-deleting",
};
/// The outcome is final and its record not written.
pub const CAPTURE: Row = Row {
    number: 7,
    name: "capture",
};
/// The profile requires an owner and the pod has none.
pub const NO_OWNER: Row = Row {
    number: 8,
    name: "no-owner",
};
/// The consumer has taken the result.
pub const CONSUMED: Row = Row {
    number: 9,
    name: "consumed",
};
/// The owner's own status shows the pod's node fulfilled.
pub const NODE_FULFILLED: Row = Row {
    number: 10,
    name: "node-fulfilled",
};
/// The record of the outcome is written.
pub const CAPTURED: Row = Row {
    number: 11,
    name: "captured",
};
/// None of the above: the hold stays.
pub const KEEP: Row = Row {
    number: 12,
    name: "keep",
};
/// Selected and not held yet.
pub const ADD_HOLD: Row = Row {
    number: 13,
    name: "add-hold",
};
/// Selected, not held, and being deleted: released, or too late for a hold.
pub const TOO_LATE: Row = Row {
    number: 14,
    name: "too-late",
};
/// Let go, and its own annotation asks for its deletion.
pub const CLEANUP: Row = Row {
    number: 15,
    name: "cleanup",
};

/// Argo runs the pod for itself, and it has no result.
pub const NEVER_HELD: Row = Row {
    number: 16,
    name: "never-held",
};
/// Its deletion ended the pod before there was a result.
pub const ENDED_BY_DELETION: Row = Row {
    number: 17,
    name: "ended-by-deletion",
};
/// Its node is lost, and with it the status of its containers.
pub const NODE_LOST: Row = Row {
    number: 18,
    name: "node-lost",
};

/// All of them.
pub const ALL: &[Row] = &[
    NOT_OURS,
    ADMIN_ASKED,
    NAMESPACE_TERMINATING,
    UNSELECTED,
    OWNER_GONE,
    OWNER_DELETING,
    CAPTURE,
    NO_OWNER,
    CONSUMED,
    NODE_FULFILLED,
    CAPTURED,
    KEEP,
    ADD_HOLD,
    TOO_LATE,
    CLEANUP,
    NEVER_HELD,
    ENDED_BY_DELETION,
    NODE_LOST,
];
