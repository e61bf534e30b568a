//! Holds that are kept back because so many unselected objects at once look like a mistake: what is known of
//! them where no running Belayer could be asked (A4).

use serde::Deserialize;

use belayer_core::http::Request;
use belayer_core::names;
use belayer_core::object::Resource;

use super::Status;
use super::look::keeps;
use crate::reader::{Reader, explain};

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
        let holds = |each: &&super::Component| each.component == component && each.numbers.held > 0;
        !self.asked && self.installation.may_run() && self.components.iter().find(holds).is_some()
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

/// What Belayer reported in its own namespace on objects of this kind: that holds are kept back. Events live
/// for an hour.
///
/// # Errors
///
/// If its Events cannot be listed; why, in words.
pub async fn reported(
    reader: &Reader,
    own_namespace: &str,
    kind: &str,
) -> Result<Option<String>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        #[serde(default)]
        reason: String,
        #[serde(default)]
        message: String,
        #[serde(default)]
        involved_object: Involved,
    }
    #[derive(Deserialize, Default)]
    struct Involved {
        #[serde(default)]
        kind: String,
    }
    let path = Resource::new("", "v1", "Event", "events").path(Some(own_namespace));
    let request = Request::get(path).query("fieldSelector", format!("reason={}", names::HELD_BACK));
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Event>>,
    }
    let list: List = reader
        .json(&request)
        .await
        .map_err(|error| format!("events of {own_namespace}: {}", explain(&error)))?;
    let of_this_kind =
        |event: &Event| event.reason == names::HELD_BACK && event.involved_object.kind == kind;
    let events = list.items.ok_or("the answer is no list")?;
    Ok(events
        .into_iter()
        .rfind(of_this_kind)
        .map(|event| event.message))
}
