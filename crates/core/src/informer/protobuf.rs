use std::marker::PhantomData;

use bytes::Bytes;

use super::{BadObject, Change, Decoder, Framing, Page, Reading, WatchEvent};
use crate::http::ApiError;
use crate::object::ResourceVersion;
use crate::slim::protobuf::{
    Envelope, Fields, PROTOBUF, SlimProtobuf, annotation, identity, version_of,
};
use crate::slim::{DecodeContext, DecodeError};

const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

const METADATA_ONLY: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const METADATA_ONLY_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The annotation of the bookmark that ends the objects of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes Kubernetes' protobuf. Kinds of which only metadata is needed are requested as
/// `PartialObjectMetadata`, including custom resources; whole custom resources are available as
/// JSON only.
///
/// Combine it with a [`JsonDecoder`](super::JsonDecoder) for servers that do not support protobuf:
/// [`Decoders::or`](super::Decoders::or).
///
/// [`Decoders::protobuf_or_json`](crate::informer::Decoders::protobuf_or_json) contains one; the
/// [module's example](crate::informer) uses it.
#[derive(Debug)]
pub struct ProtobufDecoder<K> {
    context: DecodeContext,
    /// Of single objects, all finalizers are kept: they are read for a write.
    whole: DecodeContext,
    kind: PhantomData<fn() -> K>,
}

impl<K: SlimProtobuf> ProtobufDecoder<K> {
    /// A decoder that keeps what `context` selects.
    pub fn new(context: DecodeContext) -> Self {
        Self {
            whole: context.whole(),
            context,
            kind: PhantomData,
        }
    }

    fn object(&self, message: &[u8]) -> Result<K, DecodeError> {
        K::from_protobuf(message, &self.context)
    }

    fn event(&self, frame: Raw<'_>) -> Result<WatchEvent<K>, DecodeError> {
        let Envelope { message, .. } = Envelope::open(frame.object)?;
        match frame.event {
            b"ADDED" => self.object(message).map(WatchEvent::Added),
            b"MODIFIED" => self.object(message).map(WatchEvent::Modified),
            b"DELETED" => self.object(message).map(WatchEvent::Deleted),
            b"BOOKMARK" => bookmark(message),
            b"ERROR" => Ok(WatchEvent::Error(Box::new(
                ApiError::from_status(frame.object)
                    .unwrap_or_else(|| ApiError::from_answer(0, None, frame.object)),
            ))),
            other => Err(DecodeError::value("type", &String::from_utf8_lossy(other))),
        }
    }
}

/// A watch event before its object is decoded.
#[derive(Default)]
struct Raw<'a> {
    event: &'a [u8],
    /// The object with its envelope.
    object: &'a [u8],
}

impl<'a> Raw<'a> {
    fn read(fields: Fields<'a>) -> Result<Self, DecodeError> {
        let mut raw = Self::default();
        raw.read_on(fields)?;
        Ok(raw)
    }

    fn read_on(&mut self, fields: Fields<'a>) -> Result<(), DecodeError> {
        for field in fields {
            let field = field?;
            match field.number {
                1 => self.event = field.bytes("type")?,
                2 => {
                    for field in Fields::of_broken(field.bytes("object")?) {
                        let field = field?;
                        if field.number == 1 {
                            self.object = field.bytes("object")?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn change(&self) -> Option<Change> {
        match self.event {
            b"ADDED" | b"MODIFIED" => Some(Change::Present),
            b"DELETED" => Some(Change::Gone),
            _ => None,
        }
    }
}

impl<K: SlimProtobuf> Decoder<K> for ProtobufDecoder<K> {
    fn accept(&self, reading: Reading) -> &'static str {
        match (K::METADATA_ONLY, reading) {
            (false, Reading::Watch) => PROTOBUF_WATCH,
            (false, _) => PROTOBUF,
            (true, Reading::List) => METADATA_ONLY_LIST,
            (true, Reading::Object | Reading::Watch) => METADATA_ONLY,
        }
    }

    fn content_types(&self) -> &'static [&'static str] {
        &[PROTOBUF]
    }

    fn framing(&self) -> Framing {
        Framing::LengthPrefixed
    }

    fn decode_object(&self, bytes: &[u8]) -> Result<K, DecodeError> {
        K::from_protobuf(Envelope::open(bytes)?.message, &self.whole)
    }

    fn decode_page(&self, bytes: &Bytes) -> Result<Page<K>, DecodeError> {
        let envelope = Envelope::open(bytes)?;
        if !envelope.kind.ends_with(b"List") {
            let kind = String::from_utf8_lossy(envelope.kind);
            return Err(DecodeError::value("kind", &kind));
        }
        let mut page = Page {
            items: Vec::new(),
            resource_version: ResourceVersion::default(),
            continue_token: None,
            remaining: None,
        };
        let mut has_metadata = false;
        for field in Fields::of(envelope.message) {
            let field = field?;
            match field.number {
                1 => {
                    has_metadata = true;
                    read_list_meta(field.bytes("metadata")?, &mut page)?;
                }
                2 => {
                    let message = field.bytes("items")?;
                    let item = self.object(message);
                    page.items
                        .push(item.map_err(|why| bad(message, Some(Change::Present), why)));
                }
                _ => {}
            }
        }
        // A body without metadata is not a list and must not be taken for an empty one.
        if !has_metadata {
            return Err(DecodeError::Missing("metadata"));
        }
        Ok(page)
    }

    fn decode_watch_event(&self, frame: &[u8]) -> WatchEvent<K> {
        let read = Raw::read(Fields::of(frame)).and_then(|raw| self.event(raw));
        read.unwrap_or_else(|why| {
            // The frame may be truncated: the fields before are used.
            let mut raw = Raw::default();
            let _ = raw.read_on(Fields::of_broken(frame));
            let message = Envelope::open_broken(raw.object).map(|envelope| envelope.message);
            WatchEvent::Bad(bad(message.unwrap_or_default(), raw.change(), why))
        })
    }
}

fn read_list_meta<K>(message: &[u8], page: &mut Page<K>) -> Result<(), DecodeError> {
    let mut version = None;
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            2 => version = Some(field.text("metadata.resourceVersion")?),
            3 => {
                let token = field.text("metadata.continue")?;
                page.continue_token = (!token.is_empty()).then(|| token.into_owned());
            }
            4 => page.remaining = u64::try_from(field.integer("metadata.remainingItemCount")?).ok(),
            _ => {}
        }
    }
    let version = version.ok_or(DecodeError::Missing("metadata.resourceVersion"))?;
    page.resource_version = ResourceVersion::parse(&version)
        .ok_or_else(|| DecodeError::value("metadata.resourceVersion", &version))?;
    Ok(())
}

fn bookmark<K>(message: &[u8]) -> Result<WatchEvent<K>, DecodeError> {
    let mut metadata: &[u8] = &[];
    for field in Fields::of(message) {
        let field = field?;
        if field.number == 1 {
            metadata = field.bytes("metadata")?;
        }
    }
    Ok(WatchEvent::Bookmark {
        resource_version: version_of(metadata)?,
        initial_events_end: annotation(metadata, INITIAL_EVENTS_END).as_deref() == Some("true"),
    })
}

/// `message` is that of the object and may be truncated.
fn bad(message: &[u8], change: Option<Change>, why: DecodeError) -> BadObject {
    let identity = identity(message);
    BadObject {
        key: identity.key(),
        uid: identity.uid(),
        resource_version: identity.resource_version(),
        change,
        why,
    }
}
