//! What an accepted write did.

use std::sync::Arc;

use serde_json::Value;

/// The effect of an accepted write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Created,
    Changed,
    Unchanged,
    /// The object was removed.
    Removed,
}

/// An accepted write.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) effect: Effect,
    pub(crate) object: Arc<Value>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Written {
    pub(crate) fn created(object: Arc<Value>) -> Self {
        Written {
            effect: Effect::Created,
            object,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn changed(object: Arc<Value>) -> Self {
        Written {
            effect: Effect::Changed,
            object,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn unchanged(object: Arc<Value>) -> Self {
        Written {
            effect: Effect::Unchanged,
            object,
            warnings: Vec::new(),
        }
    }

    pub(super) fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(crate) fn removed(object: Arc<Value>) -> Self {
        Written {
            effect: Effect::Removed,
            object,
            warnings: Vec::new(),
        }
    }
}
