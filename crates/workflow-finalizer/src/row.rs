//! The rows of the decision table, by number and name.

use belayer_holds::rules;

rules! {
    UNSELECTED = 1, "unselected", "held, and nothing selects it any more";
    ADD_HOLD = 2, "add-hold", "selected and not held yet";
    NOT_HELD = 3, "not-held", "being deleted without a hold; its pods settle by its end";
    PODS_HELD = 4, "pods-held", "being deleted, held, and pods of it still carry a hold";
    CONFIRM = 5, "confirm", "being deleted, held, and none of its pods carries a hold";
    NAMESPACE_TERMINATING = 6, "namespace-terminating", "being deleted together with its namespace, held";
    NOTHING = 7, "nothing", "as it should be";
}
