//! Random interleavings of pods, PVCs, deletions, restarts and stale caches, against a naive model.
//!
//! After every step the model lists the PVCs that any pod uses, by the rule as a person would write it down. A PVC
//! may be released only if at some step since its deletion no pod used it: otherwise no list that began after the
//! deletion can have shown that. In the end, once all pods are deleted and no fault is active, every deleted PVC
//! must be released.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use belayer_sandbox::{Actor, Fault, Gvr, ListOptions, Match, Subresource, Verb, WriteOptions};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::{PVCS, Running, SHOP, Shop};
use crate::world::{BELAYER, let_pass, within};

const PODS: u32 = 6;
const NAMES: u32 = 5;
const STEPS: usize = 250;

/// Use of a PVC since its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    /// Some pod used it at every step.
    UsedAllAlong,
    /// No pod used it at some step.
    OnceUnused,
}

struct Naive {
    rng: StdRng,
    shop: Shop,
    belayer: Option<Running>,
    /// By UID.
    deleted: BTreeMap<String, Deleted>,
    released: usize,
    kept: usize,
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The rule, naively.
fn uses(pod: &Value, pvc: &Value) -> bool {
    if pod["spec"]["nodeName"].is_null() {
        return false;
    }
    let shut_down = !pod["metadata"]["deletionTimestamp"].is_null()
        && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    let volumes = pod["spec"]["volumes"].as_array().cloned();
    volumes.unwrap_or_default().iter().any(|volume| {
        let by_name = &volume["persistentVolumeClaim"]["claimName"];
        if by_name == text(pvc, "name") {
            return true;
        }
        let name = format!("{}-{}", text(pod, "name"), volume["name"].as_str().unwrap());
        !volume["ephemeral"].is_null()
            && !shut_down
            && name == text(pvc, "name")
            && pvc["metadata"]["ownerReferences"][0]["uid"] == text(pod, "uid")
    })
}

impl Naive {
    fn new(seed: u64) -> Self {
        let shop = Shop::with_seed(seed);
        let belayer = Some(shop.run());
        Self {
            rng: StdRng::seed_from_u64(seed),
            shop,
            belayer,
            deleted: BTreeMap::new(),
            released: 0,
            kept: 0,
        }
    }

    fn all(&self, gvr: &Gvr) -> Vec<std::sync::Arc<Value>> {
        let cluster = self.shop.world.cluster();
        cluster
            .list(gvr, Some(SHOP), &ListOptions::default())
            .unwrap()
            .items
    }

    /// Reads everything between two steps.
    fn look(&mut self) {
        let (pods, pvcs) = (self.all(&Gvr::PODS), self.all(&PVCS));
        let mut there = BTreeSet::new();
        for pvc in &pvcs {
            if pvc["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            there.insert(text(pvc, "uid").to_owned());
            let unused = !pods.iter().any(|pod| uses(pod, pvc));
            let known = self
                .deleted
                .entry(text(pvc, "uid").to_owned())
                .or_insert(Deleted::UsedAllAlong);
            if unused {
                *known = Deleted::OnceUnused;
            } else {
                self.kept += 1;
            }
        }
        let gone: Vec<String> = self
            .deleted
            .keys()
            .filter(|uid| !there.contains(*uid))
            .cloned()
            .collect();
        for uid in gone {
            let known = self.deleted.remove(&uid);
            assert_eq!(
                known,
                Some(Deleted::OnceUnused),
                "claim {uid} was released although some pod has used it ever since its deletion"
            );
            self.released += 1;
        }
    }

    fn pick(&mut self, from: u32) -> u32 {
        self.rng.random_range(0..from)
    }

    async fn step(&mut self) {
        match self.pick(100) {
            0..=24 => self.create_pod(),
            25..=44 => self.remove_pod(),
            45..=52 => self.bind_or_end_pod(),
            53..=64 => self.create_pvc(),
            65..=84 => self.delete_pvc(),
            85..=88 => self.slow_watch(),
            89..=91 => self.miss_events().await,
            92..=94 => self.shop.world.sandbox.faults().clear(),
            95..=97 => self.break_requests(),
            _ => self.restart().await,
        }
        // Before and after Belayer runs: nothing else acts in between.
        self.look();
        let pause = [0, 1, 5, 40, 300, 2_000][self.pick(6) as usize];
        let_pass(Duration::from_millis(pause)).await;
        self.look();
    }

    fn create_pod(&mut self) {
        let name = format!("p{}", self.pick(PODS));
        if self
            .shop
            .world
            .cluster()
            .get(&Gvr::PODS, Some(SHOP), &name)
            .is_ok()
        {
            return;
        }
        let volumes = match self.pick(4) {
            0 => json!([]),
            1 => json!([{ "name": "e", "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1" } } } } } }]),
            _ => {
                json!([{ "name": "v", "persistentVolumeClaim": { "claimName": format!("c{}", self.pick(NAMES)) } }])
            }
        };
        let node = if self.pick(4) == 0 {
            Value::Null
        } else {
            json!("node-1")
        };
        let uid = self.shop.create_pod_of(&name, volumes.clone(), node);
        if !volumes[0]["ephemeral"].is_null() && self.pick(2) == 0 {
            let pvc = format!("{name}-e");
            if !self.shop.exists(&pvc) {
                let owner = json!({ "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true,
                }] });
                self.shop.pvc_with(&pvc, owner);
            }
        }
    }

    fn some(&mut self, gvr: &Gvr) -> Option<String> {
        let all = self.all(gvr);
        let count = u32::try_from(all.len()).unwrap();
        (count > 0).then(|| text(&all[self.pick(count) as usize], "name").to_owned())
    }

    fn remove_pod(&mut self) {
        let Some(name) = self.some(&Gvr::PODS) else {
            return;
        };
        if self.pick(3) == 0 {
            self.shop.delete_pod_gracefully(&name);
        } else {
            self.shop.remove_pod(&name);
        }
    }

    fn bind_or_end_pod(&mut self) {
        let Some(name) = self.some(&Gvr::PODS) else {
            return;
        };
        if self.pick(2) == 0 {
            let scheduler = Actor::new("scheduler");
            // A pod that has a node already, or is being deleted, is rejected.
            let _ = self.shop.world.cluster().bind(
                &scheduler,
                SHOP,
                &name,
                "node-1",
                &WriteOptions::default(),
            );
            return;
        }
        let status = json!({ "status": { "phase": "Succeeded" } });
        self.shop
            .world
            .patch_in(&Gvr::PODS, Some(SHOP), &name, status, Subresource::Status);
    }

    fn create_pvc(&mut self) {
        let name = format!("c{}", self.pick(NAMES));
        if !self.shop.exists(&name) {
            if self.pick(2) == 0 {
                self.shop.pvc(&name);
            } else {
                self.shop.held_pvc(&name);
            }
        }
    }

    /// Only held PVCs: one without a hold is deleted at once.
    fn delete_pvc(&mut self) {
        if let Some(name) = self.some(&PVCS)
            && self.shop.is_held(&name)
        {
            self.shop.delete_pvc(&name);
        }
    }

    fn slow_watch(&mut self) {
        let kind = ["pods", "persistentvolumeclaims"][self.pick(2) as usize];
        let watches = Match::watches().resource(kind).client(BELAYER);
        self.shop
            .world
            .sandbox
            .faults()
            .inject(Fault::on(watches).pause_watches());
    }

    /// Breaks the connection and drops the watch history.
    async fn miss_events(&mut self) {
        let faults = self.shop.world.sandbox.faults().clone();
        faults.cut_off();
        for _ in 0..self.pick(4) {
            self.remove_pod();
            self.look();
            self.create_pod();
            self.look();
        }
        let version = self.shop.world.cluster().version();
        self.shop.world.cluster().compact(version);
        let_pass(Duration::from_millis(100)).await;
        faults.restore();
    }

    fn break_requests(&mut self) {
        let (verb, kind) = [
            (Verb::List, "pods"),
            (Verb::Patch, "persistentvolumeclaims"),
        ][self.pick(2) as usize];
        let requests = Match::verb(verb).resource(kind).client(BELAYER);
        let fault = match self.pick(3) {
            0 => Fault::on(requests).lose_answer(),
            1 => Fault::on(requests).lose_request(),
            _ => Fault::on(requests).delay(Duration::from_millis(700)),
        };
        let times = u64::from(self.pick(5));
        self.shop.world.sandbox.faults().inject(fault.times(times));
    }

    async fn restart(&mut self) {
        let Some(belayer) = self.belayer.take() else {
            return;
        };
        if self.pick(2) == 0 {
            belayer.crash();
        } else {
            belayer.stop().await;
        }
        self.look();
        self.belayer = Some(self.shop.run());
    }
}

async fn run(seed: u64) -> (usize, usize) {
    let mut naive = Naive::new(seed);
    for _ in 0..STEPS {
        naive.step().await;
    }
    naive.shop.world.sandbox.faults().clear();
    while naive.some(&Gvr::PODS).is_some() {
        let name = naive.some(&Gvr::PODS).unwrap();
        naive.shop.remove_pod(&name);
        naive.look();
    }
    let shop = &naive.shop;
    within(
        Duration::from_secs(120),
        "all that was deleted is gone",
        || {
            let cluster = shop.world.cluster();
            let left = cluster
                .list(&PVCS, Some(SHOP), &ListOptions::default())
                .unwrap();
            let deleting =
                |pvc: &std::sync::Arc<Value>| !pvc["metadata"]["deletionTimestamp"].is_null();
            !left.items.iter().any(deleting)
        },
    )
    .await;
    naive.look();
    (naive.released, naive.kept)
}

#[tokio::test(start_paused = true)]
async fn no_pvc_is_released_while_it_is_used() {
    let (mut released, mut kept) = (0, 0);
    for seed in 0..12 {
        let (more, again) = run(seed).await;
        released += more;
        kept += again;
    }
    assert!(
        released > 100,
        "only {released} releases: nothing was shown"
    );
    assert!(kept > 100, "claims were hardly ever in use: {kept}");
}
