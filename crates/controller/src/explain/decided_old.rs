//! A decision in words.

use belayer_holds::decision::{Decision, Evidence, Write};
use belayer_inspect::explain::{Action, Explained, Row};

/// A decision and whose it is, on its way into words.
pub struct Decided<'a, E, Q> {
    /// Name of the controller.
    pub component: &'static str,
    /// The hold that it is about, and whether the object carries it.
    pub hold: &'static str,
    /// Whether it is on the object.
    pub held: bool,
    /// The decision.
    pub decision: &'a Decision<E, Q>,
}

impl<E: Evidence, Q: std::fmt::Display> Decided<'_, E, Q> {
    /// What a running Belayer does. What waits for something before it is held, waits too.
    fn action(&self) -> Action {
        match &self.decision.write {
            Some(Write::Release(_)) => Action::Release,
            Some(Write::AddHold) => Action::AddHold,
            Some(Write::Record) => Action::Record,
            Some(Write::Delete(_)) => Action::Delete,
            None if self.held || !self.decision.missing.is_empty() => Action::Keep,
            None => Action::Nothing,
        }
    }

    /// In words; `waits` tells what happens next where nothing is written now.
    pub fn explained(self, waits: impl FnOnce(Action) -> String) -> Explained {
        let action = self.action();
        let next = match action {
            Action::Release => "a running Belayer takes the hold off at once".to_owned(),
            Action::AddHold => "a running Belayer adds the hold at once".to_owned(),
            Action::Record
            | Action::Delete
            | Action::WriteStatus
            | Action::CreatePod
            | Action::DeletePod
            | Action::AnnotatePod => "a running Belayer does so at once".to_owned(),
            Action::Keep | Action::Nothing => waits(action),
        };
        let row = self.decision.row;
        Explained {
            component: self.component,
            hold: self.hold,
            held: self.held,
            row: Row {
                number: row.number,
                name: row.name,
                says: row.says.to_owned(),
            },
            action,
            evidence: self.decision.evidence().map(str::to_owned),
            missing: self.decision.missing_in_words(),
            why_not: None,
            next,
            look_again_seconds: self.decision.look_again.map(|after| after.as_secs()),
            notes: Vec::new(),
        }
    }
}
