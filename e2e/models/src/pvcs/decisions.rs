//! From the model's states to the snapshots of pvc-protection, and back from its decisions. The planted faults that change a
//! decision are here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::{self, ObjectMeta};
use belayer_holds::decision::{Missing, Write};
use belayer_pvc_protection::Mode;
use belayer_pvc_protection::decide::decide;
use belayer_pvc_protection::pods_query::{Listed, PodsAnswer, PodsQuery};
use belayer_pvc_protection::query::PvcQuery;
use belayer_pvc_protection::snapshot::{CachedUsers, Hold, PvcView, Snapshot};
use belayer_pvc_protection::uses::Users;
use jiff::Timestamp;

use super::{AllPods, Answer, Demand, Fault, Pvc, Pvcs, Read, Replica};

impl Pvcs {
    pub(super) fn demand(&self, replica: &Replica) -> Demand {
        type Key = (Option<Fault>, Pvc, Option<AllPods>, Option<Answer>);
        thread_local! {
            static KNOWN: RefCell<HashMap<Key, Demand>> = RefCell::default();
        }
        let Some(pvc) = replica.pvc else {
            return Demand::Nothing;
        };
        let key = (self.fault, pvc, replica.pods, replica.answer);
        KNOWN.with_borrow_mut(|known| {
            *known.entry(key).or_insert_with(|| {
                let snapshot = self.observe(pvc, replica.pods, replica.answer);
                self.demand_of(&snapshot, replica.answer.is_some())
            })
        })
    }

    /// The snapshot that the controller would take. The planted faults are here.
    fn observe(&self, pvc: Pvc, pods: Option<AllPods>, answer: Option<Answer>) -> Snapshot {
        let (early, seen, late) = (LogicalTime::now(), LogicalTime::now(), LogicalTime::now());
        let is = |fault| self.fault == Some(fault);
        let cached = match pods {
            None => CachedUsers::Unknown,
            Some(all) => CachedUsers::Known {
                users: users(&all),
                as_of: if is(Fault::OldStore) {
                    ResourceVersion::new(u64::MAX)
                } else {
                    version(all.version)
                },
            },
        };
        let mut answer = answer.map(
            |Answer {
                 read,
                 late: is_late,
             }| {
                let begun = if is_late || is(Fault::EarlyRead) {
                    late
                } else {
                    early
                };
                let read = match read {
                    Read::Listed(all) => PodsAnswer::Listed(Arc::new(listed(&all))),
                    Read::StoreReached(at) => PodsAnswer::StoreReached(version(at)),
                };
                LiveAnswer::scripted(read, begun)
            },
        );
        if is(Fault::StoreIsProof)
            && let Some(all) = pods
        {
            let reached = PodsAnswer::StoreReached(version(all.version));
            answer = Some(LiveAnswer::scripted(reached, late));
        }
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", "data"),
            Uid::new(format!("pvc-{}", pvc.uid)),
            ResourceVersion::new(1),
        );
        Snapshot {
            pvc: Some(PvcView {
                meta: ObjectMeta {
                    deletion_timestamp: pvc.deleting.then(now),
                    ..meta
                },
                mode: Mode::Own,
                hold: if pvc.held {
                    Hold::Present
                } else {
                    Hold::Missing
                },
                deletion_seen: pvc.deleting.then_some(seen),
                cached,
                query: PodsQuery::new("shop"),
                pods_answer: answer,
                list_error: None,
                owner: None,
            }),
        }
    }

    fn demand_of(&self, snapshot: &Snapshot, has_read: bool) -> Demand {
        let decision = decide(snapshot, now());
        let asks = |missing: &Missing<PvcQuery>| matches!(missing, Missing::Answer { .. });
        let may_ask = self.fault != Some(Fault::NoRecheck) || !has_read;
        match decision.write {
            Some(Write::AddHold) => Demand::AddHold,
            Some(Write::Release(_)) => Demand::Release,
            _ if may_ask && decision.missing.iter().any(asks) => Demand::Read,
            _ => Demand::Nothing,
        }
    }
}

fn pods_of(all: &AllPods) -> impl Iterator<Item = slim::Pod> {
    let pods = all.pods.into_iter().enumerate();
    pods.filter_map(|(number, pod)| {
        let pod = pod?;
        let name = format!("web-{number}");
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", name.as_str()),
            Uid::new(&name),
            ResourceVersion::new(1),
        );
        Some(slim::Pod {
            node_name: pod.bound.then(|| "node-1".into()),
            pvcs: Box::from([Arc::from("data")]),
            ..slim::Pod::new(meta)
        })
    })
}

fn listed(all: &AllPods) -> Listed {
    let mut listed = Listed::at(version(all.version));
    pods_of(all).for_each(|pod| listed.note(&pod));
    listed
}

fn users(all: &AllPods) -> Users {
    let mut users = Users::default();
    let bound = pods_of(all).filter(slim::Pod::is_bound);
    bound.for_each(|pod| users.note_pod(&pod));
    users
}

fn version(number: u8) -> ResourceVersion {
    ResourceVersion::new(u64::from(number) + 1)
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
}
