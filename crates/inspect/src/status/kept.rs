//! Holds that are kept back because so many unselected objects at once look like a mistake: what is known of
//! them where no running Belayer could be asked (A4).

use belayer_holds::names;

use super::Status;
use super::events::{Event, events};
use super::look::keeps;
use crate::reader::Reader;

/// What is known of the holds that a component keeps back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// So many, counted in the cluster by Belayer's configuration.
    Counted(u64),
    /// Belayer has lately reported it, in these words.
    Reported(String),
    /// Nothing; why.
    Unknown(String),
}

impl Status {
    /// Whether only the cluster can tell if this component keeps holds back: it holds something, it may run,
    /// and no running Belayer could be asked.
    pub fn has_to_ask(&self, component: &str) -> bool {
        let holds = |each: &super::Component| each.component == component && each.numbers.held > 0;
        !self.asked && self.installation.may_run() && self.components.iter().any(holds)
    }

    /// Notes what the cluster tells of the holds that a component keeps back.
    pub fn note_kept(&mut self, component: &str, kept: Kept) {
        match kept {
            Kept::Counted(0) => {}
            Kept::Counted(count) => self.warnings.push(keeps(component, count)),
            Kept::Reported(message) => self.warnings.push(format!(
                "{component} keeps holds back, by an Event {} of the last hour: {message}",
                names::HELD_BACK
            )),
            Kept::Unknown(why) => self
                .unknown
                .push(format!("whether {component} keeps holds back: {why}")),
        }
    }
}

/// What Belayer reported in its own namespace on objects of this kind: that holds are kept back.
///
/// # Errors
///
/// If its Events cannot be listed; why, in words.
pub async fn reported(
    reader: &Reader,
    own_namespace: &str,
    kind: &str,
) -> Result<Option<String>, String> {
    let events = events(reader, Some(own_namespace), names::HELD_BACK)
        .await
        .map_err(|why| format!("events of {own_namespace}: {why}"))?;
    let of_this_kind = |event: &Event| event.involved_object.kind == kind;
    Ok(events
        .into_iter()
        .rfind(of_this_kind)
        .map(|event| event.message))
}
