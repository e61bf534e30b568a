use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::http::{Answer, ApiError, RequestError, media_type};
use crate::object::{ObjectKey, ResourceVersion, Uid};
use crate::slim::DecodeError;

/// Reads one wire format into slim objects of one kind.
///
/// A decoder names the formats it asks for and the media types that it reads; which decoder runs
/// is decided by what the server then says it sends.
pub trait Decoder<K>: Send + Sync + 'static {
    /// What to ask for, best first, as it stands in an Accept header.
    fn accept(&self, reading: Reading) -> &'static str;

    /// The media types that it reads, without parameters.
    fn content_types(&self) -> &'static [&'static str];

    /// How events are told apart in a watch stream.
    fn framing(&self) -> Framing;

    /// Reads one object.
    ///
    /// # Errors
    ///
    /// When the bytes are no such object.
    fn decode_object(&self, bytes: &[u8]) -> Result<K, DecodeError>;

    /// Reads one page of a list. A bad item costs itself only.
    ///
    /// # Errors
    ///
    /// When the bytes are no list: that says nothing about what exists.
    fn decode_page(&self, bytes: &Bytes) -> Result<Page<K>, DecodeError>;

    /// Reads one event of a watch, without its framing.
    fn decode_watch_event(&self, frame: &[u8]) -> WatchEvent<K>;
}

/// What a request will read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// How events are told apart in a watch stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One per line.
    Lines,
    /// Each after its length: four bytes, big-endian.
    LengthPrefixed,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<K> {
    /// The items, in the server's order.
    pub items: Vec<Result<K, BadObject>>,
    /// The version that the list shows.
    pub resource_version: ResourceVersion,
    /// What to ask the next page with; `None` on the last.
    pub continue_token: Option<String>,
    /// How many items are still to come, if the server says so.
    pub remaining: Option<u64>,
}

/// One event of a watch.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// An object appeared.
    Added(K),
    /// An object changed.
    Modified(K),
    /// An object is gone; this is its last state.
    Deleted(K),
    /// Everything up to a version has been sent.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// Whether this ends the objects of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch and says why.
    Error(Box<ApiError>),
    /// Something that cannot be read.
    Bad(BadObject),
}

/// What a watch event says of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is there, new or changed.
    Present,
    /// It is gone.
    Gone,
}

/// An object that cannot be read, and what could be read of it.
#[derive(Debug)]
pub struct BadObject {
    /// Namespace and name.
    pub key: Option<ObjectKey>,
    /// UID.
    pub uid: Option<Uid>,
    /// Version.
    pub resource_version: Option<ResourceVersion>,
    /// Whether it is there or gone; an item of a list is there.
    pub change: Option<Change>,
    /// Why it cannot be read.
    pub why: DecodeError,
}

/// The decoders of one kind, the preferred one first.
pub struct Decoders<K>(Arc<[Arc<dyn Decoder<K>>]>);

impl<K: 'static> Decoders<K> {
    /// One decoder.
    pub fn new(decoder: impl Decoder<K>) -> Self {
        Self(Arc::from([Arc::new(decoder) as Arc<dyn Decoder<K>>]))
    }

    /// One more, less preferred than those before.
    #[must_use]
    pub fn or(self, decoder: impl Decoder<K>) -> Self {
        let more: Arc<dyn Decoder<K>> = Arc::new(decoder);
        Self(self.0.iter().cloned().chain([more]).collect())
    }

    /// The Accept header that asks for all of them in order.
    pub fn accept(&self, reading: Reading) -> String {
        let all: Vec<&str> = self
            .0
            .iter()
            .map(|decoder| decoder.accept(reading))
            .collect();
        all.join(",")
    }

    /// The decoder that reads what the server sends; `None` if none does. A server that does not
    /// say is taken to send JSON.
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

    /// The same where the server has to send what was asked for.
    ///
    /// # Errors
    ///
    /// When no decoder reads that format.
    pub fn that_reads(&self, content_type: &str) -> Result<&Arc<dyn Decoder<K>>, RequestError> {
        self.pick(content_type).ok_or_else(|| {
            RequestError::Decode(format!("content type {content_type:?} was not asked for"))
        })
    }

    /// Reads the page of a list in `answer`, whatever format the server chose.
    ///
    /// # Errors
    ///
    /// When no decoder reads that format, or the body is no such list.
    pub fn read_page(&self, answer: &Answer) -> Result<Page<K>, RequestError> {
        self.that_reads(&answer.content_type)?
            .decode_page(&answer.body)
            .map_err(|why| RequestError::Decode(why.to_string()))
    }

    /// Reads the one object in `answer`, whatever format the server chose.
    ///
    /// # Errors
    ///
    /// When no decoder reads that format, or the body is no such object.
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
