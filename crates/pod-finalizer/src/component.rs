//! pod-finalizer as a component of the pod runner.

mod losses;
mod observe;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use hashbrown::{HashMap, HashSet};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use belayer_core::clock;
use belayer_core::http::RequestError;
use belayer_core::index::{PODS_BY_NAMESPACE, PODS_BY_OWNER};
use belayer_core::informer::{Event, Stored};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, Resource, Uid};
use belayer_core::queries::{LiveAnswer, Waiter};
use belayer_core::slim::{Keep, Namespace, ObjectMeta, OwnerMeta, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::held_objects::note_current;
use belayer_holds::names;
use belayer_holds::namespace::{self, NamespaceQuery};
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::{Change, Component, StepContext, Stepped};
use belayer_holds::selection::UnselectedBy;
use belayer_holds::view::{Answers, Cached, View};

use crate::argo::NodeQuery;
use crate::backlog::Limits;
use crate::decide::{PodDecision, decide, is_node_present, waits_for_workflow};
use crate::evidence::{Evidence, is_ignored};
use crate::held_objects::{HeldPod, HeldPods};
use crate::outcome::{self, Outcomes, Recorded};
use crate::profile::config::Settings;
use crate::profile::{self, Mode, Profiles};
use crate::query::{Delay, PodQuery};
use crate::snapshot::{BacklogLimit, MassRelease, PodView, Selection, Snapshot};
use crate::status::{RemovedPods, StatusQuery, StatusState};
use crate::{NAME, SETTLE};

use observe::{admin_asked, adopted, deciding, deciding_profiles, held, node_of, selection};

use losses::Counted;

/// The labels and annotations of pods that the rules read.
pub(crate) fn keep_of_pods(profiles: &Profiles) -> Keep {
    let built_in = Profiles::argo();
    Keep::nothing()
        .labels(profiles.pod_labels().union(&built_in.pod_labels()))
        .annotations(
            [
                names::RELEASE_ANNOTATION,
                names::RECREATION_ANNOTATION,
                names::MIRROR_ANNOTATION,
            ]
            .into_iter()
            .chain(profiles.pod_annotations())
            .chain(built_in.pod_annotations()),
        )
        .finalizers(profiles.adopted())
}

/// The labels of owners, of whatever kind, that the rules read.
pub(crate) fn keep_of_owners(profiles: &Profiles) -> Keep {
    let kinds = profiles.owners();
    let labels = kinds.iter().flat_map(|kind| profiles.owner_labels(kind));
    let of_records = [outcome::EXPIRES_LABEL, outcome::NOT_FINAL_LABEL];
    let of_records = of_records.into_iter().filter(|_| profiles.capture());
    let built_in = Profiles::argo();
    Keep::nothing().labels(
        labels
            .chain(of_records)
            .chain(built_in.owner_labels(&profile::argo::workflow())),
    )
}

/// The labels of namespaces that the rules read.
pub(crate) fn keep_of_namespaces() -> Keep {
    Keep::nothing().labels([names::IGNORE_LABEL])
}

/// The owners of a kind in a namespace.
pub(crate) type Owners = (Resource, Arc<str>);

/// A delay of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// When this process first looked, by its monotonic clock: a jump of the wall clock ends no delay (L9).
    since: Instant,
    /// How long the pod had waited before, by the wall clock.
    before: Duration,
    /// What was left then of its grace period.
    grace: Duration,
    /// Its deletion timestamp then.
    deleting: Option<Timestamp>,
}

impl Waits {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            before: Duration::ZERO,
            grace: Duration::ZERO,
            deleting: None,
        }
    }

    fn begin_deletion(deleting: Timestamp, grace: Duration) -> Self {
        let since = clock::now().duration_since(deleting);
        Self {
            before: Duration::try_from(since).unwrap_or_default(),
            // By the wall clock, which may be wrong: all of a usual grace period is awaited.
            grace: Duration::try_from(-since)
                .unwrap_or_default()
                .clamp(grace.min(SETTLE), grace),
            deleting: Some(deleting),
            ..Self::begin()
        }
    }

    /// How long it has waited since the end of its grace period, as far as this process has seen.
    fn waited(&self) -> Duration {
        self.since.elapsed().saturating_sub(self.grace)
    }
}

/// The dependencies of the component.
pub struct Parts<V: View = Cached> {
    /// The informers' stores: pods, with the indexes [`PODS_BY_OWNER`] and [`PODS_BY_NAMESPACE`].
    pub pods: V::Store<Pod>,
    /// Namespaces.
    pub namespaces: V::Store<Namespace>,
    /// One store per kind that owns pods of some profile.
    pub owners: Vec<(Resource, V::Store<OwnerMeta>)>,
    /// PodOutcomes, if outcomes are recorded.
    pub records: Option<V::Store<OwnerMeta>>,
    /// Live reads of owners.
    pub owner_queries: V::Queries<OwnerQuery>,
    /// Live reads of namespaces.
    pub namespace_queries: V::Queries<NamespaceQuery>,
    /// Live reads of the status of owners.
    pub status_queries: V::Queries<StatusQuery>,
    /// Live reads of nodes.
    pub node_queries: V::Queries<NodeQuery>,
    /// Pods that are gone and of which observe mode has yet to find out whether their result was read.
    pub removed: RemovedPods,
    /// The queue of the pod runner.
    pub queue: WorkQueue<ObjectKey>,
    /// What was counted, also before the last reload of the configuration.
    pub counted: Arc<Counted>,
}

/// Holds pods until their result has been read by its consumer. Its rules are in
/// [`row`](crate::row).
pub struct PodFinalizer<V: View = Cached> {
    pub(crate) profiles: Profiles,
    pub(crate) parts: Parts<V>,
    pub(crate) outcomes: Outcomes,
    /// When each delay began.
    pub(crate) due: Mutex<HashMap<Delay, Waits>>,
    /// When each pod was first observed as one whose node may be lost.
    suspected: Mutex<HashMap<Uid, LogicalTime>>,
    /// The pods that are not held any more, and those that may have been held before this process started.
    maybe_released: Mutex<HashSet<Uid>>,
    /// Of which owners one has changed, as its consumer changes it. Only the leader collects and takes them.
    changed_owners: Mutex<HashSet<Owners>>,
    held_objects: Arc<HeldPods>,
    /// Whether this process has read the gates that an earlier leader closed. Before that it adds no finalizers.
    pub(crate) may_hold: AtomicBool,
    resync: Duration,
    /// Whether any profile adopts finalizers.
    adopts: bool,
}

impl<V: View> PodFinalizer<V> {
    /// The component with these settings.
    pub fn new(settings: &Settings, parts: Parts<V>) -> Self {
        let held_objects = Arc::new(HeldPods::new(
            settings.max_unselected,
            Limits::of(settings.backlog_threshold),
        ));
        Self {
            profiles: settings.profiles.clone(),
            parts,
            outcomes: Outcomes::new(settings.outcome_ttl),
            due: Mutex::default(),
            suspected: Mutex::default(),
            maybe_released: Mutex::default(),
            changed_owners: Mutex::default(),
            held_objects,
            may_hold: AtomicBool::new(false),
            resync: settings.resync,
            adopts: settings
                .profiles
                .iter()
                .any(|profile| !profile.adopt.is_empty()),
        }
    }

    /// The held pods.
    pub fn held_objects(&self) -> &Arc<HeldPods> {
        &self.held_objects
    }

    /// Whether Belayer adds its finalizer to this pod.
    fn backlog_limit(&self, pod: &ObjectKey) -> BacklogLimit {
        if self.may_hold.load(Ordering::Acquire) {
            self.held_objects.backlog_limit(pod.shared_namespace())
        } else {
            BacklogLimit::Reached
        }
    }

    fn selection(&self, pod: &ObjectMeta) -> Selection {
        let namespace = namespace::cached(pod, &self.parts.namespaces);
        selection(&self.profiles, pod, namespace.as_ref())
    }

    /// Whether the pod has a finalizer of another controller that its profile adopts.
    fn is_adopted(&self, pod: &ObjectMeta) -> bool {
        self.adopts && !adopted(pod, &self.selection(pod)).is_empty()
    }

    fn is_selected(&self, pod: &ObjectMeta) -> bool {
        matches!(self.selection(pod), Selection::By { .. })
    }

    /// Records a pod; `by` is the reason if no profile selects its labels.
    pub(crate) fn note(&self, pod: &Stored<Pod>, by: UnselectedBy) {
        let meta = &pod.object.meta;
        let entry = held(meta).then(|| HeldPod {
            unselected: match self.selection(meta) {
                Selection::By { .. } => None,
                Selection::None => Some(by),
                Selection::Ignored => Some(UnselectedBy::Namespace),
            },
            ended: pod.object.is_ended(),
            deleting: meta.deletion_timestamp,
            status_too_large: self.is_status_too_large(&pod.object),
        });
        self.held_objects.note(&meta.key, entry);
    }

    /// The query for the status of the owner of a pod that a profile selects.
    fn status_query(&self, pod: &ObjectMeta) -> Option<StatusQuery> {
        self.is_selected(pod).then(|| self.judging_query(pod))?
    }

    /// The same for a pod that a profile selects or judges.
    fn judging_query(&self, pod: &ObjectMeta) -> Option<StatusQuery> {
        let selection = self.selection(pod);
        let deciding_profiles = deciding_profiles(&self.profiles, pod, &selection);
        let key_of = |owner: &OwnerReference, kind: &Resource| self.find_owner(pod, owner, kind).0;
        let found = deciding(&selection, &deciding_profiles)
            .find_map(|profile| node_of(pod, profile, key_of));
        found.map(|(_, query)| query)
    }

    /// Whether the status of a held pod's workflow is too large to be read. Neither Belayer nor the consumer can
    /// change that, so such pods must not count towards the backlog limit: the author of the workflow could abuse it (T3).
    fn is_status_too_large(&self, pod: &Pod) -> bool {
        let query = self.status_query(&pod.meta);
        let answer = query.and_then(|query| self.parts.status_queries.get(&query));
        answer.is_some_and(|answer| matches!(answer.answer(), StatusState::TooLarge(_)))
    }

    /// Ends the delays whose condition is not met any more, so that they begin anew once it is met again.
    fn end_lapsed_delays(&self, pod: &PodView) {
        if waits_for_workflow(pod) {
            self.due.lock().remove(&Delay::Cleanup(pod.uid.clone()));
        }
        if is_node_present(pod) {
            self.due.lock().remove(&Delay::NodeLost(pod.uid.clone()));
        }
    }

    /// Whether this held pod may have to be released soon: then it takes precedence over others.
    fn may_be_released(&self, pod: &Pod) -> bool {
        pod.meta.is_deleting()
            || pod.is_ended()
            || admin_asked(&pod.meta)
            || namespace::cached(&pod.meta, &self.parts.namespaces)
                .is_some_and(|ns| ns.is_deleting() || is_ignored(&ns.labels))
    }
}

impl PodFinalizer {
    /// `Enforce` if any profile enforces; otherwise Belayer adds no finalizers.
    pub fn mode(&self) -> Mode {
        let mut profiles = self.profiles.iter();
        if profiles.any(|profile| profile.mode == Mode::Enforce) {
            Mode::Enforce
        } else {
            Mode::Observe
        }
    }

    /// Updates the held objects, and counts pods that were deleted before they were held. Must receive every pod
    /// event *before* the runner does.
    pub fn on_pod(&self, event: &Event<Pod>) {
        match event {
            Event::Added { object, initial } => {
                let pod = &object.object;
                if *initial && pod.is_ended() && !held(&pod.meta) {
                    self.maybe_released.lock().insert(pod.meta.uid.clone());
                }
                self.note(
                    object,
                    if *initial {
                        UnselectedBy::Configuration
                    } else {
                        UnselectedBy::Labels
                    },
                );
            }
            Event::Updated { old, new } => {
                self.note(new, UnselectedBy::Labels);
                let before = &old.object.meta;
                if held(before) && !held(&new.object.meta) {
                    self.maybe_released.lock().insert(before.uid.clone());
                }
                let known = before.is_deleting() && self.is_selected(before);
                if new.object.meta.is_deleting() && !known {
                    self.count_missed(new);
                }
            }
            Event::Deleted { last, .. } => {
                let meta = &last.object.meta;
                self.held_objects.note(&meta.key, None);
                self.outcomes.remove(&meta.uid);
                // It looks at the pod once more, which notes delays.
                self.count_lost(last);
                let mut due = self.due.lock();
                due.remove(&Delay::Cleanup(meta.uid.clone()));
                due.remove(&Delay::NodeLost(meta.uid.clone()));
                due.remove(&Delay::ReleaseAfter(meta.uid.clone()));
                drop(due);
                self.suspected.lock().remove(&meta.uid);
                self.parts.counted.undecided.lock().remove(&meta.uid);
                self.maybe_released.lock().remove(&meta.uid);
            }
            _ => {}
        }
    }

    /// Enqueues the pods of a namespace that changed.
    pub fn on_namespace(&self, event: &Event<Namespace>) {
        let Some(namespace) = event.news() else {
            return;
        };
        for pod in self
            .parts
            .pods
            .by_index(PODS_BY_NAMESPACE, namespace.object.meta.key.name())
            .unwrap_or_default()
        {
            let key = &pod.object.meta.key;
            note_current(&self.parts.pods, key, |pod| match pod {
                Some(pod) => self.note(pod, UnselectedBy::Labels),
                None => self.held_objects.note(key, None),
            });
            self.queue_if_belayers(&pod, Priority::Normal);
        }
    }

    /// Enqueues the pods of an owner of this kind that changed. A change of its status alone causes no event, and
    /// another change that shows neither its end nor its deletion concerns only held pods that wait for it (A17).
    pub fn on_owner(&self, kind: &Resource, event: &Event<OwnerMeta>) {
        if let Event::Updated { old, new } = event {
            self.note_change(kind, &old.object.meta, &new.object.meta);
        }
        let (owner, all) = match event {
            Event::Added { object, .. } => (object, true),
            Event::Updated { old, new } if !new.object.meta.differs(&old.object.meta) => {
                return self.on_status_of(new);
            }
            Event::Updated { old, new } => (new, self.may_release_all(kind, &old.object.meta, new)),
            Event::Deleted { last, .. } => (last, true),
            // Its CRD was deleted: of owners that went while the watch was down no event comes.
            Event::Unserved => {
                let pods = &self.parts.pods;
                return pods.for_each(|pod| self.queue_if_belayers(pod, Priority::Normal));
            }
            _ => return,
        };
        for pod in self
            .parts
            .pods
            .by_index(PODS_BY_OWNER, owner.object.meta.uid.as_str())
            .unwrap_or_default()
        {
            if all || pod.object.meta.is_deleting() || pod.object.is_ended() {
                self.queue_if_belayers(&pod, Priority::Release);
            }
        }
    }

    /// Notes that an owner has changed (A21). A deletion and a change of its finalizers do not show that its consumer
    /// runs.
    fn note_change(&self, kind: &Resource, old: &ObjectMeta, new: &ObjectMeta) {
        let by_consumer = old.resource_version != new.resource_version
            && old.deletion_timestamp == new.deletion_timestamp
            && old.finalizers == new.finalizers;
        if by_consumer && self.may_hold.load(Ordering::Acquire) {
            let owners = (kind.clone(), Arc::clone(new.key.shared_namespace()));
            self.changed_owners.lock().insert(owners);
        }
    }

    /// Of which owners one has changed since the last call.
    pub(crate) fn take_changed_owners(&self) -> HashSet<Owners> {
        std::mem::take(&mut self.changed_owners.lock())
    }

    /// Renews the live answer about the status of this owner, which may have changed, if the deletion of a pod waits for
    /// it (A19). Of its pods only those are enqueued whose node has changed (A17): [`StatusReader`](crate::status::StatusReader) names them. If
    /// there is no answer, because it was dropped to save memory or was never read, one pod asks for all.
    fn on_status_of(&self, owner: &Stored<OwnerMeta>) {
        // A standby decides nothing, and reads nothing.
        if !self.may_hold.load(Ordering::Acquire) {
            return;
        }
        let owner = &owner.object.meta;
        let pods = self
            .parts
            .pods
            .by_index(PODS_BY_OWNER, owner.uid.as_str())
            .unwrap_or_default();
        let waiting = pods
            .iter()
            .map(|pod| &pod.object.meta)
            .filter(|pod| pod.is_deleting() && (held(pod) || self.is_adopted(pod)));
        let mut renewed: Vec<StatusQuery> = Vec::new();
        for pod in waiting {
            let Some(query) = self.judging_query(pod).filter(|it| !renewed.contains(it)) else {
                continue;
            };
            let queries = &self.parts.status_queries;
            match queries.get(&query).as_ref().map(LiveAnswer::answer) {
                Some(
                    StatusState::Read(_) | StatusState::Offloaded(_) | StatusState::Unreadable(_),
                ) => {
                    queries.renew(&query, owner.key.shared_namespace());
                }
                // Reading it takes a second of CPU time: not at each change.
                Some(StatusState::TooLarge(_)) => {}
                None => queries.ask(query.clone(), Waiter::now(&pod.key)),
            }
            renewed.push(query);
        }
    }

    /// Whether the change of an owner may release pods that run.
    fn may_release_all(&self, kind: &Resource, old: &ObjectMeta, new: &Stored<OwnerMeta>) -> bool {
        let new = &new.object.meta;
        let finished = |owner: &ObjectMeta| {
            let profiles = self.profiles.iter();
            let mut profiles = profiles.filter(|profile| profile.owner.as_ref() == Some(kind));
            profiles.any(|profile| profile.is_owner_finished(&owner.labels))
        };
        old.uid != new.uid
            || old.deletion_timestamp != new.deletion_timestamp
            || new.is_deleting() && old.finalizers != new.finalizers
            || finished(old) != finished(new)
    }

    /// Enqueues every selected pod that is not held, after the gate has opened.
    pub fn queue_unheld(&self) {
        self.parts.pods.for_each(|pod| self.queue_if_unheld(pod));
    }

    /// Enqueues the pods of a namespace whose gate has opened.
    pub fn queue_unheld_in(&self, namespace: &str) {
        let pods = self.parts.pods.by_index(PODS_BY_NAMESPACE, namespace);
        for pod in pods.unwrap_or_default() {
            self.queue_if_unheld(&pod);
        }
    }

    fn queue_if_unheld(&self, pod: &Stored<Pod>) {
        if !held(&pod.object.meta) {
            self.queue_if_belayers(pod, Priority::Normal);
        }
    }

    /// The waiting pods of a namespace whose owner's status cannot be read, with the reason. The consumer cannot
    /// release this part of the backlog.
    pub fn unreadable_in(&self, namespace: &str) -> Vec<(ObjectKey, Arc<str>)> {
        let unreadable = |pod: Stored<Pod>| {
            let meta = &pod.object.meta;
            if !held(meta) || !meta.is_deleting() {
                return None;
            }
            let query = self.status_query(meta)?;
            match self.parts.status_queries.get(&query)?.answer() {
                StatusState::Offloaded(why) | StatusState::Unreadable(why) => {
                    Some((meta.key.clone(), why.clone()))
                }
                // A status that is too large does not count as backlog.
                StatusState::Read(_) | StatusState::TooLarge(_) => None,
            }
        };
        let pods = self.parts.pods.by_index(PODS_BY_NAMESPACE, namespace);
        let pods = pods.unwrap_or_default().into_iter();
        pods.filter_map(unreadable).collect()
    }

    /// Enqueues every held unselected pod, once their number is within the mass-release limit again.
    pub fn queue_unselected(&self) {
        for key in self.held_objects.unselected() {
            self.parts.queue.add(key, Priority::Release);
        }
    }

    fn queue_if_belayers(&self, pod: &Stored<Pod>, unheld: Priority) {
        let meta = &pod.object.meta;
        let priority = if held(meta) || self.is_adopted(meta) {
            Priority::Release
        } else if self.is_selected(meta) {
            unheld
        } else {
            return;
        };
        self.parts.queue.add(meta.key.clone(), priority);
    }

    /// Adds finalizers from now on: the gates that an earlier leader closed have been read.
    pub(crate) fn begin_to_hold(&self) {
        self.may_hold.store(true, Ordering::Release);
        self.queue_unheld();
    }
}

impl<V: View> Component<Pod> for PodFinalizer<V> {
    type Snapshot = Snapshot;
    type Evidence = Evidence;
    type Query = PodQuery;
    type Step = Recorded;

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        names::POD_STATUS_HOLD
    }

    fn interest(&self, change: &Change<'_, Pod>) -> Option<Priority> {
        let pod = &change.new?.object;
        let quiet = change.source.quiet();
        if held(&pod.meta) || self.is_adopted(&pod.meta) {
            let soon = self.may_be_released(pod);
            return Some(if soon { Priority::Release } else { quiet });
        }
        (!pod.meta.is_deleting() && self.is_selected(&pod.meta)).then_some(quiet)
    }

    fn observe(&self, pod: &Stored<Pod>) -> Snapshot {
        let key = &pod.object.meta.key;
        self.count_undecided(pod);
        let view = self.view(pod);
        self.end_lapsed_delays(&view);
        if let Some(answer) = view.node.as_ref().and_then(|node| node.answer.as_ref()) {
            // The last answer about its workflow's status may have changed without an event.
            let too_large = matches!(answer.answer(), StatusState::TooLarge(_));
            self.held_objects.note_status(key, too_large);
        }
        let mass_release = match view.selection {
            Selection::By { .. } => MassRelease::Within,
            Selection::None | Selection::Ignored => self.held_objects.mass_release(key),
        };
        Snapshot {
            pod: Some(view),
            backlog: self.backlog_limit(key),
            mass_release,
            resync: self.resync,
        }
    }

    fn decide(snapshot: &Snapshot, now: Timestamp) -> PodDecision {
        decide(snapshot, now)
    }

    fn ask(&self, query: PodQuery, waiter: Waiter<'_>) {
        match query {
            PodQuery::Owner(query) => {
                self.parts.owner_queries.ask(query, waiter);
            }
            PodQuery::Namespace(query) => {
                self.parts.namespace_queries.ask(query, waiter);
            }
            PodQuery::Status(query) => {
                self.parts.status_queries.ask(query, waiter);
            }
            PodQuery::Node(query) => {
                self.parts.node_queries.ask(query, waiter);
            }
            PodQuery::Delay(delay) => {
                let priority = match delay {
                    Delay::Cleanup(_) => Priority::Normal,
                    Delay::NodeLost(_) | Delay::ReleaseAfter(_) => Priority::Release,
                };
                let mut due = self.due.lock();
                due.entry(delay).or_insert_with(Waits::begin);
                drop(due);
                self.parts
                    .queue
                    .add_after(waiter.key.clone(), priority, waiter.after);
            }
        }
    }

    /// Records the pod's outcome.
    fn step<'a>(
        &'a self,
        pod: Option<&'a Stored<Pod>>,
        _: &'a Snapshot,
        which: Recorded,
        context: &'a StepContext<'a>,
    ) -> BoxFuture<'a, Result<Stepped, RequestError>> {
        match pod {
            Some(pod) => Box::pin(self.outcomes.record(pod, which, context.executor)),
            None => Box::pin(std::future::ready(Ok(Stepped::Done))),
        }
    }
}

#[cfg(test)]
mod tests;
