//! Holds that are kept because that many unselected objects at once look like a mistake: their number if no
//! running Belayer answered (rule A4).

use belayer_core::events::namespace_of_events;
use belayer_core::http::RequestError;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::names;

use super::collect::keeps;
use super::events::{Event, events};
use super::{Query, Status};
use crate::reader::Reader;

/// The holds that a component keeps back. Part of a [status](crate::status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Their number, counted in the cluster with Belayer's configuration.
    Counted(u64),
    /// The message of a recent Event.
    Reported(String),
    /// Unknown, for this reason.
    Unknown(String),
}

impl Status {
    /// Whether the kept holds of this component have to be counted in the cluster: it holds objects, it may run,
    /// and no running Belayer answered.
    pub fn needs_count(&self, component: &str) -> bool {
        let holds = |each: &super::Component| each.component == component && each.numbers.held > 0;
        !self.asked && self.installation.may_run() && self.components.iter().any(holds)
    }

    /// Adds what the cluster shows about the holds that a component keeps back.
    pub fn note_kept(&mut self, component: &str, kept: Kept, query: &Query) {
        match kept {
            Kept::Counted(0) => {}
            Kept::Counted(count) => self.warnings.push(keeps(component, count, query)),
            Kept::Reported(message) => self.warnings.push(format!(
                "{component} keeps unselected objects held, according to an Event {} of the last hour: {message}",
                names::HELD_BACK
            )),
            Kept::Unknown(why) => self
                .unknown
                .push(format!("whether {component} keeps unselected objects held: {why}")),
        }
    }
}

/// The message of the last Event that holds are kept back, on the object of this kind, namespace and name. Part of a
/// [status](crate::status).
///
/// # Errors
///
/// If the Events of its [`namespace_of_events`] cannot be listed.
pub async fn reported(
    reader: &Reader,
    kind: &Resource,
    key: &ObjectKey,
) -> Result<Option<String>, RequestError> {
    let namespace = Some(namespace_of_events(key));
    let events = events(reader, namespace, names::HELD_BACK).await?;
    let is_about = |event: &Event| {
        let object = &event.involved_object;
        *kind.kind == *object.kind && object.name == key.name()
    };
    Ok(events
        .into_iter()
        .rfind(is_about)
        .map(|event| event.message))
}
