use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::store::Updates;
use super::table::IndexDefinition;
use super::telemetry::Telemetry;
use super::{Decoders, Handler, Store};
use crate::failure_log::FailureLog;
use crate::http::Request;
use crate::object::Resource;
use crate::slim::Slim;

/// The namespaces that an informer lists and watches. The argument of
/// [`InformerBuilder::scope`](crate::informer::InformerBuilder::scope). Without it, as in the
/// [example](crate::informer), all namespaces are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster.
    All,
    /// One namespace.
    Namespace(Arc<str>),
}

/// Whether lists may be streamed object by object, which costs client and server less memory. The
/// argument of
/// [`InformerBuilder::streaming_list`](crate::informer::InformerBuilder::streaming_list); the
/// [example](crate::informer) leaves the choice to the informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingList {
    /// Tried first. If the server refuses, or never completes a streaming list, lists are read in
    /// pages from then on. If three streams break in a row, that one list is read in pages.
    Auto,
    /// Pages only.
    Never,
}

/// Lists and watches one kind into a [`Store`] until it is stopped. The [module's
/// example](crate::informer) watches Jobs.
#[must_use = "an informer does nothing before it runs"]
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
    /// The number of consecutive lists that were older than the store.
    pub(super) older_lists: u32,
    /// The number of consecutive watches that the server refused to continue.
    pub(super) refused_watches: u32,
    /// The number of watches in a row whose version had expired, without an event in between.
    pub(super) expired_watches: u32,
    /// Pages do not grow beyond this, in objects.
    pub(super) largest_page: u32,
    /// Whether this server sends bookmarks; if so, their absence is a failure.
    pub(super) bookmarks: bool,
    /// Whether the kind was not served at the last request.
    pub(super) unserved: bool,
    /// Since when no watch works, although lists may.
    pub(super) down: Option<Instant>,
    /// When the present watch began; `None` while there is none.
    pub(super) opened: Option<Instant>,
}

/// The largest page, in objects. Pages grow while the server forgets the version of a list before its last page.
const LARGEST_PAGE: u32 = 10_000;

/// The settings and their defaults.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// `fieldSelector` of every list and watch.
    pub(super) fields: Option<String>,
    pub(super) streaming: StreamingList,
    pub(super) page_size: u32,
    /// Timeout of one page, including the body.
    pub(super) page_timeout: Duration,
    /// Timeout of the response headers of a watch.
    pub(super) open_timeout: Duration,
    /// The server is asked to end a watch after this time.
    pub(super) watch_timeout: Duration,
    /// Maximum time between two objects of a streaming list.
    pub(super) initial_idle: Duration,
    /// Maximum time of a whole streaming list.
    pub(super) initial_limit: Duration,
    /// Maximum silence of a watch if the server sends bookmarks (one per minute).
    pub(super) bookmark_idle: Duration,
    /// Maximum time during which a watch may deliver only old events.
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
    /// Starts to build an informer of one kind.
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
            updates: Updates::default(),
            seed: None,
            label: None,
        }
    }

    /// Adds a handler of every event, as [`InformerBuilder::handler`] does: for a handler that
    /// itself reads the store.
    pub fn add_handler(&mut self, handler: Arc<dyn Handler<K>>) {
        self.handlers.push(handler);
    }
}

impl<K> Informer<K> {
    /// Restricts the request to the objects of this informer.
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

/// Builds an [`Informer`]. [`Informer::builder`](crate::informer::Informer::builder) returns one;
/// the [module's example](crate::informer) adds an index.
#[must_use]
pub struct InformerBuilder<K> {
    client: Client,
    resource: Resource,
    decoders: Decoders<K>,
    scope: Scope,
    indexes: Vec<IndexDefinition<K>>,
    handlers: Vec<Arc<dyn Handler<K>>>,
    settings: Settings,
    updates: Updates,
    seed: Option<u64>,
    label: Option<Arc<str>>,
}

impl<K: Slim> InformerBuilder<K> {
    /// Sets the namespaces to watch; the whole cluster by default.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Restricts the informer to objects with these fields, such as `spec.nodeName=node-1`; no
    /// restriction by default.
    ///
    /// An object whose field no longer matches looks deleted, and handlers get a deletion event. So
    /// use fields that are set once, or objects that are irrelevant without the field. Never use
    /// labels: any user can change them.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.settings.fields = Some(selector.into());
        self
    }

    /// Adds an index `name`: objects are found by each of the values that `values` emits. The
    /// values may depend only on what [`Slim::differs`] compares, and must always be the same for
    /// the same object: they are not stored but computed again.
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

    /// Adds a handler of every event. Handlers are called one after the other, in the order in
    /// which they were added.
    pub fn handler(mut self, handler: Arc<dyn Handler<K>>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// Makes every version of an object an [`Event::Updated`](super::Event::Updated): also one that differs only in
    /// fields that are not stored, such as the status of an object of which only the metadata is read.
    pub fn each_version(mut self) -> Self {
        self.updates = Updates::OfEachVersion;
        self
    }

    /// Sets how many objects a page of a list has; 500 by default.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.settings.page_size = objects.max(1);
        self
    }

    /// Sets whether streaming lists are tried; [`StreamingList::Auto`] by default.
    pub fn streaming_list(mut self, streaming: StreamingList) -> Self {
        self.settings.streaming = streaming;
        self
    }

    /// Sets the limit of a watch event, in bytes; 32 MiB by default. A larger event is treated as a
    /// bad object.
    pub fn frame_limit(mut self, bytes: usize) -> Self {
        self.settings.frame_limit = bytes;
        self
    }

    /// Makes all delays deterministic, for simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the label `kind` of its metrics; the Kind by default. Two informers must not have the same.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Returns the informer, to be run, and its store, to be read.
    pub fn build(self) -> (Informer<K>, Store<K>) {
        let label = self.label.unwrap_or_else(|| self.resource.kind.clone());
        let store = Store::new(self.indexes.into(), self.updates, Arc::clone(&label));
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
            backoff: Backoff::new(self.seed.unwrap_or_else(crate::rng::bits)),
            telemetry: Telemetry::new(label),
            failure_log: FailureLog::default(),
            resource: self.resource,
            older_lists: 0,
            refused_watches: 0,
            expired_watches: 0,
            largest_page: LARGEST_PAGE,
            bookmarks: false,
            unserved: false,
            down: None,
            opened: None,
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
