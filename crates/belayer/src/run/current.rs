//! The controllers that work now, for endpoints that outlive them.

use std::sync::{Arc, PoisonError, RwLock};

use belayer_core::election::ElectorHealth;
use serde_json::Value;

use crate::health::Vitals;
use crate::operator::Operator;
use crate::server::{Health, Holds};

/// What the endpoints ask of one set of controllers.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) vitals: Arc<Vitals>,
    pub(super) holds: Arc<dyn Holds>,
}

/// The controllers that work now.
pub(super) struct Current {
    parts: RwLock<Option<Parts>>,
    elector: Option<ElectorHealth>,
}

impl Current {
    /// None yet. `elector` is that of the leader election.
    pub(super) fn new(elector: Option<ElectorHealth>) -> Self {
        Self {
            parts: RwLock::new(None),
            elector,
        }
    }

    /// These, from now on.
    pub(super) fn is(&self, operator: &Operator) {
        self.becomes(super::operator_parts(operator));
    }

    /// These, from now on.
    pub(super) fn becomes(&self, parts: Parts) {
        *self.parts.write().unwrap_or_else(PoisonError::into_inner) = Some(parts);
    }

    fn parts(&self) -> Option<Parts> {
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
