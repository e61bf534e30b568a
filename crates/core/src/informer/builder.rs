use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::backoff::Backoff;
use super::table::IndexDefinition;
use super::telemetry::Telemetry;
use super::{Decoders, Handler, Store};
use crate::failure_log::FailureLog;
use crate::http::Request;
use crate::object::Resource;
use crate::slim::Slim;

/// Where an informer looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// In the whole cluster.
    All,
    /// In one namespace.
    Namespace(Arc<str>),
}

/// Whether lists may come as streams of single objects, which costs both sides less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingList {
    /// Tried; a server that refuses, or never says that the list is complete, is asked for pages
    /// from then on. One whose streams break three times in a row is asked for that list in pages.
    Auto,
    /// Pages only.
    Never,
}

/// Lists and watches one kind into a [`Store`], until it is stopped.
pub struct Informer<K> {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) path: String,
    pub(super) decoders: Decoders<K>,
    pub(super) handlers: Vec<Arc<dyn Handler<K>>>,
    pub(super) settings: Settings,
    pub(super) store: Store<K>,
    pub(super) backoff: Backoff,
    pub(super) telemetry: Telemetry,
    pub(super) failure_log: FailureLog,
    /// Lists in a row that were older than the store.
    pub(super) older_lists: u32,
    /// Watches in a row that the server refused to continue.
    pub(super) refused_watches: u32,
    /// Whether this server has sent bookmarks: then their absence means something.
    pub(super) bookmarks: bool,
    /// Whether the kind was not served when the server was last asked.
    pub(super) unserved: bool,
}

/// What can be set, and its defaults.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// `fieldSelector` of every list and watch.
    pub(super) fields: Option<String>,
    pub(super) streaming: StreamingList,
    pub(super) page_size: u32,
    /// For one page, body included.
    pub(super) page_timeout: Duration,
    /// For the head of a watch's answer.
    pub(super) open_timeout: Duration,
    /// After this long the server is asked to end a watch.
    pub(super) watch_timeout: Duration,
    /// How long a streaming list may go without a further object.
    pub(super) initial_idle: Duration,
    /// How long a whole streaming list may take.
    pub(super) initial_limit: Duration,
    /// How long a watch of a server that sends bookmarks (every minute) may be silent.
    pub(super) bookmark_idle: Duration,
    /// How long a server may tell of the past only.
    pub(super) lag_limit: Duration,
    pub(super) frame_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fields: None,
            streaming: StreamingList::Auto,
            page_size: 500,
            page_timeout: Duration::from_secs(60),
            open_timeout: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(290),
            initial_idle: Duration::from_secs(30),
            initial_limit: Duration::from_secs(600),
            bookmark_idle: Duration::from_secs(150),
            lag_limit: Duration::from_secs(90),
            frame_limit: 32 << 20,
        }
    }
}

impl<K: Slim> Informer<K> {
    /// Starts to describe an informer of one kind.
    pub fn builder(
        client: Client,
        resource: Resource,
        decoders: Decoders<K>,
    ) -> InformerBuilder<K> {
        InformerBuilder {
            client,
            resource,
            decoders,
            scope: Scope::All,
            indexes: Vec::new(),
            handlers: Vec::new(),
            settings: Settings::default(),
            seed: None,
        }
    }

    /// Adds somebody to be told of every event, as [`InformerBuilder::handler`] does: for a
    /// handler that itself reads the store.
    pub fn add_handler(&mut self, handler: Arc<dyn Handler<K>>) {
        self.handlers.push(handler);
    }
}

impl<K> Informer<K> {
    /// The request, limited to the objects that this informer is about.
    pub(super) fn selecting(&self, request: Request) -> Request {
        match &self.settings.fields {
            Some(fields) => request.query("fieldSelector", fields),
            None => request,
        }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// Describes an [`Informer`].
#[must_use]
pub struct InformerBuilder<K> {
    client: Client,
    resource: Resource,
    decoders: Decoders<K>,
    scope: Scope,
    indexes: Vec<IndexDefinition<K>>,
    handlers: Vec<Arc<dyn Handler<K>>>,
    settings: Settings,
    seed: Option<u64>,
}

impl<K: Slim> InformerBuilder<K> {
    /// Where to look; everywhere by default.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Only objects with these fields, such as `spec.nodeName=node-1`; all by default.
    ///
    /// To a reader, an object that loses the field is gone, and its event is that of a deletion. So take
    /// fields that are set once, or such that an object without them is none of the reader's business.
    /// Never labels: anybody can change those.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.settings.fields = Some(selector.into());
        self
    }

    /// Adds an index: objects are found under `name` by each of the values that `values` shows.
    /// Values may depend only on what [`Slim::differs`] compares, and must always be the same for
    /// the same object: they are not stored, but asked for again.
    pub fn index(
        mut self,
        name: &'static str,
        values: impl Fn(&K, &mut dyn FnMut(&str)) + Send + Sync + 'static,
    ) -> Self {
        self.indexes.push(IndexDefinition {
            name,
            values: Box::new(values),
        });
        self
    }

    /// Adds somebody to be told of every event. Handlers are called one after the other, in the
    /// order in which they were added.
    pub fn handler(mut self, handler: Arc<dyn Handler<K>>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// How many objects to ask for at once where lists come in pages; 500 by default.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.settings.page_size = objects.max(1);
        self
    }

    /// Whether to try streaming lists; [`StreamingList::Auto`] by default.
    pub fn streaming_list(mut self, streaming: StreamingList) -> Self {
        self.settings.streaming = streaming;
        self
    }

    /// The largest watch event that is read, in bytes; 32 MiB by default. A larger one is a bad
    /// object.
    pub fn frame_limit(mut self, bytes: usize) -> Self {
        self.settings.frame_limit = bytes;
        self
    }

    /// Makes all delays repeatable, for simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The informer, to be run, and its store, to be read.
    pub fn build(self) -> (Informer<K>, Store<K>) {
        let store = Store::new(self.indexes.into());
        let path = match &self.scope {
            Scope::All => self.resource.path(None),
            Scope::Namespace(namespace) => self.resource.path(Some(namespace)),
        };
        let informer = Informer {
            client: self.client,
            path,
            decoders: self.decoders,
            handlers: self.handlers,
            settings: self.settings,
            store: store.clone(),
            backoff: Backoff::new(self.seed.unwrap_or_else(crate::ambient::bits)),
            telemetry: Telemetry::new(&self.resource),
            failure_log: FailureLog::default(),
            resource: self.resource,
            older_lists: 0,
            refused_watches: 0,
            bookmarks: false,
            unserved: false,
        };
        (informer, store)
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}
