//! The rules of both decision tables, by number and name.
//!
//! ```
//! for rule in belayer_pod_recreation::row::ALL {
//!     println!("{:>3} {}: {}", rule.number, rule.name, rule.says);
//! }
//! # assert!(!belayer_pod_recreation::row::ALL.is_empty());
//! ```

use belayer_holds::rules;

rules! {
    NOT_OURS = 1, "not-ours", "not selected for re-creation, or no hold is required";
    ADMIN_ASKED = 2, "admin-asked", "held, and the annotation belayer.dev/release requests its release";
    ADD_HOLD = 3, "add-hold", "selected for re-creation and not held yet";
    RECORD_GONE = 4, "record-gone", "held, re-created, and its record does not exist";
    RECORD_ENDED = 5, "record-ended", "held, and its record has ended";
    RECREATING = 6, "recreating", "held, rejected, its spec is stored in its record, and Belayer deleted it";
    LEFTOVER = 7, "leftover", "held, being deleted, and its attempt was given up";
    DELETED = 8, "deleted", "held, and another client deleted it";
    STARTED = 9, "started", "held, and it has started";
    ENDED = 10, "ended", "held, and it ended in a way that is not re-created";
    UNSELECTED = 11, "unselected", "held, and not selected for re-creation any more";
    KEEP = 12, "keep", "held until it has started";
    OWNER_ENDS = 13, "owner-ends", "held, and its owner is being deleted or gone";
    NOTHING = 20, "nothing", "there is nothing to do";
    REJECTED = 21, "rejected", "the pod was rejected and has no record yet";
    BEGIN = 22, "begin", "the record has no status yet";
    ORPHAN = 23, "orphan", "the record is ignored: it describes no rejected pod that exists";
    EXHAUSTED = 24, "exhausted", "every allowed re-creation was rejected";
    WIPING = 25, "wiping", "the node agent must first remove the pod's directories";
    INTEND = 26, "intend", "the rejected pod can be re-created";
    DELETE = 27, "delete", "the rejected pod must be deleted";
    FREE = 28, "free", "the rejected pod does not exist any more";
    BACKOFF = 29, "backoff", "the pause before the next attempt has not ended";
    RESERVE = 30, "reserve", "the next attempt is due";
    CREATE = 31, "create", "an attempt is reserved, and its pod does not exist yet";
    RECREATED = 32, "recreated", "the re-created pod exists";
    POD_STARTED = 33, "pod-started", "the re-created pod has started";
    REJECTED_AGAIN = 34, "rejected-again", "the re-created pod was rejected too";
    CANCELLED = 35, "cancelled", "another client deleted the pod, or another pod has its name";
    DENIED = 36, "denied", "the API server has denied the pod for too long";
    OLD_ATTEMPT = 37, "old-attempt", "the pod of an older attempt exists";
    MARK = 38, "mark", "the rejected pod stays and must be annotated with the reason";
    EXPIRED = 39, "expired", "the record ended longer ago than recordTtlSeconds";
    IN_VAIN = 41, "in-vain", "the pod was created after its record had ended";
    REPORTED = 40, "reported", "the pod is not re-created: it may have run, its rejection is permanent, or it is not selected any more";
    HOLD_LOST = 42, "hold-lost", "the pod may have been created already, and may have run after its hold was removed";
}
