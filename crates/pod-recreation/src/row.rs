//! The rows of both tables, by number and name: logged, explained and tested by these.

use belayer_holds::decision::Row;

const fn row(number: u8, name: &'static str) -> Row {
    Row { number, name }
}

/// Holds: nothing to do with this pod.
pub const NOT_OURS: Row = row(1, "not-ours");
/// Holds: the admin asked to let it go.
pub const ADMIN_ASKED: Row = row(2, "admin-asked");
/// Holds: eligible, and not held yet.
pub const ADD_HOLD: Row = row(3, "add-hold");
/// Holds: a pod of a chain whose record is gone.
pub const RECORD_GONE: Row = row(4, "record-gone");
/// Holds: its record has come to an end.
pub const RECORD_ENDED: Row = row(5, "record-ended");
/// Holds: rejected, its spec is safe in the record, and we deleted it.
pub const RECREATING: Row = row(6, "recreating");
/// Holds: created by an attempt that was given up meanwhile.
pub const LEFTOVER: Row = row(7, "leftover");
/// Holds: being deleted before a rejection was recorded.
pub const DELETED: Row = row(8, "deleted");
/// Holds: it has started.
pub const STARTED: Row = row(9, "started");
/// Holds: it ended otherwise.
pub const ENDED: Row = row(10, "ended");
/// Holds: nothing asks for its re-creation any more.
pub const UNSELECTED: Row = row(11, "unselected");
/// Holds: kept until something happens.
pub const KEEP: Row = row(12, "keep");
/// Holds: its owner is being deleted or gone.
pub const OWNER_ENDS: Row = row(13, "owner-ends");

/// Machine: nothing to do.
pub const NOTHING: Row = row(20, "nothing");
/// Machine, step 1: rejected, and no record yet.
pub const REJECTED: Row = row(21, "rejected");
/// Machine, step 1: the record is there and says nothing yet.
pub const BEGIN: Row = row(22, "begin");
/// Machine: a record without a pod of its UIDs that says nothing was restored or made by hand.
pub const ORPHAN: Row = row(23, "orphan");
/// Machine, step 2: the budget is used up.
pub const EXHAUSTED: Row = row(24, "exhausted");
/// Machine, step 3: the node is to be wiped first.
pub const WIPING: Row = row(25, "wiping");
/// Machine, step 4: tried, then the deletion is intended.
pub const INTEND: Row = row(26, "intend");
/// Machine, step 5: the rejected pod is deleted.
pub const DELETE: Row = row(27, "delete");
/// Machine, step 5: the name is free.
pub const FREE: Row = row(28, "free");
/// Machine, step 6: the backoff runs.
pub const BACKOFF: Row = row(29, "backoff");
/// Machine, step 7: the attempt is reserved.
pub const RESERVE: Row = row(30, "reserve");
/// Machine, step 7: the pod is created.
pub const CREATE: Row = row(31, "create");
/// Machine, step 9: the pod is there.
pub const RECREATED: Row = row(32, "recreated");
/// Machine, step 9: the pod has started.
pub const POD_STARTED: Row = row(33, "pod-started");
/// Machine, step 9: rejected again.
pub const REJECTED_AGAIN: Row = row(34, "rejected-again");
/// Machine: somebody else deleted the pod, or has its name.
pub const CANCELLED: Row = row(35, "cancelled");
/// Machine: the API server has refused the pod for too long.
pub const DENIED: Row = row(36, "denied");
/// Machine: an old attempt's pod stands in the way.
pub const OLD_ATTEMPT: Row = row(37, "old-attempt");
/// Machine: the rejected pod is told why it stays.
pub const MARK: Row = row(38, "mark");
/// Machine: the record has been kept for long enough.
pub const EXPIRED: Row = row(39, "expired");
/// Machine: an old leader created a pod after the end.
pub const IN_VAIN: Row = row(41, "in-vain");
/// Machine: the pod may have run, or its rejection is for good.
pub const REPORTED: Row = row(40, "reported");
/// Machine: the pod of the reserved attempt may have been created and lost its hold.
pub const HOLD_LOST: Row = row(42, "hold-lost");

/// All of them.
pub const ALL: &[Row] = &[
    NOT_OURS,
    ADMIN_ASKED,
    ADD_HOLD,
    RECORD_GONE,
    RECORD_ENDED,
    RECREATING,
    LEFTOVER,
    DELETED,
    STARTED,
    ENDED,
    UNSELECTED,
    KEEP,
    OWNER_ENDS,
    NOTHING,
    REJECTED,
    BEGIN,
    ORPHAN,
    EXHAUSTED,
    WIPING,
    INTEND,
    DELETE,
    FREE,
    BACKOFF,
    RESERVE,
    CREATE,
    RECREATED,
    POD_STARTED,
    REJECTED_AGAIN,
    CANCELLED,
    DENIED,
    OLD_ATTEMPT,
    MARK,
    EXPIRED,
    IN_VAIN,
    REPORTED,
    HOLD_LOST,
];
