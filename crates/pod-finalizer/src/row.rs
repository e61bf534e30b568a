//! The rules of the decision table, by number and name.
//!
//! ```
//! for rule in belayer_pod_finalizer::row::ALL {
//!     println!("{:>3} {}: {}", rule.number, rule.name, rule.says);
//! }
//! # assert!(!belayer_pod_finalizer::row::ALL.is_empty());
//! ```

use belayer_holds::rules;

rules! {
    NOT_OURS = 1, "not-ours", "not selected, not held";
    ADMIN_ASKED = 2, "admin-asked", "held, and the annotation belayer.dev/release requests its release";
    NAMESPACE_TERMINATING = 3, "namespace-terminating", "held, and its namespace is being deleted";
    UNSELECTED = 4, "unselected", "held, and no profile selects it any more";
    OWNER_GONE = 5, "owner-gone", "held, and its owner is gone";
    OWNER_DELETING = 6, "owner-deleting", "held, and its owner is being deleted";
    CAPTURE = 7, "capture", "held, its profile records outcomes, and its PodOutcome is not written yet";
    NO_OWNER = 8, "no-owner", "held, and it has no owner where its profile requires one";
    CONSUMED = 9, "consumed", "held, and its consumer has read the result";
    NODE_FULFILLED = 10, "node-fulfilled", "held, ended or being deleted, and released if its owner's status shows its node as fulfilled";
    CAPTURED = 11, "captured", "held, its PodOutcome is written, and its consumer reads PodOutcomes";
    KEEP = 12, "keep", "held until its consumer has read the result";
    ADD_HOLD = 13, "add-hold", "selected and not held yet";
    TOO_LATE = 14, "too-late", "selected and being deleted, without a finalizer of Belayer: either Belayer has released it, or its deletion began before it was held";
    CLEANUP = 15, "cleanup", "released, and its annotation and its profile require its deletion";
    NEVER_HELD = 16, "never-held", "never held: an agent pod or artifact garbage collection pod of Argo Workflows";
    ENDED_BY_DELETION = 17, "ended-by-deletion", "held, and it was deleted before it had a result";
    NODE_LOST = 18, "node-lost", "held, and its release depends on whether its node is lost";
    EARLIER_RUN = 19, "earlier-run", "held and being deleted, and it belongs to an earlier run of its workflow";
}
