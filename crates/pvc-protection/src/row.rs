//! The rows of the decision table, by number and name.

use belayer_holds::decision::Row;

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

/// Being deleted and held, owned by an Argo Workflow, and every pod that uses it has ended: it is released
/// once a live read shows that the workflow has finished (row A18).
pub const OWNER_FINISHED: Row = Row {
    number: 6,
    name: "owner-finished",
};
/// Belayer only reports, and Kubernetes keeps a PVC that is being deleted: the pods that use it are reported.
pub const ADVISE: Row = Row {
    number: 7,
    name: "advise",
};
/// Belayer only reports, the PVC still has a finalizer of Belayer's, Kubernetes does not protect it, and a
/// pod uses it: it keeps that finalizer, and that is reported.
pub const LEFT_OVER: Row = Row {
    number: 8,
    name: "left-over",
};

/// All of them.
pub const ALL: &[Row] = &[
    NOT_IN_CACHE,
    ADD_HOLD,
    IN_USE,
    CONFIRM,
    NOTHING,
    OWNER_FINISHED,
    ADVISE,
    LEFT_OVER,
];
