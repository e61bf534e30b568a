use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::frame::{Frame, Frames};
use super::reflector::Cause;
use super::store::Applied;
use super::{BadObject, Change, Decoder, Event, Informer, Reading, WatchEvent};
use crate::http::{AnswerStream, ApiError, ErrorClass, Request, RequestError};
use crate::object::ResourceVersion;
use crate::slim::{DecodeError, Slim};

/// How often the lag is measured while nothing comes.
const LAG_PERIOD: Duration = Duration::from_secs(10);

/// What a server may be late with ending a watch.
const WATCH_SLACK: Duration = Duration::from_secs(30);

/// A watch that ends sooner than this without a word is not opened again at once.
const SHORT: Duration = Duration::from_secs(1);

/// Watches in a row that may be refused before a list is asked for.
const REFUSED_WATCHES: u32 = 3;

/// What a watch is asked to begin with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Watching {
    /// All objects, then a bookmark that says so: a streaming list.
    Everything,
    /// What happened since a version.
    Since(ResourceVersion),
}

/// An open watch.
pub(super) struct Stream<K> {
    answer: AnswerStream,
    frames: Frames,
    decoder: Arc<dyn Decoder<K>>,
    limit: usize,
    opened: Instant,
    /// The server has sent everything.
    ended: bool,
}

impl<K: Slim> Stream<K> {
    /// The next event; `None` when the server ends the watch. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<WatchEvent<K>>, RequestError> {
        while !self.ended {
            match self.frames.next() {
                Some(Frame::Whole(frame)) => {
                    // Much may have come at once: others get their turn.
                    tokio::task::consume_budget().await;
                    return Ok(Some(self.decoder.decode_watch_event(&frame)));
                }
                Some(Frame::TooLong(prefix)) => return Ok(Some(self.too_long(&prefix))),
                None => {}
            }
            let Some(chunk) = self.answer.chunk().await? else {
                self.ended = true;
                return Ok(self.last());
            };
            self.frames.push(&chunk);
        }
        Ok(None)
    }

    /// What came after the last line end. A frame that breaks off is no event, for the next watch
    /// brings it again; but it may be whole: an error that would come again and again.
    fn last(&mut self) -> Option<WatchEvent<K>> {
        let event = self.decoder.decode_watch_event(&self.frames.rest()?);
        Some(event).filter(|event| !matches!(event, WatchEvent::Bad(_)))
    }

    fn too_long(&self, prefix: &[u8]) -> WatchEvent<K> {
        let why = DecodeError::TooLarge { limit: self.limit };
        let of = |object: &K, change| BadObject {
            key: Some(object.key().clone()),
            uid: Some(object.uid().clone()),
            resource_version: Some(object.resource_version()),
            change: Some(change),
            why: DecodeError::TooLarge { limit: self.limit },
        };
        WatchEvent::Bad(match self.decoder.decode_watch_event(prefix) {
            WatchEvent::Bad(bad) => BadObject { why, ..bad },
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                of(&object, Change::Present)
            }
            WatchEvent::Deleted(object) => of(&object, Change::Gone),
            WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => BadObject {
                key: None,
                uid: None,
                resource_version: None,
                change: None,
                why,
            },
        })
    }
}

/// How a watch ended.
enum End {
    /// The server closed it, or it was silent for too long.
    Over,
    /// It told of the past only.
    Lagging,
    /// The server said why.
    Error(Box<ApiError>),
}

impl<K: Slim> Informer<K> {
    /// Watches from the store's version on, one watch after the other, until that cannot be
    /// continued: the answer says why.
    pub(super) async fn watch_until_lost(&mut self, first: Option<Stream<K>>) -> Cause {
        let mut next = first;
        loop {
            let since = self.store.resource_version();
            let error = match next.take() {
                Some(stream) => self.follow(stream, since).await,
                None => match self.open(Watching::Since(since)).await {
                    Ok(stream) => self.follow(stream, since).await,
                    Err(error) => Err(error),
                },
            };
            let error = match error {
                Ok(End::Over) if self.store.has_nameless() => return Cause::Unreadable,
                Ok(End::Over) => continue,
                Ok(End::Lagging) => return Cause::Lagging,
                // An object that nobody could read was deleted: its last state cannot be told.
                Ok(End::Error(error)) if error.reason == "StoreReadError" => {
                    self.back_off(&RequestError::Api(error)).await;
                    return Cause::Unreadable;
                }
                Ok(End::Error(error)) => {
                    // The server took the request and gave up on it: something about it does not
                    // suit, unless it only asks for patience.
                    match error.class() {
                        ErrorClass::Invalid | ErrorClass::TooManyRequests => {}
                        _ => self.refused_watches += 1,
                    }
                    RequestError::Api(error)
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Gone => return Cause::Expired,
                ErrorClass::NotServed | ErrorClass::NotFound => {
                    self.wait_until_served().await;
                    return Cause::Unserved;
                }
                ErrorClass::Invalid => self.refused_watches += 1,
                // A version that the server has not reached: it lags, or was restored.
                _ if error
                    .api()
                    .is_some_and(|e| e.has_cause("ResourceVersionTooLarge")) =>
                {
                    self.refused_watches += 1;
                }
                _ => {}
            }
            self.back_off(&error).await;
            if self.refused_watches >= REFUSED_WATCHES {
                return Cause::Refused;
            }
        }
    }

    /// Asks for a watch.
    pub(super) async fn open(&mut self, watching: Watching) -> Result<Stream<K>, RequestError> {
        // Spread, so that watches that began together do not end together.
        let timeout = self.backoff.around(self.settings.watch_timeout);
        let request = Request::get(&self.path)
            .query("watch", "true")
            .query("allowWatchBookmarks", "true")
            .query("timeoutSeconds", timeout.as_secs().to_string());
        let request = match watching {
            Watching::Since(version) => request.query("resourceVersion", version.to_string()),
            Watching::Everything => request
                .query("sendInitialEvents", "true")
                .query("resourceVersionMatch", "NotOlderThan"),
        };
        let answer = self
            .selecting(request)
            .accept(self.decoders.accept(Reading::Watch))
            .timeout(self.settings.open_timeout)
            .open(&self.client)
            .await?;
        let decoder = Arc::clone(self.decoders.that_reads(&answer.content_type)?);
        let limit = self.settings.frame_limit;
        self.recovered();
        Ok(Stream {
            frames: Frames::new(decoder.framing(), limit),
            answer,
            decoder,
            limit,
            opened: Instant::now(),
            ended: false,
        })
    }

    /// Follows one watch to its end.
    async fn follow(
        &mut self,
        mut stream: Stream<K>,
        since: ResourceVersion,
    ) -> Result<End, RequestError> {
        let mut heard = Instant::now();
        let mut fruitful = false;
        let mut lagging: Option<Instant> = None;
        loop {
            let lost = lagging.map(|since| since + self.settings.lag_limit);
            let idle = heard + self.idle_limit();
            let until = lost.map_or(idle, |lost| lost.min(idle));
            let tick = Instant::now() + LAG_PERIOD;
            let event = match timeout_at(until.min(tick), stream.next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    self.telemetry.waited();
                    if lost.is_some_and(|lost| lost <= Instant::now()) {
                        return Ok(End::Lagging);
                    }
                    if idle <= Instant::now() {
                        tracing::info!(kind = self.telemetry.kind(), "a watch fell silent");
                        return Ok(End::Over);
                    }
                    continue;
                }
            };
            heard = Instant::now();
            self.telemetry.heard();
            match self.apply(event, since).await {
                Step::Forward => {
                    fruitful = true;
                    lagging = None;
                    self.refused_watches = 0;
                    self.backoff.reset();
                    self.works_again();
                }
                Step::Nowhere => {}
                Step::Past => lagging = lagging.or(Some(heard)),
                Step::Ended(error) => return Ok(End::Error(error)),
            }
            if lagging.is_some_and(|since| since + self.settings.lag_limit <= heard) {
                return Ok(End::Lagging);
            }
        }
        if !fruitful && stream.opened.elapsed() < SHORT {
            let delay = self.backoff.next(None);
            self.sleep(delay).await;
        }
        Ok(End::Over)
    }

    fn idle_limit(&self) -> Duration {
        if self.bookmarks {
            return self.settings.bookmark_idle;
        }
        self.settings.watch_timeout.mul_f64(1.1) + WATCH_SLACK
    }

    /// Takes one event of a watch that started at `since`.
    async fn apply(&mut self, event: WatchEvent<K>, since: ResourceVersion) -> Step {
        let (version, applied) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (
                Some(object.resource_version()),
                self.store.upsert(object, since),
            ),
            WatchEvent::Deleted(object) => {
                (Some(object.resource_version()), self.store.delete(object))
            }
            WatchEvent::Bookmark {
                resource_version, ..
            } => {
                self.bookmarks = true;
                let past = resource_version < since;
                let applied = if past {
                    Applied::Stale
                } else {
                    Applied::Changed(Vec::new())
                };
                (Some(resource_version), applied)
            }
            WatchEvent::Error(error) => return Step::Ended(error),
            WatchEvent::Bad(bad) => {
                self.telemetry.skipped(&bad);
                // Its version is not believed: a wrong one would hide all that follows.
                (None, Applied::Changed(self.store.skip(&bad)))
            }
        };
        let (events, step) = match applied {
            Applied::Stale => return Step::Past,
            Applied::Known => (Vec::new(), Step::Nowhere),
            Applied::Changed(events) => (events, Step::Forward),
        };
        // Visible to whoever waits before handlers run: the store holds it already.
        let rises = version.is_some_and(|version| self.store.advance(version));
        self.emit(events).await;
        self.telemetry.holds(self.store.len());
        if let Some(resource_version) = version.filter(|_| rises) {
            self.tell(&Event::Advanced { resource_version });
        }
        step
    }
}

/// What an event did for the watch it came in.
enum Step {
    /// It told something new.
    Forward,
    /// It was known.
    Nowhere,
    /// It was older than what is known.
    Past,
    /// It ended the watch.
    Ended(Box<ApiError>),
}
