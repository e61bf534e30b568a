//! Events that Belayer recorded. They expire after an hour; Belayer records them again while the condition lasts.

use serde::Deserialize;

use belayer_core::http::{Request, RequestError};
use belayer_core::object::Resource;

use crate::reader::Reader;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) involved_object: Involved,
}

/// The object of an Event.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Involved {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) uid: String,
}

/// The Events with this reason, in one namespace or in all.
///
/// # Errors
///
/// As [`Reader::json`].
pub(super) async fn events(
    reader: &Reader,
    namespace: Option<&str>,
    reason: &str,
) -> Result<Vec<Event>, RequestError> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Event>>,
    }
    let path = Resource::new("", "v1", "Event", "events").path(namespace);
    let request = Request::get(path).query("fieldSelector", format!("reason={reason}"));
    let list: List = reader.json(&request).await?;
    let not_a_list = || RequestError::Decode("a list without items".to_owned());
    let mut events = list.items.ok_or_else(not_a_list)?;
    // Not every server supports the selector.
    events.retain(|event| event.reason == reason);
    Ok(events)
}
