//! The rows of both tables, by number and name: logged, explained and tested by these.

use belayer_holds::rules;

rules! {
    NOT_OURS = 1, "not-ours", "not selected, or there is nothing to hold it for";
    ADMIN_ASKED = 2, "admin-asked", "held, and the annotation belayer.dev/release asks for its release";
    ADD_HOLD = 3, "add-hold", "it asks to be re-created and is not held yet";
    RECORD_GONE = 4, "record-gone", "held, re-created, and its record is gone";
    RECORD_ENDED = 5, "record-ended", "held, and its record has come to an end";
    RECREATING = 6, "recreating", "held, rejected, its spec is safe in its record, and Belayer deleted it";
    LEFTOVER = 7, "leftover", "held, and its attempt was given up meanwhile";
    DELETED = 8, "deleted", "held, and it was deleted before a rejection of it was recorded";
    STARTED = 9, "started", "held, and it has started";
    ENDED = 10, "ended", "held, and it ended in a way that is not re-created";
    UNSELECTED = 11, "unselected", "held, and nothing asks for its re-creation any more";
    KEEP = 12, "keep", "held until it has started";
    OWNER_ENDS = 13, "owner-ends", "held, and its owner is being deleted or gone";
    NOTHING = 20, "nothing", "there is nothing to do";
    REJECTED = 21, "rejected", "it was rejected and has no record yet";
    BEGIN = 22, "begin", "its record says nothing yet";
    ORPHAN = 23, "orphan", "a record that was restored or made by hand is ignored";
    EXHAUSTED = 24, "exhausted", "every allowed re-creation was rejected";
    WIPING = 25, "wiping", "its node is to be wiped of it first";
    INTEND = 26, "intend", "it is to be re-created";
    DELETE = 27, "delete", "the rejected pod is to be deleted";
    FREE = 28, "free", "the rejected pod is gone";
    BACKOFF = 29, "backoff", "the pause before the next attempt runs";
    RESERVE = 30, "reserve", "the next attempt is due";
    CREATE = 31, "create", "an attempt is reserved, and its pod is not there yet";
    RECREATED = 32, "recreated", "the re-created pod is there";
    POD_STARTED = 33, "pod-started", "the re-created pod has started";
    REJECTED_AGAIN = 34, "rejected-again", "the re-created pod was rejected too";
    CANCELLED = 35, "cancelled", "somebody else deleted the pod, or has its name";
    DENIED = 36, "denied", "the API server has refused the pod for too long";
    OLD_ATTEMPT = 37, "old-attempt", "the pod of an older attempt stands in the way";
    MARK = 38, "mark", "it is to be told why it is left alone";
    EXPIRED = 39, "expired", "the record has been kept for long enough";
    IN_VAIN = 41, "in-vain", "it was created after its record had ended";
    REPORTED = 40, "reported", "it may have run, or its rejection is for good";
    HOLD_LOST = 42, "hold-lost", "its pod may have been created already, and may have run after its hold was removed";
}
