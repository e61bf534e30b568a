//! The current controllers, for endpoints that exist longer than one set of controllers.

use std::sync::{Arc, PoisonError, RwLock};

use belayer_core::election::ElectorHealth;
use serde_json::Value;

use crate::health::Vitals;
use crate::operator::{Memory, Operator};
use crate::server::{Health, Holds};

/// What the endpoints read from one set of controllers.
#[derive(Clone)]
pub(super) struct OperatorParts {
    pub(super) vitals: Arc<Vitals>,
    pub(super) holds: Arc<dyn Holds>,
}

/// The current set of controllers.
pub(super) struct Current {
    parts: RwLock<Option<OperatorParts>>,
    elector: Option<ElectorHealth>,
    /// Outlasts each set, so that a reload repeats no Event and counts nothing again.
    pub(super) memory: Memory,
}

impl Current {
    /// No controllers yet. `elector` is the health of the leader election, if it is on.
    pub(super) fn new(elector: Option<ElectorHealth>) -> Self {
        Self {
            parts: RwLock::new(None),
            elector,
            memory: Memory::default(),
        }
    }

    /// Sets the current controllers.
    pub(super) fn set_operator(&self, operator: &Operator) {
        self.set(super::operator_parts(operator));
    }

    /// Sets the current controllers.
    pub(super) fn set(&self, parts: OperatorParts) {
        *self.parts.write().unwrap_or_else(PoisonError::into_inner) = Some(parts);
    }

    fn parts(&self) -> Option<OperatorParts> {
        let parts = self.parts.read();
        parts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Health for Current {
    fn not_ready(&self) -> Vec<String> {
        match self.parts() {
            Some(parts) => parts.vitals.not_ready(),
            None => vec!["controllers".to_owned()],
        }
    }

    fn wedged(&self) -> Vec<String> {
        let mut wedged = self
            .parts()
            .map(|parts| parts.vitals.wedged())
            .unwrap_or_default();
        if self.elector.as_ref().is_some_and(ElectorHealth::is_wedged) {
            wedged.push("leader election".to_owned());
        }
        wedged
    }
}

impl Holds for Current {
    fn holds(&self) -> Value {
        self.parts()
            .map(|parts| parts.holds.holds())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
