//! The work for one pod in its three phases: handlers run; they have ended; its node is wiped of it.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::{Backoff, Priority, WorkQueue};
use belayer_lifecycles::{Deadline, End, Identity, Lifecycle, Synced};
use belayer_metrics::wipe as outcome;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::command::{Command, RunError, Subject};
use crate::decide::{Asks, Decision, Sight, Snapshot, State, decide};
use crate::host::{Host, HostError, NothingRuns, Remains};
use crate::place::pod_of;
use crate::record::{Record, Wish};
use crate::requests::{Api, ApiError, Report, Verdict};
use crate::uid::PodUid;
use crate::wipe::{Left, Wiped, Wiper};
use crate::world::World;

/// How long one try to wipe may take, hooks included.
const TRY: Duration = Duration::from_secs(10);

/// How much later than its deadline a try may end before it is taken to hang: a system call on a file
/// system that does not answer cannot be interrupted.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// After a try that left something.
const LEFT: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// After a handler that failed.
const HANDLER: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));

/// After a look that showed something else than the stores do.
const LOOK: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// What the work needs to know of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Its name. The identity of an object may have another key: see
    /// [`InformerHandle`](crate::feed::InformerHandle).
    pub(crate) key: ObjectKey,
    /// Its UID, fit for a path.
    pub(crate) uid: PodUid,
}

impl Pod {
    fn subject(&self) -> Subject {
        Subject {
            uid: self.uid.clone(),
            namespace: self.key.namespace().unwrap_or_default().to_owned(),
            name: self.key.name().to_owned(),
        }
    }
}

/// Why a phase is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    /// A handler failed.
    #[error(transparent)]
    Handler(RunError),
    /// A hook failed.
    #[error("not wiped yet: {0}")]
    Hook(RunError),
    /// Something is left.
    #[error("not wiped yet: {0}")]
    Left(Left),
    /// The node says that something of the pod is there.
    #[error("not wiped yet: something of the pod still runs on the node")]
    Runs,
    /// It cannot be seen what runs on the node.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A try hangs.
    #[error("not wiped yet: a try does not come to its end")]
    Hangs,
    /// The API server did not answer as needed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The live pod or its record is not what the stores show.
    #[error("the pod or its record is not yet seen as it is")]
    Behind,
    /// The agent stops.
    #[error("stopped")]
    Stopped,
}

/// The work for pods.
pub(crate) struct PodWork {
    pub(crate) world: Arc<World>,
    pub(crate) api: Api,
    pub(crate) wiper: Arc<Wiper>,
    pub(crate) host: Host,
    pub(crate) handlers: Vec<Command>,
    pub(crate) hooks: Vec<Command>,
    /// How many pods are wiped at once.
    pub(crate) permits: Semaphore,
    /// Tries that did not come to their end in time.
    pub(crate) hanging: Mutex<HashMap<PodUid, JoinHandle<Wiped>>>,
    /// Names to be looked at again.
    pub(crate) queue: WorkQueue<ObjectKey>,
}

impl Lifecycle for PodWork {
    type Snapshot = Pod;
    type Error = WorkError;

    /// Runs the handlers, each once for each pod and process.
    async fn sync(
        &self,
        object: &Identity,
        pod: &Pod,
        cancel: &CancellationToken,
    ) -> Result<Synced, WorkError> {
        if self.handlers.is_empty() || self.world.is_handled(&object.uid) {
            return Ok(Synced::Settled);
        }
        // A cache may be of the past: a handler that runs for a pod that was wiped would bring back what
        // was removed.
        let alive = Sight::Here {
            asks: Asks::Yes,
            state: State::Alive,
        };
        if self.api.sight(&pod.key, &object.uid).await? != alive {
            return Ok(Synced::Settled);
        }
        let places = self.wiper.places(&pod.uid);
        for handler in &self.handlers {
            let limit = Instant::now() + handler.timeout;
            tracing::info!(pod = %pod.key, uid = %pod.uid, handler = handler.name, "handler begins");
            let ran = handler.run(&pod.subject(), &places, limit, cancel).await;
            ran.map_err(WorkError::Handler)?;
        }
        self.world.handled(&object.uid);
        Ok(Synced::Settled)
    }

    /// When this is called the handlers have ended: it is not called while a sync is in flight.
    async fn terminate(
        &self,
        _: &Identity,
        _: &Pod,
        _: Deadline,
        _: &CancellationToken,
    ) -> Result<(), WorkError> {
        Ok(())
    }

    /// Waits until it is known whether the node is to be wiped of the pod, and does it.
    async fn terminated(
        &self,
        object: &Identity,
        pod: &Pod,
        cancel: &CancellationToken,
    ) -> Result<(), WorkError> {
        let mut changed = self.world.follow();
        loop {
            changed.mark_unchanged();
            let (decision, record) = self.decide(pod, &object.uid);
            match decision {
                Decision::Finish => return Ok(()),
                Decision::Wipe => {
                    return self.wipe(pod, &object.uid, record.as_deref(), cancel).await;
                }
                Decision::Refuse(why) => {
                    return self.refuse(pod, &object.uid, record.as_deref(), why).await;
                }
                Decision::Wait => tokio::select! {
                    _ = changed.changed() => {}
                    () = cancel.cancelled() => return Err(WorkError::Stopped),
                },
            }
        }
    }

    fn backoff(&self, error: &WorkError) -> Backoff {
        match error {
            WorkError::Handler(_) => HANDLER,
            WorkError::Hook(_)
            | WorkError::Left(_)
            | WorkError::Runs
            | WorkError::Host(_)
            | WorkError::Hangs => LEFT,
            WorkError::Behind => LOOK,
            WorkError::Api(error) => error.backoff(),
            WorkError::Stopped => Backoff::ERROR,
        }
    }

    fn finished(&self, object: &Identity, _: End) {
        self.world.end(&object.uid);
        // A record may have come too late for this life: then there is another one.
        if let Some(pod) = pod_of(&object.key) {
            self.queue.add(pod, Priority::Normal);
        }
    }
}

impl PodWork {
    fn decide(&self, pod: &Pod, uid: &Uid) -> (Decision, Option<Arc<Record>>) {
        let (wish, record) = self.world.wish(&pod.key, uid);
        let snapshot = Snapshot {
            pod: self.world.sight(&pod.key, uid),
            wish,
            progress: self.world.progress(uid),
        };
        (decide(&snapshot), record)
    }

    /// A live look decides: what is removed cannot be brought back. The record is read live too, or a
    /// store that has not seen yet what this agent wrote would have the pod wiped a second time.
    async fn confirm(
        &self,
        pod: &Pod,
        uid: &Uid,
        record: Option<&Record>,
    ) -> Result<Decision, WorkError> {
        let live = self.api.sight(&pod.key, uid).await?;
        let wish = match record {
            Some(record) => self.api.wish(&record.meta.key, uid).await?,
            None => Wish::None,
        };
        Ok(decide(&Snapshot {
            pod: live,
            wish,
            progress: self.world.progress(uid),
        }))
    }

    async fn wipe(
        &self,
        pod: &Pod,
        uid: &Uid,
        record: Option<&Record>,
        cancel: &CancellationToken,
    ) -> Result<(), WorkError> {
        match self.confirm(pod, uid, record).await? {
            Decision::Wipe => {}
            Decision::Refuse(why) => return self.refuse(pod, uid, record, why).await,
            Decision::Finish | Decision::Wait => return Err(WorkError::Behind),
        }
        let tried = tokio::select! {
            tried = self.try_once(pod, uid, cancel) => tried,
            () = cancel.cancelled() => Err(WorkError::Stopped),
        };
        let (label, verdict) = match &tried {
            Ok(removed) => {
                metrics::counter!(belayer_metrics::WIPE_REMOVED).increment(*removed);
                (outcome::COMPLETE, Verdict::Wiped)
            }
            Err(WorkError::Stopped) => return Err(WorkError::Stopped),
            Err(error) => told(error),
        };
        metrics::counter!(belayer_metrics::WIPE_TRIES, "state" => label).increment(1);
        let said = self.say(record, uid, verdict).await;
        let removed = match (tried, said) {
            (Ok(removed), Ok(())) => removed,
            (Ok(_), Err(unsaid)) => return Err(unsaid.into()),
            // Why it is not wiped is worth more than why that could not be said.
            (Err(error), said) => {
                if let Err(unsaid) = said {
                    tracing::warn!(pod = %pod.key, %uid, error = %unsaid, "what is left could not be told");
                }
                return Err(error);
            }
        };
        if let Some(since) = self.world.end(uid) {
            metrics::histogram!(belayer_metrics::WIPE_DURATION)
                .record(since.elapsed().as_secs_f64());
        }
        tracing::info!(pod = %pod.key, %uid, removed, "the node is wiped of it");
        Ok(())
    }

    async fn say(
        &self,
        record: Option<&Record>,
        uid: &Uid,
        verdict: Verdict,
    ) -> Result<(), ApiError> {
        let Some(record) = record else {
            return Ok(());
        };
        let report = Report {
            record: record.meta.key.clone(),
            pod: uid.clone(),
            verdict,
        };
        self.api.report(&report).await
    }

    async fn refuse(
        &self,
        pod: &Pod,
        uid: &Uid,
        record: Option<&Record>,
        why: &'static str,
    ) -> Result<(), WorkError> {
        tracing::warn!(pod = %pod.key, %uid, "its record asks for a wipe that does not take place: {why}");
        let verdict = Verdict::Left {
            reason: "Refused",
            message: why.to_owned(),
        };
        self.say(record, uid, verdict).await?;
        self.world.refuse(&pod.key, uid);
        self.world.end(uid);
        Ok(())
    }

    /// One try. How much was removed.
    async fn try_once(
        &self,
        pod: &Pod,
        uid: &Uid,
        cancel: &CancellationToken,
    ) -> Result<u64, WorkError> {
        self.join_hanging(pod).await?;
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(WorkError::Stopped);
        };
        let proof = self.prove(pod).await?;
        self.world.begin(uid);
        let deadline = Instant::now() + TRY;
        let places = self.wiper.places(&pod.uid);
        for hook in &self.hooks {
            let ran = hook.run(&pod.subject(), &places, deadline, cancel).await;
            ran.map_err(WorkError::Hook)?;
        }
        let wiper = Arc::clone(&self.wiper);
        let until = deadline.into_std();
        let mut task = tokio::task::spawn_blocking(move || wiper.wipe(&proof, until));
        let wiped = match timeout(TRY + HANGS_AFTER, &mut task).await {
            Ok(Ok(wiped)) => wiped,
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => {
                self.hanging.lock().insert(pod.uid.clone(), task);
                return Err(WorkError::Hangs);
            }
        };
        if wiped.left.is_empty() {
            Ok(wiped.removed)
        } else {
            metrics::counter!(belayer_metrics::WIPE_REMOVED).increment(wiped.removed);
            Err(WorkError::Left(wiped.left))
        }
    }

    /// The node's own word that nothing of the pod runs, before every try (row T1).
    async fn prove(&self, pod: &Pod) -> Result<NothingRuns, WorkError> {
        let (host, uid) = (self.host.clone(), pod.uid.clone());
        let looked = tokio::task::spawn_blocking(move || host.remains_of(&uid)).await;
        let remains = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let place = match remains? {
            Remains::Nothing(proof) => return Ok(proof),
            Remains::Cgroup(path) => format!("the control group {}", path.display()),
            Remains::Process(process) => format!("the process {process}"),
            Remains::Kubelet(path) => format!("the kubelet's directory {}", path.display()),
        };
        tracing::warn!(pod = %pod.key, uid = %pod.uid, "not wiped: {place} is of this pod");
        Err(WorkError::Runs)
    }

    /// A try that hangs is waited for: two at once would be in each other's way, and each holds a thread.
    async fn join_hanging(&self, pod: &Pod) -> Result<(), WorkError> {
        let hanging = self.hanging.lock().remove(&pod.uid);
        let Some(mut task) = hanging else {
            return Ok(());
        };
        if timeout(TRY, &mut task).await.is_err() {
            self.hanging.lock().insert(pod.uid.clone(), task);
            return Err(WorkError::Hangs);
        }
        Ok(())
    }
}

fn told(error: &WorkError) -> (&'static str, Verdict) {
    let (label, reason, message) = match error {
        WorkError::Hook(error) => (outcome::HOOK, "HookFailed", error.to_string()),
        WorkError::Runs => (outcome::LEFT, "StillRuns", error.to_string()),
        WorkError::Left(left) => (outcome::LEFT, "NotComplete", left.to_string()),
        error => (outcome::LEFT, "NotComplete", error.to_string()),
    };
    (label, Verdict::Left { reason, message })
}
