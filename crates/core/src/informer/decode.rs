use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::http::{Answer, ApiError, RequestError, media_type};
use crate::object::{ObjectKey, ResourceVersion, Uid};
use crate::slim::DecodeError;

/// Decodes one wire format into slim objects of one kind.
///
/// A decoder names the formats it requests and the media types it decodes; the Content-Type of the
/// response selects the decoder.
///
/// [`Decoders::protobuf_or_json`](crate::informer::Decoders::protobuf_or_json) makes those of a
/// [slim kind](crate::slim::protobuf), so that few programs implement it.
pub trait Decoder<K>: Send + Sync + 'static {
    /// The formats to request, best first, as in an Accept header.
    fn accept(&self, reading: Reading) -> &'static str;

    /// The media types that it decodes, without parameters.
    fn content_types(&self) -> &'static [&'static str];

    /// How events are separated in a watch stream.
    fn framing(&self) -> Framing;

    /// Decodes one object.
    ///
    /// # Errors
    ///
    /// If the bytes are not such an object.
    fn decode_object(&self, bytes: &[u8]) -> Result<K, DecodeError>;

    /// Decodes one page of a list. A bad item does not affect the others.
    ///
    /// # Errors
    ///
    /// If the bytes are not a list; then they are no evidence of what exists.
    fn decode_page(&self, bytes: &Bytes) -> Result<Page<K>, DecodeError>;

    /// Decodes one event of a watch, without its framing.
    fn decode_watch_event(&self, frame: &[u8]) -> WatchEvent<K>;
}

/// What a request reads. An argument of a [`Decoder`](crate::informer::Decoder); those for a [slim
/// kind](crate::slim::protobuf) exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// How events are separated in a watch stream. A [`Decoder`](crate::informer::Decoder) names it;
/// those for a [slim kind](crate::slim::protobuf) exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One per line.
    Lines,
    /// Each is preceded by its length: four bytes, big-endian.
    LengthPrefixed,
}

/// One page of a list. A [`Decoder`](crate::informer::Decoder) returns it; those for a [slim
/// kind](crate::slim::protobuf) exist already.
#[derive(Debug)]
pub struct Page<K> {
    /// The items, in the server's order.
    pub items: Vec<Result<K, BadObject>>,
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    /// How many items follow, if the server says so.
    pub remaining: Option<u64>,
}

/// One event of a watch. A [`Decoder`](crate::informer::Decoder) returns it. Users of an informer
/// receive an [`Event`](crate::informer::Event).
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// An object appeared.
    Added(K),
    /// An object changed.
    Modified(K),
    /// An object was deleted; this is its last state.
    Deleted(K),
    /// Everything up to a version has been sent.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// Whether this ends the objects of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch with this error.
    Error(Box<ApiError>),
    /// An event that cannot be decoded.
    Bad(BadObject),
}

/// Whether the object of a watch event exists. Part of a
/// [`WatchEvent`](crate::informer::WatchEvent). Users of an informer receive an
/// [`Event`](crate::informer::Event).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It exists, new or changed.
    Present,
    /// It was deleted.
    Gone,
}

/// An object that cannot be decoded, with the fields that could be. A
/// [`Decoder`](crate::informer::Decoder) returns it, and the [informer](crate::informer) skips the
/// object.
#[derive(Debug)]
pub struct BadObject {
    /// Namespace and name.
    pub key: Option<ObjectKey>,
    /// UID.
    pub uid: Option<Uid>,
    /// Version.
    pub resource_version: Option<ResourceVersion>,
    /// Whether it exists or was deleted; an item of a list exists.
    pub change: Option<Change>,
    /// Why it cannot be decoded.
    pub why: DecodeError,
}

/// Which object an event that cannot be decoded is about.
pub(super) enum About<'a> {
    /// The object of this key.
    Object(&'a ObjectKey),
    /// Perhaps any: the event is damaged, or its object has no name.
    AnyObject,
    /// None, as an event of a type that a later API adds.
    NoObject,
}

impl BadObject {
    pub(super) fn about(&self) -> About<'_> {
        let is_damaged = matches!(
            self.why,
            DecodeError::Format(_) | DecodeError::TooLarge { .. }
        );
        match &self.key {
            Some(key) => About::Object(key),
            None if self.change.is_some() || is_damaged => About::AnyObject,
            None => About::NoObject,
        }
    }
}

/// The decoders of one kind, the preferred one first. The [module's example](crate::informer)
/// makes those of a kind of which only metadata is read.
pub struct Decoders<K>(Arc<[Arc<dyn Decoder<K>>]>);

impl<K: 'static> Decoders<K> {
    /// Decoders with one decoder.
    pub fn new(decoder: impl Decoder<K>) -> Self {
        Self(Arc::from([Arc::new(decoder) as Arc<dyn Decoder<K>>]))
    }

    /// Adds a less preferred decoder.
    #[must_use]
    pub fn or(self, decoder: impl Decoder<K>) -> Self {
        let more: Arc<dyn Decoder<K>> = Arc::new(decoder);
        Self(self.0.iter().cloned().chain([more]).collect())
    }

    /// The Accept header that requests all formats in order.
    pub fn accept(&self, reading: Reading) -> String {
        let all: Vec<&str> = self
            .0
            .iter()
            .map(|decoder| decoder.accept(reading))
            .collect();
        all.join(",")
    }

    /// The decoder of a Content-Type; `None` if there is none. An empty Content-Type means JSON.
    pub fn pick(&self, content_type: &str) -> Option<&Arc<dyn Decoder<K>>> {
        let sent = match media_type(content_type) {
            "" => crate::http::JSON,
            sent => sent,
        };
        let reads = |d: &&Arc<dyn Decoder<K>>| {
            d.content_types()
                .iter()
                .any(|have| have.eq_ignore_ascii_case(sent))
        };
        self.0.iter().find(reads)
    }

    /// As [`Decoders::pick`], for a response that must have a requested format.
    ///
    /// # Errors
    ///
    /// If no decoder decodes that format.
    pub fn that_reads(&self, content_type: &str) -> Result<&Arc<dyn Decoder<K>>, RequestError> {
        self.pick(content_type).ok_or_else(|| {
            RequestError::Decode(format!("content type {content_type:?} was not requested"))
        })
    }

    /// Decodes the page of a list in `answer`, in any of the formats.
    ///
    /// # Errors
    ///
    /// If no decoder decodes that format, or the body is not such a list.
    pub fn read_page(&self, answer: &Answer) -> Result<Page<K>, RequestError> {
        self.that_reads(&answer.content_type)?
            .decode_page(&answer.body)
            .map_err(|why| RequestError::Decode(why.to_string()))
    }

    /// Decodes the object in `answer`, in any of the formats.
    ///
    /// # Errors
    ///
    /// If no decoder decodes that format, or the body is not such an object.
    pub fn read(&self, answer: &Answer) -> Result<K, DecodeError> {
        match self.pick(&answer.content_type) {
            Some(decoder) => decoder.decode_object(&answer.body),
            None => Err(DecodeError::Format(format!(
                "cannot read {:?}",
                answer.content_type
            ))),
        }
    }
}

impl<K> Clone for Decoders<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: 'static> fmt::Debug for Decoders<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|d| d.content_types()))
            .finish()
    }
}
