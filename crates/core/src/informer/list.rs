use tokio::time::{Instant, timeout_at};

use super::reflector::Cause;
use super::store::{Fit, Unreadable};
use super::table::Table;
use super::watch::{Stream, Watching};
use super::{BadObject, Event, Informer, InformerState, Reading, StreamingList, WatchEvent};
use crate::http::{ApiError, ErrorClass, Request, RequestError};
use crate::object::{ObjectKey, ResourceVersion};
use crate::slim::Slim;

/// Lists that may be older than the store before one of them is believed.
const OLDER_LISTS: u32 = 3;

/// Times that paging may expire before everything is asked for in one piece.
const EXPIRED_PAGES: u32 = 3;

/// Streaming lists in a row that may break before one list is asked for in pages.
const BROKEN_STREAMS: u32 = 3;

/// The largest page that is read, in bytes (T3). One that is larger is asked for in halves.
const PAGE_LIMIT: usize = 32 << 20;

/// The largest list that is read where the server cannot give it in pages, in bytes.
const WHOLE_LIMIT: usize = 512 << 20;

/// A list while it comes in.
struct Listing<K> {
    staged: Table<K>,
    unreadable: Unreadable,
    skipped: Vec<Option<ObjectKey>>,
    version: ResourceVersion,
}

/// Why there is no list.
enum Trouble {
    /// Streaming lists are not for this server.
    NoStreaming,
    /// The list is older than the store.
    Older(ResourceVersion),
    /// Anything else.
    Request(RequestError),
}

impl From<RequestError> for Trouble {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl<K: Slim> Informer<K> {
    /// Lists until a list is complete and in the store. A streaming list goes on as a watch.
    pub(super) async fn list_until_complete(&mut self, cause: Cause) -> Option<Stream<K>> {
        let mut expired = 0;
        let mut broken = 0;
        loop {
            let way = if broken < BROKEN_STREAMS {
                self.settings.streaming
            } else {
                // Something on the way, such as a proxy, does not let them end. Pages are small.
                StreamingList::Never
            };
            match self.list(way, cause, expired).await {
                Ok(stream) => return stream,
                Err(Trouble::NoStreaming) => {
                    tracing::info!(
                        kind = self.telemetry.kind(),
                        "no streaming lists, using pages"
                    );
                    self.settings.streaming = StreamingList::Never;
                }
                Err(Trouble::Older(version)) => {
                    let known = self.store.resource_version();
                    let why = format!("a list at {version} is older than what is known, {known}");
                    self.back_off(&RequestError::Decode(why)).await;
                }
                Err(Trouble::Request(error)) => {
                    if error.class() == ErrorClass::Gone {
                        expired += 1;
                    }
                    if breaks_streams(&error) {
                        broken += 1;
                    }
                    if matches!(error, RequestError::TooLarge { .. }) {
                        self.settings.page_size = (self.settings.page_size / 2).max(1);
                    }
                    self.back_off(&error).await;
                }
            }
        }
    }

    async fn list(
        &mut self,
        way: StreamingList,
        cause: Cause,
        expired: u32,
    ) -> Result<Option<Stream<K>>, Trouble> {
        let (listing, stream) = match way {
            StreamingList::Auto => {
                let (listing, stream) = self.list_by_stream().await?;
                (listing, Some(stream))
            }
            StreamingList::Never => (self.list_by_pages(expired).await?, None),
        };
        self.take(listing, cause).await?;
        Ok(stream)
    }

    /// Puts a complete list into the store and tells the handlers.
    async fn take(&mut self, listing: Listing<K>, cause: Cause) -> Result<(), Trouble> {
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
            return Err(Trouble::Older(version));
        } else {
            Fit::Regresses
        };
        self.older_lists = 0;
        self.unserved = false;
        self.refused_watches = 0;
        let was_complete = self.store.is_synced();
        let first = cause == Cause::Initial;
        let events = self.store.replace(staged, unreadable, version, fit);
        self.backoff.reset();
        self.works_again();
        self.telemetry.heard();
        self.telemetry.listed(cause.label(fit));
        self.telemetry.holds(self.store.len());
        for key in skipped {
            self.tell(&Event::Skipped { key });
        }
        self.emit(events).await;
        self.tell(&Event::Advanced {
            resource_version: version,
        });
        self.store.set_state(InformerState::Synced);
        if !was_complete {
            self.tell(&Event::Synced);
        }
        if !first {
            self.tell(&Event::Relisted {
                regressed: fit == Fit::Regresses,
            });
        }
        Ok(())
    }

    async fn list_by_pages(&mut self, expired: u32) -> Result<Listing<K>, Trouble> {
        let mut listing = self.listing();
        let mut token: Option<String> = None;
        loop {
            let (request, limit) = if expired < EXPIRED_PAGES {
                let size = self.settings.page_size;
                let page = Request::list(&self.path, size, token.as_deref());
                (page, PAGE_LIMIT)
            } else {
                (Request::get(&self.path), WHOLE_LIMIT)
            };
            let answer = self
                .selecting(request)
                .accept(self.decoders.accept(Reading::List))
                .timeout(self.settings.page_timeout)
                .body_limit(limit)
                .send(&self.client)
                .await?;
            self.telemetry.heard();
            let page = self.decoders.read_page(&answer)?;
            if token.is_none() {
                // What the watch starts from: later pages may be newer.
                listing.version = page.resource_version;
            }
            for item in page.items {
                match item {
                    Ok(object) => self.stage(&mut listing, object),
                    Err(bad) => self.skip(&mut listing, &bad),
                }
            }
            match page.continue_token {
                Some(next) => token = Some(next),
                None => return Ok(listing),
            }
        }
    }

    async fn list_by_stream(&mut self) -> Result<(Listing<K>, Stream<K>), Trouble> {
        let mut stream = match self.open(Watching::Everything).await {
            Err(RequestError::Api(error)) if refuses_streaming(&error) => {
                return Err(Trouble::NoStreaming);
            }
            opened => opened?,
        };
        let mut listing = self.listing();
        let limit = Instant::now() + self.settings.initial_limit;
        let mut idle = Instant::now() + self.settings.initial_idle;
        loop {
            let event = match timeout_at(idle.min(limit), stream.next()).await {
                // A server that does not know the parameters just watches.
                Err(_) => return Err(Trouble::NoStreaming),
                Ok(next) => next?.ok_or_else(broke_off)?,
            };
            self.telemetry.heard();
            match event {
                WatchEvent::Added(object) => {
                    idle = Instant::now() + self.settings.initial_idle;
                    self.stage(&mut listing, object);
                }
                WatchEvent::Modified(object) => self.stage(&mut listing, object),
                WatchEvent::Deleted(object) => {
                    let same = |have: &K| have.uid() == object.uid();
                    if listing
                        .staged
                        .get(object.key())
                        .is_some_and(|have| same(have))
                    {
                        listing.staged.remove(object.key());
                    }
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
                    return Err(Trouble::NoStreaming);
                }
                WatchEvent::Error(error) => return Err(RequestError::Api(error).into()),
                WatchEvent::Bad(bad) => self.skip(&mut listing, &bad),
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
        listing.staged.insert(self.store.staged(object));
    }

    fn skip(&self, listing: &mut Listing<K>, bad: &BadObject) {
        self.telemetry.skipped(bad);
        listing.unreadable.note(bad.key.as_ref());
        listing.skipped.push(bad.key.clone());
    }
}

fn broke_off() -> RequestError {
    RequestError::Decode("the stream ended before the list was complete".to_owned())
}

/// Whether a list that failed so may succeed in pages. A server that cannot be reached, or asks for
/// patience, would be no better off.
fn breaks_streams(error: &RequestError) -> bool {
    match error {
        RequestError::Interrupted(_) | RequestError::Timeout(_) | RequestError::Decode(_) => true,
        _ => matches!(error.class(), ErrorClass::Server | ErrorClass::Timeout),
    }
}

/// Whether the server says that it does not do streaming lists. Which code it uses depends on its
/// version and on what stands in front of it.
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
