//! Events that Belayer wrote. They live for an hour, and are written anew as long as what they report lasts.

use serde::Deserialize;

use belayer_core::http::Request;
use belayer_core::object::Resource;

use crate::reader::{Reader, explain};

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

/// What an Event is about.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Involved {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) uid: String,
}

/// The Events of this reason, in a namespace or in all.
///
/// # Errors
///
/// If they cannot be listed; why, in words.
pub(super) async fn events(
    reader: &Reader,
    namespace: Option<&str>,
    reason: &str,
) -> Result<Vec<Event>, String> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Event>>,
    }
    let path = Resource::new("", "v1", "Event", "events").path(namespace);
    let request = Request::get(path).query("fieldSelector", format!("reason={reason}"));
    let list: List = reader
        .json(&request)
        .await
        .map_err(|error| explain(&error))?;
    let mut events = list.items.ok_or("the answer is no list")?;
    // Not every server knows the selector.
    events.retain(|event| event.reason == reason);
    Ok(events)
}
