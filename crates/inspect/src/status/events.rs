//! Events that Belayer recorded. They expire after an hour; Belayer records them again while the condition lasts.

use jiff::Timestamp;
use serde::Deserialize;

use belayer_core::http::{Request, RequestError};
use belayer_core::object::Resource;
use belayer_holds::names::FIELD_MANAGER;

use crate::reader::Reader;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default, rename = "type")]
    pub(super) severity: String,
    #[serde(default)]
    pub(super) last_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub(super) count: Option<u64>,
    #[serde(default)]
    source: Source,
    #[serde(default)]
    pub(super) involved_object: Involved,
}

impl Event {
    fn is_of_belayer(&self) -> bool {
        self.source.component == FIELD_MANAGER
    }
}

#[derive(Debug, Deserialize, Default)]
struct Source {
    #[serde(default)]
    component: String,
}

/// The object of an Event.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Involved {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
}

/// The Events with this reason that Belayer recorded, in one namespace or in all.
///
/// # Errors
///
/// As [`Reader::json`].
pub(super) async fn events(
    reader: &Reader,
    namespace: Option<&str>,
    reason: &str,
) -> Result<Vec<Event>, RequestError> {
    let mut events = list(reader, namespace, format!("reason={reason}")).await?;
    // Not every server supports the selector; and other components may use the same reason.
    events.retain(|event| event.reason == reason && event.is_of_belayer());
    Ok(events)
}

/// All Events that Belayer recorded, in one namespace or in all.
///
/// # Errors
///
/// As [`Reader::json`].
pub(super) async fn all(
    reader: &Reader,
    namespace: Option<&str>,
) -> Result<Vec<Event>, RequestError> {
    let mut events = list(reader, namespace, format!("source={FIELD_MANAGER}")).await?;
    events.retain(Event::is_of_belayer);
    Ok(events)
}

async fn list(
    reader: &Reader,
    namespace: Option<&str>,
    fields: String,
) -> Result<Vec<Event>, RequestError> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Event>>,
    }
    let path = Resource::new("", "v1", "Event", "events").path(namespace);
    let request = Request::get(path).query("fieldSelector", fields);
    let list: List = reader.json(&request).await?;
    let not_a_list = || RequestError::Decode("a list without items".to_owned());
    list.items.ok_or_else(not_a_list)
}
