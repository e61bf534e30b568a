//! Whether something still selects a held object: what the components know of their own holds.

use std::collections::BTreeSet;

use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta};
pub use belayer_holds::selection::Selected;

/// What the components know of their own holds.
pub trait Selection: Send + Sync {
    /// The labels and annotations that it reads.
    fn keep(&self) -> Keep;

    /// Whether the component of `hold` selects `object`; its namespace may be one of `ignored`.
    fn selects(
        &self,
        hold: &'static str,
        kind: &Resource,
        object: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected;
}

/// Where selection plays no part.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSelection;

impl Selection for NoSelection {
    fn keep(&self) -> Keep {
        Keep::nothing()
    }

    fn selects(
        &self,
        _: &'static str,
        _: &Resource,
        _: &ObjectMeta,
        _: &BTreeSet<String>,
    ) -> Selected {
        Selected::Unknown("nobody knows what is selected".to_owned())
    }
}
