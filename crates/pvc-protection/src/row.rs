//! The rules of the decision table, by number and name.
//!
//! ```
//! for rule in belayer_pvc_protection::row::ALL {
//!     println!("{:>3} {}: {}", rule.number, rule.name, rule.says);
//! }
//! # assert!(!belayer_pvc_protection::row::ALL.is_empty());
//! ```

use belayer_holds::rules;

rules! {
    NOT_IN_CACHE = 1, "not-in-cache", "the PVC does not exist";
    ADD_HOLD = 2, "add-hold", "not being deleted, and not held yet";
    IN_USE = 3, "in-use", "being deleted, held, and a pod uses it";
    CONFIRM = 4, "confirm", "being deleted, held, and no pod uses it";
    NOTHING = 5, "nothing", "no action is required, or being deleted without Belayer's finalizer";
    OWNER_FINISHED = 6, "owner-finished", "being deleted, held, owned by a Workflow, and every pod that uses it has ended";
    ADVISE = 7, "advise", "being deleted, kept by Kubernetes, and a pod uses it; Belayer only advises";
    LEFT_OVER = 8, "left-over", "held only by Belayer's finalizer from an earlier configuration, and a pod uses it; Belayer only reports";
}
