//! A scripted implementation of the work, with a log.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{Deadline, End, Identity, Lifecycle, Lifecycles, Observation, Options, Synced};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::Backoff;

/// What one call does. A call without a script succeeds at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Fail,
    /// The object ends by itself.
    Terminal,
    Again(Duration),
    Take(Duration),
    /// Runs until it is cancelled, then returns success.
    UntilCancelled,
    /// Runs until it is cancelled, then returns an error.
    FailWhenCancelled,
    /// Is cancelled, and takes this long to end.
    LingerWhenCancelled(Duration),
    Panic,
}

#[derive(Debug)]
pub(super) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as scripted")
    }
}

/// The log of calls with their times, and the script. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct World(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    log: Mutex<Vec<(Duration, String)>>,
    scripts: Mutex<HashMap<String, VecDeque<Act>>>,
    alive: Mutex<HashMap<ObjectKey, String>>,
    backoff: Backoff,
}

impl World {
    /// Errors are retried after exactly one second, then exactly 2 s, and so on: the floor equals
    /// the cap.
    pub(super) fn new() -> Self {
        Self::backing_off(Backoff::new(SECOND, SECOND).at_least(SECOND))
    }

    pub(super) fn backing_off(backoff: Backoff) -> Self {
        Self(Arc::new(Inner {
            began: Instant::now(),
            log: Mutex::default(),
            scripts: Mutex::default(),
            alive: Mutex::default(),
            backoff,
        }))
    }

    /// Scripts the next calls of this kind: `sync u-1`, `terminate u-1`, `clean u-1`, `remains
    /// u-1`.
    pub(super) fn script(&self, call: &str, acts: impl IntoIterator<Item = Act>) -> &Self {
        let mut scripts = self.0.scripts.lock();
        scripts.entry(call.to_owned()).or_default().extend(acts);
        self
    }

    pub(super) fn start(&self) -> Lifecycles<World> {
        Lifecycles::new(self.clone(), Options::new("test").without_resync())
    }

    /// The log, in order.
    pub(super) fn log(&self) -> Vec<String> {
        self.0
            .log
            .lock()
            .iter()
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// The log since the last call, joined by commas.
    pub(super) fn news(&self) -> String {
        let lines: Vec<_> = self.0.log.lock().drain(..).map(|(_, line)| line).collect();
        lines.join(", ")
    }

    /// The times of a log line since the start.
    pub(super) fn times(&self, line: &str) -> Vec<Duration> {
        let log = self.0.log.lock();
        let same = log.iter().filter(|(_, it)| it == line);
        same.map(|(at, _)| *at).collect()
    }

    fn write(&self, line: String) {
        let now = self.0.began.elapsed();
        self.0.log.lock().push((now, line));
    }

    async fn call(
        &self,
        call: &str,
        object: &Identity,
        on: &str,
        cancel: &CancellationToken,
    ) -> Result<Synced, Failed> {
        let call = format!("{call} {}", object.uid);
        self.write(format!("{call}{on}"));
        let other = self.0.alive.lock().insert(object.key.clone(), call.clone());
        assert_eq!(other, None, "{call} while that runs for the same name");
        let _gone = Gone(self, &object.key);
        let act = self
            .0
            .scripts
            .lock()
            .get_mut(&call)
            .and_then(VecDeque::pop_front);
        let Some(act) = act else {
            return Ok(Synced::Settled);
        };
        match act {
            Act::Fail => return Err(Failed),
            Act::Terminal => return Ok(Synced::Terminal),
            Act::Again(after) => return Ok(Synced::Again { after }),
            Act::Take(time) => sleep(time).await,
            Act::Panic => panic!("as scripted"),
            Act::UntilCancelled => {
                cancel.cancelled().await;
                self.write(format!("{call} cancelled"));
            }
            Act::FailWhenCancelled => {
                cancel.cancelled().await;
                self.write(format!("{call} cancelled"));
                return Err(Failed);
            }
            Act::LingerWhenCancelled(time) => {
                cancel.cancelled().await;
                self.write(format!("{call} cancelled"));
                sleep(time).await;
                self.write(format!("{call} ended"));
            }
        }
        Ok(Synced::Settled)
    }
}

/// Records the end of a call, including a panic.
struct Gone<'a>(&'a World, &'a ObjectKey);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.0.alive.lock().remove(self.1);
    }
}

fn left(deadline: Deadline) -> String {
    match deadline.remaining() {
        None => String::new(),
        Some(left) => format!(" in {}s", left.as_secs()),
    }
}

impl Lifecycle for World {
    type Snapshot = &'static str;
    type Error = Failed;

    async fn sync(
        &self,
        object: &Identity,
        snapshot: &&'static str,
        cancel: &CancellationToken,
    ) -> Result<Synced, Failed> {
        self.call("sync", object, &format!(" {snapshot}"), cancel)
            .await
    }

    async fn terminate(
        &self,
        object: &Identity,
        snapshot: &&'static str,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<(), Failed> {
        let on = format!(" {snapshot}{}", left(deadline));
        self.call("terminate", object, &on, cancel).await.map(drop)
    }

    async fn terminated(
        &self,
        object: &Identity,
        snapshot: &&'static str,
        cancel: &CancellationToken,
    ) -> Result<(), Failed> {
        self.call("clean", object, &format!(" {snapshot}"), cancel)
            .await
            .map(drop)
    }

    async fn terminate_found(
        &self,
        object: &Identity,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<(), Failed> {
        self.call("remains", object, &left(deadline), cancel)
            .await
            .map(drop)
    }

    fn backoff(&self, _: &Failed) -> Backoff {
        self.0.backoff
    }

    fn finished(&self, object: &Identity, end: End) {
        self.write(match end {
            End::Done => format!("finished {}", object.uid),
            End::Unstarted => format!("finished {} unstarted", object.uid),
            End::Restarting => format!("finished {} restarting", object.uid),
        });
    }
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Awaits a future that completes soon. On paused time a wait for something that never happens
/// fails at once.
pub(super) async fn soon<F: Future>(future: F) -> F::Output {
    let never = timeout(SECOND * 300, future).await;
    never.expect("the awaited future completes")
}

/// An object of the name that most tests use.
pub(super) fn web(uid: &str) -> Identity {
    named("web", uid)
}

pub(super) fn named(name: &str, uid: &str) -> Identity {
    Identity::new(ObjectKey::new("shop", name), Uid::new(uid))
}

/// An observation that must terminate within this many seconds.
pub(super) fn stop_within(
    snapshot: &'static str,
    seconds: u64,
) -> Observation<Arc<<World as Lifecycle>::Snapshot>> {
    Observation::Terminating {
        snapshot: Arc::new(snapshot),
        deadline: Deadline::within(Duration::from_secs(seconds)),
    }
}
