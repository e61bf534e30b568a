//! Whether a held object is still selected, according to the component of the hold. A drain ends
//! with an [outcome](crate::passes).

use std::collections::BTreeSet;

use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta};
pub use belayer_holds::selection::Selected;

/// The selection rules of the components. A drain ends with an [outcome](crate::passes).
pub trait Selection: Send + Sync {
    /// Labels and annotations that the rules read.
    fn keep(&self) -> Keep;

    /// Whether the component of `hold` selects `object`; `ignored` has the namespaces that Belayer ignores.
    fn selects(
        &self,
        hold: &'static str,
        kind: &Resource,
        object: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected;
}

/// For purposes that do not depend on selection. A drain ends with an [outcome](crate::passes).
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
        Selected::Unknown("the selection is unknown".to_owned())
    }
}
