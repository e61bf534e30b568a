use std::marker::PhantomData;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{BadObject, Change, Decoder, Framing, Page, Reading, WatchEvent};
use crate::http::{ApiError, JSON, METADATA_ONLY, METADATA_ONLY_LIST};
use crate::object::ResourceVersion;
use crate::slim::json::{JsonMeta, SlimJson, Text, sniff};
use crate::slim::{DecodeContext, DecodeError};

/// The annotation of the bookmark that ends the objects of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes JSON. Kinds of which only metadata is needed are requested as `PartialObjectMetadata`.
/// [`Decoders::protobuf_or_json`](crate::informer::Decoders::protobuf_or_json) contains one; the
/// [module's example](crate::informer) uses it.
#[derive(Debug)]
pub struct JsonDecoder<K> {
    context: DecodeContext,
    /// Of single objects, all finalizers are kept: they are read for a write.
    whole: DecodeContext,
    kind: PhantomData<fn() -> K>,
}

impl<K: SlimJson> JsonDecoder<K> {
    /// A decoder that keeps what `context` selects.
    pub fn new(context: DecodeContext) -> Self {
        Self {
            whole: context.whole(),
            context,
            kind: PhantomData,
        }
    }

    fn object(&self, bytes: &[u8]) -> Result<K, DecodeError> {
        let json: K::Json<'_> = serde_json::from_slice(bytes)?;
        K::from_json(&json, &self.context)
    }
}

#[derive(Deserialize)]
struct JsonPage<'a> {
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: JsonListMeta<'a>,
    /// The API server always writes it, as `null` if the list is empty. A body without it is not a
    /// list and must not be taken for an empty one.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonListMeta<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow, default, rename = "continue")]
    continue_token: Option<Text<'a>>,
    #[serde(default)]
    remaining_item_count: Option<u64>,
}

#[derive(Deserialize)]
struct JsonEvent<'a, O> {
    #[serde(borrow, rename = "type")]
    event: Text<'a>,
    object: O,
}

impl<K: SlimJson> Decoder<K> for JsonDecoder<K> {
    fn accept(&self, reading: Reading) -> &'static str {
        match (K::METADATA_ONLY, reading) {
            (false, _) => JSON,
            (true, Reading::List) => METADATA_ONLY_LIST,
            (true, Reading::Object | Reading::Watch) => METADATA_ONLY,
        }
    }

    fn content_types(&self) -> &'static [&'static str] {
        &[JSON]
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn decode_object(&self, bytes: &[u8]) -> Result<K, DecodeError> {
        let json: K::Json<'_> = serde_json::from_slice(bytes)?;
        K::from_json(&json, &self.whole)
    }

    fn decode_page(&self, bytes: &Bytes) -> Result<Page<K>, DecodeError> {
        let page: JsonPage<'_> = serde_json::from_slice(bytes)?;
        if let Some(kind) = page.kind.filter(|kind| !kind.ends_with("List")) {
            return Err(DecodeError::value("kind", &kind));
        }
        let version = &page.metadata.resource_version;
        let resource_version = ResourceVersion::parse(version)
            .ok_or_else(|| DecodeError::value("metadata.resourceVersion", version))?;
        #[allow(
            clippy::result_large_err,
            reason = "a page holds its items, bad ones too"
        )]
        let item = |raw: &RawValue| {
            let bytes = raw.get().as_bytes();
            self.object(bytes)
                .map_err(|why| bad(bytes, Some(Change::Present), why))
        };
        let items = page
            .items
            .unwrap_or_default()
            .into_iter()
            .map(item)
            .collect();
        let token = page
            .metadata
            .continue_token
            .filter(|token| !token.is_empty());
        Ok(Page {
            items,
            resource_version,
            continue_token: token.map(|token| token.to_string()),
            remaining: page.metadata.remaining_item_count,
        })
    }

    fn decode_watch_event(&self, frame: &[u8]) -> WatchEvent<K> {
        self.event(frame).unwrap_or_else(|why| {
            let identity = sniff(frame);
            let change = identity.event.as_deref().and_then(|event| match event {
                "ADDED" | "MODIFIED" => Some(Change::Present),
                "DELETED" => Some(Change::Gone),
                _ => None,
            });
            WatchEvent::Bad(bad(frame, change, why))
        })
    }
}

impl<K: SlimJson> JsonDecoder<K> {
    fn event(&self, frame: &[u8]) -> Result<WatchEvent<K>, DecodeError> {
        let event: JsonEvent<'_, K::Json<'_>> = match serde_json::from_slice(frame) {
            Ok(event) => event,
            // A Status can have fields of other types than the slim kind expects.
            Err(why) => return error_event(frame)?.ok_or_else(|| why.into()),
        };
        let json = event.object;
        match &*event.event {
            "ADDED" => K::from_json(&json, &self.context).map(WatchEvent::Added),
            "MODIFIED" => K::from_json(&json, &self.context).map(WatchEvent::Modified),
            "DELETED" => K::from_json(&json, &self.context).map(WatchEvent::Deleted),
            "BOOKMARK" => bookmark(K::json_meta(&json)),
            "ERROR" => error_event(frame)?.ok_or(DecodeError::Missing("object")),
            other => Err(DecodeError::value("type", other)),
        }
    }
}

fn bookmark<K>(meta: &JsonMeta<'_>) -> Result<WatchEvent<K>, DecodeError> {
    let ends = meta.annotation(INITIAL_EVENTS_END);
    Ok(WatchEvent::Bookmark {
        resource_version: meta.resource_version()?,
        initial_events_end: ends.as_deref() == Some("true"),
    })
}

/// Decodes the event as an error; `None` if it is another event.
fn error_event<K>(frame: &[u8]) -> Result<Option<WatchEvent<K>>, DecodeError> {
    let event: JsonEvent<'_, &RawValue> = serde_json::from_slice(frame)?;
    if &*event.event != "ERROR" {
        return Ok(None);
    }
    let bytes = event.object.get().as_bytes();
    let error =
        ApiError::from_status(bytes).unwrap_or_else(|| ApiError::from_answer(0, None, bytes));
    Ok(Some(WatchEvent::Error(Box::new(error))))
}

fn bad(bytes: &[u8], change: Option<Change>, why: DecodeError) -> BadObject {
    let identity = sniff(bytes);
    BadObject {
        key: identity.key(),
        uid: identity.uid(),
        resource_version: identity.resource_version(),
        change,
        why,
    }
}
