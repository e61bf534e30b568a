use tokio::time::{Instant, timeout_at};

use super::decode::{About, Change};
use super::reflector::Cause;
use super::store::{Fit, Unreadable};
use super::table::Table;
use super::watch::{Stream, Watching};
use super::{BadObject, Event, Informer, InformerState, Reading, StreamingList, WatchEvent};
use crate::http::{ApiError, ErrorClass, Pages, RequestError};
use crate::object::{ObjectKey, ResourceVersion, Uid};
use crate::slim::Slim;

/// How many lists may be older than the store before one is accepted.
const OLDER_LISTS: u32 = 3;

/// How many consecutive streaming lists may break before one list is read in pages.
const BROKEN_STREAMS: u32 = 3;

/// The limit of a page, in bytes (T3). A larger page is requested again with half of the objects.
const PAGE_LIMIT: usize = 32 << 20;

/// A list while it is being received.
struct Listing<K> {
    staged: Table<K>,
    unreadable: Unreadable,
    skipped: Vec<Option<ObjectKey>>,
    version: ResourceVersion,
}

impl<K: Slim> Listing<K> {
    /// The object was deleted while it was listed.
    fn remove(&mut self, key: &ObjectKey, uid: &Uid) {
        self.unreadable.forget(key);
        if self.staged.get(key).is_some_and(|have| have.uid() == uid) {
            self.staged.remove(key);
        }
    }
}

/// Why a list failed.
enum ListError {
    /// The server does not support streaming lists.
    NoStreaming,
    /// The list is older than the store.
    Older(ResourceVersion),
    /// Anything else.
    Request(RequestError),
}

impl From<RequestError> for ListError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl<K: Slim> Informer<K> {
    /// Lists until a list is complete and in the store. A streaming list continues as a watch.
    pub(super) async fn list_until_complete(&mut self, cause: Cause) -> Option<Stream<K>> {
        let mut broken = 0;
        self.opened = None;
        loop {
            let mode = if broken < BROKEN_STREAMS {
                self.settings.streaming
            } else {
                // Something on the path, such as a proxy, interrupts long responses. Pages are
                // short.
                StreamingList::Never
            };
            match self.list(mode, cause).await {
                Ok(stream) => return stream,
                Err(ListError::NoStreaming) => {
                    tracing::info!(
                        kind = self.telemetry.kind(),
                        "the server does not support streaming lists; reading lists in pages"
                    );
                    self.settings.streaming = StreamingList::Never;
                }
                Err(ListError::Older(version)) => {
                    let known = self.store.resource_version();
                    let why =
                        format!("a list at {version} is older than the store, which is at {known}");
                    self.back_off(&RequestError::Decode(why)).await;
                }
                Err(ListError::Request(error)) => {
                    self.settings.page_size = match &error {
                        // The server forgot the version of the list: fewer pages take less time (L5).
                        gone if gone.class() == ErrorClass::Gone => {
                            (self.settings.page_size * 2).min(self.largest_page)
                        }
                        RequestError::TooLarge { .. } => {
                            self.largest_page = (self.settings.page_size / 2).max(1);
                            self.largest_page
                        }
                        _ => self.settings.page_size,
                    };
                    if breaks_streams(&error) {
                        broken += 1;
                    }
                    self.back_off(&error).await;
                }
            }
        }
    }

    async fn list(
        &mut self,
        mode: StreamingList,
        cause: Cause,
    ) -> Result<Option<Stream<K>>, ListError> {
        let (listing, stream) = match mode {
            StreamingList::Auto => {
                let (listing, stream) = self.list_by_stream().await?;
                (listing, Some(stream))
            }
            StreamingList::Never => (self.list_by_pages().await?, None),
        };
        self.accept(listing, cause).await?;
        Ok(stream)
    }

    /// Puts a complete list into the store and calls the handlers.
    async fn accept(&mut self, listing: Listing<K>, cause: Cause) -> Result<(), ListError> {
        let Listing {
            staged,
            unreadable,
            skipped,
            version,
        } = listing;
        let fit = if version >= self.store.resource_version() {
            Fit::Follows
        } else if self.older_lists < OLDER_LISTS {
            self.older_lists += 1;
            return Err(ListError::Older(version));
        } else {
            Fit::Regresses
        };
        self.older_lists = 0;
        self.unserved = false;
        self.refused_watches = 0;
        let was_complete = self.store.is_synced();
        let first = cause == Cause::Initial;
        let events = self.store.replace(staged, unreadable, version, fit);
        if self.expired_watches == 0 {
            self.backoff.reset();
        }
        self.log_recovery();
        self.telemetry.contacted();
        self.telemetry.listed(cause.label(fit));
        self.telemetry.holds(self.store.len());
        for key in skipped {
            self.notify(&Event::Skipped { key });
        }
        self.notify_all(events).await;
        self.notify(&Event::Advanced {
            resource_version: version,
        });
        self.store.set_state(InformerState::Synced);
        if !was_complete {
            self.notify(&Event::Synced);
        }
        if !first {
            self.notify(&Event::Relisted {
                regressed: fit == Fit::Regresses,
            });
        }
        Ok(())
    }

    async fn list_by_pages(&mut self) -> Result<Listing<K>, ListError> {
        let mut listing = self.listing();
        let mut pages = Pages::of(self.settings.page_size);
        loop {
            let answer = self
                .selecting(pages.request(&self.path))
                .accept(self.decoders.accept(Reading::List))
                .timeout(self.settings.page_timeout)
                .body_limit(PAGE_LIMIT)
                .send(&self.client)
                .await?;
            self.telemetry.contacted();
            let page = self.decoders.read_page(&answer)?;
            if pages.is_first() {
                // The watch starts from the version of the first page: later pages may be newer.
                listing.version = page.resource_version;
            }
            for item in page.items {
                match item {
                    Ok(object) => self.stage(&mut listing, object),
                    Err(bad) => self.skip(&mut listing, &bad),
                }
            }
            if !pages.turn(page.continue_token)? {
                return Ok(listing);
            }
        }
    }

    async fn list_by_stream(&mut self) -> Result<(Listing<K>, Stream<K>), ListError> {
        let mut stream = match self.open(Watching::Everything).await {
            Err(RequestError::Api(error)) if refuses_streaming(&error) => {
                return Err(ListError::NoStreaming);
            }
            opened => opened?,
        };
        let mut listing = self.listing();
        let limit = Instant::now() + self.settings.initial_limit;
        let mut idle = Instant::now() + self.settings.initial_idle;
        let mut silent = true;
        loop {
            let event = match timeout_at(idle.min(limit), stream.next()).await {
                Err(_) if silent => {
                    let idle = self.settings.initial_idle;
                    return Err(RequestError::Timeout(idle).into());
                }
                // A server that does not know the parameters only watches.
                Err(_) => return Err(ListError::NoStreaming),
                Ok(next) => next?.ok_or_else(ended_early)?,
            };
            silent = false;
            self.telemetry.contacted();
            match event {
                WatchEvent::Added(object) => {
                    idle = Instant::now() + self.settings.initial_idle;
                    self.stage(&mut listing, object);
                }
                WatchEvent::Modified(object) => self.stage(&mut listing, object),
                WatchEvent::Deleted(object) => {
                    listing.remove(object.key(), object.uid());
                }
                WatchEvent::Bookmark {
                    resource_version,
                    initial_events_end: true,
                } => {
                    listing.version = resource_version;
                    self.bookmarks = true;
                    return Ok((listing, stream));
                }
                WatchEvent::Bookmark { .. } => {}
                WatchEvent::Error(error) if refuses_streaming(&error) => {
                    return Err(ListError::NoStreaming);
                }
                WatchEvent::Error(error) => return Err(RequestError::Api(error).into()),
                WatchEvent::Bad(bad) => match (bad.about(), bad.change, &bad.uid) {
                    (About::Object(key), Some(Change::Gone), Some(uid)) => {
                        self.telemetry.skipped(&bad);
                        listing.remove(key, uid);
                    }
                    (About::Object(_), ..) => self.skip(&mut listing, &bad),
                    // Something on the path may have damaged it: the next stream has it again, or in the end a page.
                    (About::AnyObject, ..) => {
                        self.telemetry.skipped(&bad);
                        return Err(RequestError::Decode(bad.why.to_string()).into());
                    }
                    (About::NoObject, ..) => self.telemetry.skipped(&bad),
                },
            }
        }
    }

    fn listing(&self) -> Listing<K> {
        Listing {
            staged: self.store.stage(),
            unreadable: Unreadable::default(),
            skipped: Vec::new(),
            version: ResourceVersion::default(),
        }
    }

    fn stage(&self, listing: &mut Listing<K>, object: K) {
        let newer = |have: &K| have.resource_version() > object.resource_version();
        if listing
            .staged
            .get(object.key())
            .is_some_and(|have| newer(have))
        {
            return;
        }
        listing.unreadable.forget(object.key());
        listing.staged.insert(self.store.staged(object));
    }

    fn skip(&self, listing: &mut Listing<K>, bad: &BadObject) {
        self.telemetry.skipped(bad);
        listing.unreadable.note(bad.key.as_ref());
        listing.skipped.push(bad.key.clone());
    }
}

fn ended_early() -> RequestError {
    RequestError::Decode("the stream ended before the list was complete".to_owned())
}

/// Whether a list that failed with this error may succeed in pages. If the server cannot be reached
/// or is overloaded, pages would fail too.
fn breaks_streams(error: &RequestError) -> bool {
    match error {
        RequestError::Interrupted(_) | RequestError::Timeout(_) | RequestError::Decode(_) => true,
        _ => matches!(error.class(), ErrorClass::Server | ErrorClass::Timeout),
    }
}

/// Whether the server refuses streaming lists. The status code depends on the server's version and
/// on proxies in front of it.
fn refuses_streaming(error: &ApiError) -> bool {
    match error.class() {
        ErrorClass::Invalid | ErrorClass::Unsupported => true,
        ErrorClass::Forbidden => {
            error.reason == "Invalid"
                || error.message.contains("sendInitialEvents")
                || error.message.contains("resourceVersionMatch")
        }
        _ => false,
    }
}
