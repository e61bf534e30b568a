//! The rules of the decision table, by number and name.
//!
//! ```
//! for rule in belayer_workflow_finalizer::row::ALL {
//!     println!("{:>3} {}: {}", rule.number, rule.name, rule.says);
//! }
//! # assert!(!belayer_workflow_finalizer::row::ALL.is_empty());
//! ```

use belayer_holds::rules;

rules! {
    UNSELECTED = 1, "unselected", "held, and nothing selects it any more";
    ADD_HOLD = 2, "add-hold", "selected and not held yet";
    NOT_HELD = 3, "not-held", "being deleted and not held: nothing to do, pod-finalizer decides about its pods";
    PODS_HELD = 4, "pods-held", "being deleted, held, and some of its pods are still held";
    CONFIRM = 5, "confirm", "being deleted, held, and none of its pods is held";
    NAMESPACE_TERMINATING = 6, "namespace-terminating", "being deleted together with its namespace, and held";
    NOTHING = 7, "nothing", "no action is required";
    KEPT_RUNNING = 8, "kept-running", "being deleted, held, and Argo goes on running it because of another controller's finalizer";
    ARCHIVING = 9, "archiving", "being deleted, held until it is archived, and not archived yet";
}
