//! Events that Belayer recorded. They expire after an hour; Belayer records them again while the condition lasts.

use jiff::Timestamp;
use serde::Deserialize;

use belayer_core::http::{JSON, RequestError};
use belayer_core::object::Resource;
use belayer_holds::names::FIELD_MANAGER;

use crate::reader::{Reader, again_if_expired};

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
/// As [`Reader::pages`].
pub(super) async fn events(
    reader: &Reader,
    namespace: Option<&str>,
    reason: &str,
) -> Result<Vec<Event>, RequestError> {
    // Not every server supports the selector; and other components may use the same reason.
    let is_one = |event: &Event| event.reason == reason && event.is_of_belayer();
    list(reader, namespace, &format!("reason={reason}"), is_one).await
}

/// All Events that Belayer recorded, in one namespace or in all.
///
/// # Errors
///
/// As [`Reader::pages`].
pub(super) async fn all(
    reader: &Reader,
    namespace: Option<&str>,
) -> Result<Vec<Event>, RequestError> {
    let source = format!("source={FIELD_MANAGER}");
    list(reader, namespace, &source, Event::is_of_belayer).await
}

/// The Events of these fields for which `is_one` is true. In an outage there may be tens of thousands of them: they are
/// read in pages.
async fn list(
    reader: &Reader,
    namespace: Option<&str>,
    fields: &str,
    is_one: impl Fn(&Event) -> bool,
) -> Result<Vec<Event>, RequestError> {
    let path = Resource::new("", "v1", "Event", "events").path(namespace);
    let is_one = &is_one;
    again_if_expired(|| async {
        let mut all = Vec::new();
        let selector = Some(("fieldSelector", fields));
        let read = reader.items(&path, JSON, selector, |event: Event| {
            all.extend(Some(event).filter(is_one));
        });
        read.await?;
        Ok(all)
    })
    .await
}
