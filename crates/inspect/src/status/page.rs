//! The held objects, re-creations and Belayer's Events: with the status, the content of the status page.

use std::cmp::Reverse;
use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use belayer_core::http::RequestError;

use super::collect::with_objects;
use super::events::{self, Event};
use super::recreations::{self, Recreations, recreations};
use super::{HeldObject, Query, Status};
use crate::reader::{Reader, explain};

/// How many Events are shown.
const EVENTS: usize = 200;

/// The content of the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// When it was read.
    #[cfg_attr(test, schemars(with = "String", extend("format" = "date-time")))]
    pub at: Timestamp,
    /// The status.
    pub status: Status,
    /// Held objects: those that are being deleted first, the longest waiting one at the top.
    pub objects: Vec<HeldObject>,
    /// Re-creations of rejected pods; absent if their kind is not installed or cannot be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreations: Option<Recreations>,
    /// What Belayer recorded about objects in the last hour, the latest first.
    pub events: Vec<Recorded>,
}

/// An Event of Belayer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// When it was last recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub time: Option<Timestamp>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub severity: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// How often it was recorded.
    pub count: u64,
    /// `Pod`.
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// Reads the content of the status page. It is read as a [status](crate::status).
///
/// # Errors
///
/// As [`super::status`]. Events and re-creations that cannot be listed are part of the answer.
pub async fn page(
    reader: &Reader,
    query: &Query,
    clock: impl Fn() -> Timestamp,
) -> Result<Page, RequestError> {
    let (mut status, mut objects) = with_objects(reader, query, &clock).await?;
    let namespace = query.namespace.as_deref();
    let recreations = recreations(reader, namespace)
        .await
        .unwrap_or_else(|error| {
            let (kind, why) = (recreations::kind(), explain(&error));
            status
                .unknown
                .push(format!("which pods are re-created: {kind}: {why}"));
            None
        });
    let mut recorded = match events::all(reader, namespace).await {
        Ok(recorded) => recorded,
        Err(error) => {
            let why = explain(&error);
            status
                .unknown
                .push(format!("what Belayer recorded: events: {why}"));
            Vec::new()
        }
    };
    recorded.sort_by_key(|event| Reverse(event.last_timestamp));
    let mut latest: HashMap<&str, &str> = HashMap::new();
    for event in &recorded {
        latest
            .entry(&event.involved_object.uid)
            .or_insert(&event.message);
    }
    for object in &mut objects {
        let message = latest.get(object.uid.as_str());
        object.reason = message.map(|&text| text.to_owned());
    }
    objects.sort_by_cached_key(|object| {
        let since = object.deletion_timestamp;
        let place = (object.namespace.clone(), object.name.clone());
        (since.is_none(), since, place)
    });
    objects.truncate(query.objects);
    recorded.truncate(EVENTS);
    Ok(Page {
        at: clock(),
        status,
        objects,
        recreations,
        events: recorded.into_iter().map(Recorded::from).collect(),
    })
}

impl From<Event> for Recorded {
    fn from(event: Event) -> Self {
        Self {
            time: event.last_timestamp,
            severity: event.severity,
            reason: event.reason,
            message: event.message,
            count: event.count.unwrap_or(1),
            kind: event.involved_object.kind,
            namespace: event.involved_object.namespace,
            name: event.involved_object.name,
        }
    }
}
