//! From stores to lifecycles: what is seen of a name becomes what its lifecycles are told.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::informer::{Lookup, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim;
use belayer_core::workqueue::Outcome;
use belayer_lifecycles::{Deadline, Identity, Known, Lifecycles, Pass, Phase};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::decide::{Asks, State, asks, state};
use crate::place::beside;
use crate::record::{Record, Wish};
use crate::uid::PodUid;
use crate::work::{Pod, PodWork};
use crate::world::World;

/// A store that cannot say is asked again after this.
const UNKNOWN: Duration = Duration::from_millis(500);

/// Tells the lifecycles of a node's pods. One at a time, so that they hear of a name in order.
///
/// Work is serialised by the pod's name. A wipe that becomes known only when the name is another pod's
/// already (its record came late) has a key of its own, or it would end the newer pod's work.
pub(crate) struct InformerHandle {
    world: Arc<World>,
    lifecycles: Lifecycles<PodWork>,
    told: Mutex<HashMap<ObjectKey, (Uid, Told)>>,
}

/// What was last told of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Alive,
    Stop,
}

impl InformerHandle {
    pub(crate) fn new(world: Arc<World>, lifecycles: Lifecycles<PodWork>) -> Self {
        Self {
            world,
            lifecycles,
            told: Mutex::default(),
        }
    }

    /// Looks at a name.
    pub(crate) fn look(&self, key: &ObjectKey) -> Outcome {
        let again = Outcome::Again { after: UNKNOWN };
        let pod = match self.world.pods.lookup(key) {
            Lookup::Unknown => return again,
            Lookup::Absent => None,
            Lookup::Found(pod) => Some(pod),
        };
        let Some(records) = self.world.records_of(key) else {
            return again;
        };
        let current = pod.as_ref().map(|pod| pod.meta.uid.clone());
        self.forget_others(key, current.as_ref());
        // Older pods first: at the start of the agent theirs is the name.
        for record in &records {
            if record.rejected != current {
                self.look_at_gone(key, record, current.as_ref());
            }
        }
        if let Some(pod) = pod {
            self.look_at_pod(key, &pod);
        }
        self.world.tell();
        Outcome::Done
    }

    /// The pod of this name that was told of before is gone.
    fn forget_others(&self, key: &ObjectKey, current: Option<&Uid>) {
        let mut told = self.told.lock();
        let gone = told.get(key).filter(|(uid, _)| Some(uid) != current);
        let Some(uid) = gone.map(|(uid, _)| uid.clone()) else {
            return;
        };
        told.remove(key);
        drop(told);
        self.lifecycles
            .deleted(&Identity::new(key.clone(), uid.clone()));
        self.world.forget(&uid);
    }

    fn look_at_pod(&self, key: &ObjectKey, stored: &Stored<slim::Pod>) {
        let uid = &stored.meta.uid;
        let (wish, _) = self.world.wish(key, uid);
        let known = self.told.lock().get(key).map(|(_, told)| *told);
        if asks(stored) == Asks::No && wish == Wish::None && known.is_none() {
            return;
        }
        let Ok(path_uid) = PodUid::parse(uid.as_str()) else {
            tracing::debug!(pod = %key, %uid, "not of a form that is ever wiped");
            return;
        };
        let pod = Pod {
            key: key.clone(),
            uid: path_uid,
        };
        if wish == Wish::Wanted && !self.world.is_refused(key, uid) {
            self.world.want(uid);
        }
        let wanted = asks(stored) == Asks::Yes && wish == Wish::None;
        let now = if wanted && state(stored) == State::Alive {
            Told::Alive
        } else {
            Told::Stop
        };
        let identity = Identity::new(key.clone(), uid.clone());
        match (known, now) {
            (None, Told::Alive) => self.lifecycles.created(&identity, pod),
            // Late: dropped where the pod's work has come to its end.
            (Some(Told::Stop), Told::Alive) => self.lifecycles.updated(&identity, pod),
            (None | Some(Told::Alive), Told::Stop) => {
                self.lifecycles.terminating(&identity, pod, Deadline::NONE);
            }
            (Some(Told::Alive), Told::Alive) => {}
            (Some(Told::Stop), Told::Stop) => self.revive(key, uid, wish, pod),
        }
        self.told.lock().insert(key.clone(), (uid.clone(), now));
    }

    /// A record asks for the wipe of a pod whose work has ended without one.
    fn revive(&self, key: &ObjectKey, uid: &Uid, wish: Wish, pod: Pod) {
        if wish != Wish::Wanted || self.world.is_refused(key, uid) {
            return;
        }
        let known = self
            .lifecycles
            .known(&Identity::new(key.clone(), uid.clone()));
        let finished = matches!(&known, Known::Known(view) if view.phase == Phase::Finished);
        if finished || known == Known::Absent {
            self.terminate_beside(key, uid, pod);
        }
    }

    /// A record asks about a pod that is not there any more.
    fn look_at_gone(&self, key: &ObjectKey, record: &Record, current: Option<&Uid>) {
        let Some(uid) = &record.rejected else {
            return;
        };
        let wanted = record.wish_for(&self.world.node, uid) == Wish::Wanted;
        if !wanted || self.world.is_refused(key, uid) {
            return;
        }
        let Ok(path_uid) = PodUid::parse(uid.as_str()) else {
            tracing::warn!(record = %record.meta.key, %uid, "ignoring a record whose podUID is not a UID");
            return;
        };
        let pod = Pod {
            key: key.clone(),
            uid: path_uid,
        };
        self.world.want(uid);
        let identity = Identity::new(key.clone(), uid.clone());
        let known = self.lifecycles.known(&identity);
        if matches!(&known, Known::Known(view) if view.phase != Phase::Finished) {
            return;
        }
        let taken = current.is_some() && self.told.lock().contains_key(key);
        if taken || matches!(known, Known::Known(_)) {
            self.terminate_beside(key, uid, pod);
        } else {
            self.lifecycles.terminating(&identity, pod, Deadline::NONE);
        }
    }

    fn terminate_beside(&self, key: &ObjectKey, uid: &Uid, pod: Pod) {
        let identity = beside(key, uid);
        let known = self.lifecycles.known(&identity);
        if matches!(&known, Known::Known(view) if view.phase == Phase::Finished) {
            self.lifecycles.deleted(&identity);
        }
        self.lifecycles.terminating(&identity, pod, Deadline::NONE);
    }

    /// Compares what the lifecycles know with what was told: what was missed is found by this.
    pub(crate) fn reconcile(&self) {
        let mut pass = Pass::begin();
        for (key, (uid, _)) in &*self.told.lock() {
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
