use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::decode::About;
use super::frame::{Frame, Frames};
use super::reflector::Cause;
use super::state::WORKS;
use super::store::Applied;
use super::{BadObject, Change, Decoder, Event, Informer, Reading, WatchEvent};
use crate::http::{AnswerStream, ApiError, ErrorClass, Request, RequestError};
use crate::object::ResourceVersion;
use crate::slim::{DecodeError, Slim};

/// How often the lag is measured while no event arrives.
const LAG_PERIOD: Duration = Duration::from_secs(10);

/// How late the server may end a watch.
const WATCH_SLACK: Duration = Duration::from_secs(30);

/// How many consecutive watches may be refused before a list is requested.
const REFUSED_WATCHES: u32 = 3;

/// Where a watch starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Watching {
    /// All objects, then a bookmark that ends them: a streaming list.
    Everything,
    /// The changes since a version.
    Since(ResourceVersion),
}

/// An open watch.
pub(super) struct Stream<K> {
    answer: AnswerStream,
    frames: Frames,
    decoder: Arc<dyn Decoder<K>>,
    limit: usize,
    /// The server has ended the stream.
    ended: bool,
}

impl<K: Slim> Stream<K> {
    /// The next event; `None` when the server ends the watch. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<WatchEvent<K>>, RequestError> {
        while !self.ended {
            match self.frames.next() {
                Some(Frame::Whole(frame)) => {
                    // Many events may arrive at once: lets other tasks run.
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

    /// The bytes after the last line end. A truncated frame is dropped, because the next watch
    /// sends it again. A complete one is used: it may be an error that would otherwise repeat.
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
    /// It delivered only old events.
    Lagging,
    /// The server sent an error.
    Error(Box<ApiError>),
}

impl<K: Slim> Informer<K> {
    /// Watches from the store's version on, one watch after the other, until that is not possible
    /// any more. Returns the cause.
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
                // The server deleted an object that it cannot decode, and cannot send its last
                // state.
                Ok(End::Error(error)) if error.reason == "StoreReadError" => {
                    self.back_off(&RequestError::Api(error)).await;
                    return Cause::Unreadable;
                }
                Ok(End::Error(error)) => {
                    // The server accepted the watch and then ended it with an error: it may refuse
                    // this request, unless it is only busy.
                    match error.class() {
                        ErrorClass::Invalid | ErrorClass::TooManyRequests => {}
                        _ => self.refused_watches += 1,
                    }
                    RequestError::Api(error)
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Gone => {
                    // The list was fresh, and the server has forgotten its version already: the next one may fare
                    // no better (L5).
                    if self.expired_watches > 0 {
                        self.back_off(&error).await;
                    }
                    self.expired_watches += 1;
                    return Cause::Expired;
                }
                ErrorClass::NotServed | ErrorClass::NotFound => {
                    self.wait_until_served().await;
                    return Cause::Unserved;
                }
                ErrorClass::Invalid => self.refused_watches += 1,
                // A version that the server has not reached: the server lags, or was restored.
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

    /// Opens a watch.
    pub(super) async fn open(&mut self, watching: Watching) -> Result<Stream<K>, RequestError> {
        self.opened = None;
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
            ended: false,
        })
    }

    /// Reads one watch to its end.
    async fn follow(
        &mut self,
        mut stream: Stream<K>,
        since: ResourceVersion,
    ) -> Result<End, RequestError> {
        let opened = Instant::now();
        self.opened = Some(opened);
        let mut last_event = opened;
        let mut progressed = false;
        let mut lagging: Option<Instant> = None;
        loop {
            let lost = lagging.map(|since| since + self.settings.lag_limit);
            let idle = last_event + self.idle_limit();
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
                        tracing::info!(
                            kind = self.telemetry.kind(),
                            "a watch was silent for too long; reopening it"
                        );
                        return Ok(End::Over);
                    }
                    continue;
                }
            };
            last_event = Instant::now();
            self.telemetry.contacted();
            match self.apply(event, since).await {
                Progress::Forward => {
                    progressed = true;
                    lagging = None;
                    self.refused_watches = 0;
                    self.expired_watches = 0;
                    self.works();
                }
                Progress::None => {}
                Progress::Past => lagging = lagging.or(Some(last_event)),
                Progress::Ended(error) => return Ok(End::Error(error)),
                // The server sends it again to a watch from the same version. To go on would lose it.
                Progress::Unidentified(why) => {
                    self.refused_watches += 1;
                    return Err(RequestError::Decode(why.to_string()));
                }
            }
            if lagging.is_some_and(|since| since + self.settings.lag_limit <= last_event) {
                return Ok(End::Lagging);
            }
        }
        if !progressed && opened.elapsed() < WORKS {
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

    /// Applies one event of a watch that started at `since`.
    async fn apply(&mut self, event: WatchEvent<K>, since: ResourceVersion) -> Progress {
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
            WatchEvent::Error(error) => return Progress::Ended(error),
            WatchEvent::Bad(bad) => {
                self.telemetry.skipped(&bad);
                match bad.about() {
                    // Its version is not used: a wrong one would hide all later events.
                    About::Object(key) => (None, Applied::Changed(self.store.skip(key, &bad))),
                    About::AnyObject => return Progress::Unidentified(bad.why),
                    About::NoObject => return Progress::None,
                }
            }
        };
        let (events, step) = match applied {
            Applied::Stale => return Progress::Past,
            Applied::Known => (Vec::new(), Progress::None),
            Applied::Changed(events) => (events, Progress::Forward),
        };
        // Visible to waiting readers before the handlers run: the store already contains it.
        let rises = version.is_some_and(|version| self.store.advance(version));
        self.notify_all(events).await;
        self.telemetry.holds(self.store.len());
        if let Some(resource_version) = version.filter(|_| rises) {
            self.notify(&Event::Advanced { resource_version });
        }
        step
    }
}

/// The effect of an event on its watch.
enum Progress {
    /// It changed the store.
    Forward,
    /// It was known already.
    None,
    /// It was older than the store.
    Past,
    /// It ended the watch.
    Ended(Box<ApiError>),
    /// It does not identify its object.
    Unidentified(DecodeError),
}
