//! Formats a decision for `explain`.

use belayer_core::slim::Slim;
use belayer_holds::decision::{Decision, Write};
use belayer_holds::runner::Component;
use belayer_inspect::explain::{Action, Explained, Row};

/// Formats a decision of `component`. `held` says whether its finalizer is on the object; `waits`
/// describes what happens next if nothing is written now. Returned for a
/// [`Controller`](crate::Controller)'s component; see
/// [`Configured::explainers`](crate::Configured::explainers).
pub fn explained<K: Slim, C: Component<K>>(
    component: &C,
    held: bool,
    decision: &Decision<C::Evidence, C::Query, C::Step>,
    waits: impl FnOnce(Action) -> String,
) -> Explained {
    let action = match &decision.write {
        Some(Write::Release(_)) => Action::Release,
        Some(Write::AddHold) => Action::AddHold,
        Some(Write::Step(_)) => Action::Record,
        Some(Write::Delete(_)) => Action::Delete,
        // An object that waits for something before it is held waits as well.
        None if held || !decision.missing.is_empty() => Action::Keep,
        None => Action::Nothing,
    };
    let next = match action {
        Action::Release => "a running Belayer releases the hold at once".to_owned(),
        Action::AddHold => "a running Belayer adds the hold at once".to_owned(),
        Action::Keep | Action::Nothing => waits(action),
        _ => "a running Belayer executes this step at once".to_owned(),
    };
    let row = decision.row;
    Explained {
        component: component.name(),
        hold: component.hold(),
        held,
        row: Row {
            number: row.number,
            name: row.name,
            says: row.says.to_owned(),
        },
        action,
        evidence: decision.evidence().map(str::to_owned),
        missing: decision.missing_messages(),
        why_not: None,
        next,
        requeue_after_seconds: decision.requeue_after.map(|after| after.as_secs()),
        notes: Vec::new(),
    }
}
