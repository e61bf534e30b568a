//! What `/debug/holds` answers, from memory: what each component says of its holds.

#[cfg(feature = "pvc-protection")]
pub(super) mod claims;
#[cfg(feature = "pod-finalizer")]
pub(super) mod pods;
#[cfg(feature = "pod-recreation")]
pub(super) mod recreations;
#[cfg(feature = "workflow-finalizer")]
pub(super) mod workflows;

use serde_json::Value;

use crate::server::Holds;

/// What each component says, by its name.
#[derive(Default)]
pub(super) struct Told(Vec<(&'static str, HoldsOf)>);

type HoldsOf = Box<dyn Fn() -> Value + Send + Sync>;

impl Told {
    /// Has a component tell of its holds.
    pub(super) fn add<C: Clone + Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        component: &C,
        tell: impl Fn(&C) -> Value + Send + Sync + 'static,
    ) {
        let component = component.clone();
        self.0.push((name, Box::new(move || tell(&component))));
    }
}

impl Holds for Told {
    fn holds(&self) -> Value {
        let each = self.0.iter();
        Value::Object(
            each.map(|(name, tell)| ((*name).to_owned(), tell()))
                .collect(),
        )
    }
}
