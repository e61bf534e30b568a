//! The work for one pod: run its handlers, wait for their end, wipe the node.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::blocking::spawn_blocking;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::{Backoff, Priority, WorkQueue};
use belayer_holds::node_wipe::{Report, WipeState};
use belayer_lifecycles::{Deadline, End, Identity, Lifecycle, Synced};
use belayer_metrics::wipe as outcome;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::command::{Command, Pod, RunError};
use crate::decide::{Decision, Snapshot, WipeRequest, decide};
use crate::host::{Host, HostError, NothingRuns, Remains};
use crate::place::pod_of;
use crate::requests::{Api, ApiError};
use crate::uid::PodUid;
use crate::wipe::{Left, Wiped, Wiper};
use crate::world::World;

/// How long a hook may take to end once the agent stops: a little longer than until it is killed.
const HOOK_ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Time limit of one removal. Each hook before it has another one.
pub(crate) const REMOVAL: Duration = Duration::from_secs(10);

/// Time after its deadline when an attempt counts as hanging: a system call on a file system that does
/// not answer cannot be interrupted.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// Limits of the CRD on a report.
const MOST_PATHS: usize = 64;
const LONGEST_MESSAGE: usize = 2_000;

/// Backoff after an incomplete wipe.
const LEFT: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Backoff after a failed handler.
const HANDLER: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));

/// Backoff after a live read that differs from the stores.
const STALE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Why the work for a pod failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    /// A handler failed.
    #[error(transparent)]
    Handler(RunError),
    /// A hook failed.
    #[error("not wiped yet: {0}")]
    Hook(RunError),
    /// Files or mounts are left.
    #[error("not wiped yet: {0}")]
    Left(Left),
    /// A cgroup, process or kubelet directory of the pod exists.
    #[error("not wiped yet: something of the pod still runs on the node")]
    Runs,
    /// Cgroups or processes of the node cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An earlier attempt hangs in a system call.
    #[error(
        "not wiped yet: an earlier attempt still waits for a file system that does not respond"
    )]
    Hangs,
    /// A request to the API server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A live read of the list differs from the store.
    #[error("the cache of wipes is behind the API server")]
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
    /// Time limit of one removal.
    pub(crate) removal: Duration,
    /// Limits concurrent wipes.
    pub(crate) permits: Semaphore,
    /// Attempts that did not end in time.
    pub(crate) hanging: Mutex<HashMap<PodUid, JoinHandle<Wiped>>>,
    /// Pod names to process again.
    pub(crate) queue: WorkQueue<ObjectKey>,
}

impl Lifecycle for PodWork {
    type Snapshot = Pod;
    type Error = WorkError;

    /// Runs each handler once per pod and process, unless the pod has started: then an earlier process of the agent may have
    /// run them, and the pod uses what they prepared.
    async fn sync(
        &self,
        object: &Identity,
        pod: &Pod,
        cancel: &CancellationToken,
    ) -> Result<Synced, WorkError> {
        if self.handlers.is_empty() || self.world.is_handled(&object.uid) {
            return Ok(Synced::Settled);
        }
        // The cache may be stale: a handler that runs for a wiped pod would create files again.
        if !self.api.is_starting(&pod.key, &object.uid).await? {
            return Ok(Synced::Settled);
        }
        let places = self.wiper.places(&pod.uid);
        for handler in &self.handlers {
            let limit = Instant::now() + handler.timeout;
            tracing::info!(pod = %pod.key, uid = %pod.uid, handler = handler.name, "handler begins");
            let ran = handler.run(pod, &places, limit, cancel).await;
            ran.map_err(WorkError::Handler)?;
        }
        self.world.handled(&object.uid);
        Ok(Synced::Settled)
    }

    /// Does nothing: no sync is running when this is called, so the handlers have ended.
    async fn terminate(
        &self,
        _: &Identity,
        _: &Pod,
        _: Deadline,
        _: &CancellationToken,
    ) -> Result<(), WorkError> {
        Ok(())
    }

    /// Waits for the decision, and carries it out.
    async fn terminated(
        &self,
        object: &Identity,
        pod: &Pod,
        cancel: &CancellationToken,
    ) -> Result<(), WorkError> {
        let mut changed = self.world.follow();
        loop {
            changed.mark_unchanged();
            match self.decide(pod, &object.uid) {
                Decision::Finish => return Ok(()),
                Decision::Wipe => return self.wipe(pod, &object.uid, cancel).await,
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
            WorkError::Behind => STALE,
            WorkError::Api(error) => error.backoff(),
            WorkError::Stopped => Backoff::ERROR,
        }
    }

    fn finished(&self, object: &Identity, _: End) {
        self.world.end(&object.uid);
        // A request may have arrived too late for this lifecycle: processing the name starts another one.
        if let Some(pod) = pod_of(&object.key) {
            self.queue.add(pod, Priority::Normal);
        }
    }
}

impl PodWork {
    fn decide(&self, pod: &Pod, uid: &Uid) -> Decision {
        decide(&Snapshot {
            request: self.world.wipe_request(uid),
            request_follows: self.world.request_follows(&pod.key, uid),
        })
    }

    async fn wipe(
        &self,
        pod: &Pod,
        uid: &Uid,
        cancel: &CancellationToken,
    ) -> Result<(), WorkError> {
        // A removal cannot be undone, and a stale store without this agent's last report would have it repeated.
        if self.api.wipe_request(uid).await? != WipeRequest::Wanted {
            return Err(WorkError::Behind);
        }
        let trying = self.try_once(pod, cancel);
        tokio::pin!(trying);
        let tried = tokio::select! {
            tried = &mut trying => tried,
            () = cancel.cancelled() => {
                // A hook that runs is asked to end, and killed later.
                drop(timeout(HOOK_ENDS_WITHIN, trying).await);
                Err(WorkError::Stopped)
            }
        };
        let (label, report) = match &tried {
            Ok(removed) => {
                metrics::counter!(belayer_metrics::WIPE_REMOVED).increment(*removed);
                (
                    outcome::COMPLETE,
                    report(WipeState::Wiped, "Wiped", String::new()),
                )
            }
            Err(WorkError::Stopped) => return Err(WorkError::Stopped),
            Err(error) => failure(error),
        };
        metrics::counter!(belayer_metrics::WIPE_TRIES, "state" => label).increment(1);
        let reported = self.report(pod, uid, report).await;
        let removed = match (tried, reported) {
            (Ok(removed), Ok(())) => removed,
            (Ok(_), Err(error)) => return Err(error.into()),
            // The cause of the incomplete wipe takes precedence over that of the failed report.
            (Err(error), reported) => {
                if let Err(report) = reported {
                    tracing::warn!(pod = %pod.key, %uid, error = %report, "could not report remaining files");
                }
                return Err(error);
            }
        };
        if let Some(since) = self.world.end(uid) {
            metrics::histogram!(belayer_metrics::WIPE_DURATION)
                .record(since.elapsed().as_secs_f64());
        }
        tracing::info!(pod = %pod.key, %uid, removed, "wiped the pod's directories");
        Ok(())
    }

    /// Writes a report, unless the last one was the same.
    async fn report(&self, pod: &Pod, uid: &Uid, report: Report) -> Result<(), ApiError> {
        let places = self.wiper.places(&pod.uid);
        let paths = places
            .iter()
            .map(|place| place.path().display().to_string());
        let report = Report {
            paths: paths.take(MOST_PATHS).collect(),
            ..report
        };
        if self.world.last_report(uid).as_ref() == Some(&report) {
            return Ok(());
        }
        let list = self.world.stored_list();
        let forgotten = list.as_ref().map_or(&[][..], |list| &list.forgotten);
        self.api.report(uid, &report, forgotten).await
    }

    /// One attempt; returns how many files were removed.
    pub(crate) async fn try_once(
        &self,
        pod: &Pod,
        cancel: &CancellationToken,
    ) -> Result<u64, WorkError> {
        self.join_hanging(pod).await?;
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(WorkError::Stopped);
        };
        let proof = self.prove(pod).await?;
        let places = self.wiper.places(&pod.uid);
        for hook in &self.hooks {
            // A limit for all of them would leave the later ones, and the removal, without time.
            let limit = Instant::now() + hook.timeout;
            let ran = hook.run(pod, &places, limit, cancel).await;
            ran.map_err(WorkError::Hook)?;
        }
        let wiper = Arc::clone(&self.wiper);
        let until = (Instant::now() + self.removal).into_std();
        let mut task = spawn_blocking(move || wiper.wipe(&proof, until));
        let wiped = match timeout(self.removal + HANGS_AFTER, &mut task).await {
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

    /// Reads from the node that nothing of the pod runs, before every attempt (rule T1).
    async fn prove(&self, pod: &Pod) -> Result<NothingRuns, WorkError> {
        let (host, uid) = (self.host.clone(), pod.uid.clone());
        let remains = spawn_blocking(move || host.remains_of(&uid)).await;
        let remains = remains.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let place = match remains? {
            Remains::Nothing(proof) => return Ok(proof),
            Remains::Cgroup(path) => format!("control group {}", path.display()),
            Remains::Process(process) => format!("process {process}"),
            Remains::Kubelet(path) => format!("kubelet directory {}", path.display()),
        };
        tracing::warn!(pod = %pod.key, uid = %pod.uid, "not wiping the pod's directories yet: {place} still exists");
        Err(WorkError::Runs)
    }

    /// Waits for a hanging attempt: two attempts would interfere, and each occupies a thread.
    async fn join_hanging(&self, pod: &Pod) -> Result<(), WorkError> {
        let hanging = self.hanging.lock().remove(&pod.uid);
        let Some(mut task) = hanging else {
            return Ok(());
        };
        if timeout(self.removal, &mut task).await.is_err() {
            self.hanging.lock().insert(pod.uid.clone(), task);
            return Err(WorkError::Hangs);
        }
        Ok(())
    }
}

fn report(state: WipeState, reason: &str, message: String) -> Report {
    Report {
        state,
        reason: reason.to_owned(),
        message: message.chars().take(LONGEST_MESSAGE).collect(),
        paths: Vec::new(),
    }
}

fn failure(error: &WorkError) -> (&'static str, Report) {
    let (label, reason, message) = match error {
        WorkError::Hook(error) => (outcome::HOOK, "HookFailed", error.to_string()),
        WorkError::Runs => (outcome::LEFT, "StillRuns", error.to_string()),
        WorkError::Left(left) => (outcome::LEFT, "NotComplete", left.to_string()),
        error => (outcome::LEFT, "NotComplete", error.to_string()),
    };
    (label, report(WipeState::NotWiped, reason, message))
}
