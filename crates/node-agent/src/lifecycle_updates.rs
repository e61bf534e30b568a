//! From stores to lifecycles: turns the pods and wipes of a name into updates of its lifecycles.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::informer::{Lookup, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim;
use belayer_core::workqueue::Outcome;
use belayer_lifecycles::{Deadline, Identity, Known, Lifecycles, Pass, Phase};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::command::Pod;
use crate::decide::{State, WipeRequest, asks, state};
use crate::place::by_uid;
use crate::uid::PodUid;
use crate::work::PodWork;
use crate::world::World;

/// Delay before a name is processed again when a store is not synced.
const UNKNOWN: Duration = Duration::from_millis(500);

/// Updates the lifecycles of the node's pods, one name at a time, so that updates arrive in order.
///
/// Work is serialised by the pod's name, because handlers of a new pod wait for the wipe of the older one. If the request
/// for an older pod arrives after a new pod has the name, the wipe has a key of its own; otherwise it would end the newer
/// pod's work. Without handlers each wipe has a key of its own.
pub(crate) struct LifecycleUpdater {
    world: Arc<World>,
    lifecycles: Lifecycles<PodWork>,
    reported: Mutex<HashMap<ObjectKey, (Uid, LastUpdate)>>,
}

/// The last update of a pod's lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastUpdate {
    Alive,
    Stop,
}

impl LifecycleUpdater {
    pub(crate) fn new(world: Arc<World>, lifecycles: Lifecycles<PodWork>) -> Self {
        Self {
            world,
            lifecycles,
            reported: Mutex::default(),
        }
    }

    /// Updates the lifecycles of a pod name.
    pub(crate) fn process(&self, key: &ObjectKey) -> Outcome {
        let again = Outcome::Again { after: UNKNOWN };
        let pod = match self.world.pod(key) {
            Lookup::Unknown => return again,
            Lookup::Absent => None,
            Lookup::Found(pod) => Some(pod),
        };
        let Some(requests) = self.world.requests_of(key) else {
            return again;
        };
        let current = pod.as_ref().map(|pod| pod.meta.uid.clone());
        self.drop_others(key, current.as_ref());
        // Older pods first: after a start of the agent, the lifecycle of the name belongs to them.
        for (uid, request) in requests {
            if request == WipeRequest::Wanted && Some(&uid) != current.as_ref() {
                self.process_gone(key, &uid, current.as_ref());
            }
        }
        if let Some(pod) = pod {
            self.process_pod(key, &pod);
        }
        self.world.notify();
        Outcome::Done
    }

    /// Ends the lifecycle of an older pod of this name: it is deleted.
    fn drop_others(&self, key: &ObjectKey, current: Option<&Uid>) {
        let mut reported = self.reported.lock();
        let gone = reported.get(key).filter(|(uid, _)| Some(uid) != current);
        let Some(uid) = gone.map(|(uid, _)| uid.clone()) else {
            return;
        };
        reported.remove(key);
        drop(reported);
        self.lifecycles
            .deleted(&Identity::new(key.clone(), uid.clone()));
        self.world.drop_pod(&uid);
    }

    fn process_pod(&self, key: &ObjectKey, stored: &Stored<slim::Pod>) {
        let uid = &stored.meta.uid;
        let request = self.world.wipe_request(uid);
        let known = self.reported.lock().get(key).map(|(_, reported)| *reported);
        if !asks(stored) && request == WipeRequest::None && known.is_none() {
            return;
        }
        let Ok(path_uid) = PodUid::parse(uid.as_str()) else {
            tracing::debug!(pod = %key, %uid, "ignoring pod: its UID is not one that the API server generates");
            return;
        };
        let pod = Pod {
            key: key.clone(),
            uid: path_uid,
        };
        if request == WipeRequest::Wanted {
            self.world.request_wipe(uid);
        }
        let wanted = asks(stored) && request == WipeRequest::None;
        let now = if wanted && state(stored) == State::Alive {
            LastUpdate::Alive
        } else {
            LastUpdate::Stop
        };
        let identity = Identity::new(key.clone(), uid.clone());
        // Locked until it is noted: a comparison in between would take the lifecycle for one whose pod is gone.
        let mut reported = self.reported.lock();
        match (known, now) {
            (None, LastUpdate::Alive) => self.lifecycles.created(&identity, pod),
            // The lifecycle drops this update if the pod's work has ended.
            (Some(LastUpdate::Stop), LastUpdate::Alive) => self.lifecycles.updated(&identity, pod),
            (None | Some(LastUpdate::Alive), LastUpdate::Stop) => {
                self.lifecycles.terminating(&identity, pod, Deadline::NONE);
            }
            (Some(LastUpdate::Alive), LastUpdate::Alive) => {}
            (Some(LastUpdate::Stop), LastUpdate::Stop) => self.revive(key, uid, request, pod),
        }
        reported.insert(key.clone(), (uid.clone(), now));
    }

    /// Starts a requested wipe of a pod whose work has ended without one.
    fn revive(&self, key: &ObjectKey, uid: &Uid, request: WipeRequest, pod: Pod) {
        if request != WipeRequest::Wanted {
            return;
        }
        let known = self
            .lifecycles
            .known(&Identity::new(key.clone(), uid.clone()));
        let finished = matches!(&known, Known::Known(view) if view.phase == Phase::Finished);
        if finished || known == Known::Absent {
            self.terminate_by_uid(key, uid, pod);
        }
    }

    /// Starts a requested wipe of a pod that is deleted, or not watched.
    fn process_gone(&self, key: &ObjectKey, uid: &Uid, current: Option<&Uid>) {
        let Ok(path_uid) = PodUid::parse(uid.as_str()) else {
            tracing::warn!(pod = %key, %uid, "ignoring a requested wipe: its key is not the UID of a pod");
            return;
        };
        let pod = Pod {
            key: key.clone(),
            uid: path_uid,
        };
        self.world.request_wipe(uid);
        if self.world.pods.is_none() {
            return self.terminate_by_uid(key, uid, pod);
        }
        let identity = Identity::new(key.clone(), uid.clone());
        let known = self.lifecycles.known(&identity);
        if matches!(&known, Known::Known(view) if view.phase != Phase::Finished) {
            return;
        }
        let taken = current.is_some() && self.reported.lock().contains_key(key);
        if taken || matches!(known, Known::Known(_)) {
            self.terminate_by_uid(key, uid, pod);
        } else {
            self.lifecycles.terminating(&identity, pod, Deadline::NONE);
        }
    }

    fn terminate_by_uid(&self, key: &ObjectKey, uid: &Uid, pod: Pod) {
        let identity = by_uid(key, uid);
        match self.lifecycles.known(&identity) {
            Known::Known(view) if view.phase == Phase::Finished => {
                self.lifecycles.deleted(&identity);
            }
            // Its wipe is under way, or waits for the end of its pause.
            Known::Known(_) => return,
            _ => {}
        }
        self.lifecycles.terminating(&identity, pod, Deadline::NONE);
    }

    /// Compares the lifecycles with the last updates, so that a missed update is repeated.
    pub(crate) fn reconcile(&self) {
        let mut pass = Pass::begin();
        for (key, (uid, _)) in &*self.reported.lock() {
            if let Ok(path_uid) = PodUid::parse(uid.as_str()) {
                let pod = Pod {
                    key: key.clone(),
                    uid: path_uid,
                };
                pass = pass.desired(Identity::new(key.clone(), uid.clone()), pod);
            }
        }
        self.lifecycles.reconcile(pass);
    }
}
