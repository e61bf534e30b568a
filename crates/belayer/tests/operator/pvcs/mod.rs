//! All of pvc-protection on the embedded API server under paused time.

mod advised;
mod keeping;
mod live_lists;
mod queueing;
mod random;
mod reported;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use belayer::operator::{Components, Operator, Options};
use belayer::server::Holds;
use belayer_core::client;
use belayer_core::election::Leadership;
use belayer_core::executor::Writes;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};
use belayer_pvc_protection::{Mode, PvcProtection, Settings};
use belayer_sandbox::{DeleteOptions, Gvr, Outcome, Sandbox, Subresource, Verb, Write};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceBuilder};

use crate::world::{BELAYER, World, eventually, options};

const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;
const SHOP: &str = "shop";

/// An API server without simulated controllers: the test binds and deletes pods.
pub(crate) struct Shop {
    world: World,
    /// Bytes of the responses to Belayer.
    bytes: Arc<AtomicU64>,
}

/// pvc-protection alone, running.
pub(crate) struct Running {
    protection: Arc<PvcProtection>,
    holds: Arc<dyn Holds>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    fn crash(self) {
        self.task.abort();
    }
}

impl Shop {
    fn new() -> Self {
        Self::with_seed(7)
    }

    fn with_seed(seed: u64) -> Self {
        let world = World {
            sandbox: Sandbox::builder().seed(seed).build(),
        };
        world.create_namespace(SHOP);
        Self {
            world,
            bytes: Arc::default(),
        }
    }

    fn run(&self) -> Running {
        self.run_as(Mode::Own)
    }

    fn run_as(&self, mode: Mode) -> Running {
        self.run_with(mode, Writes::Sent)
    }

    fn run_with(&self, mode: Mode, writes: Writes) -> Running {
        self.run_as_one_of_many(mode, writes, Leadership::unlimited())
    }

    fn run_as_one_of_many(&self, mode: Mode, writes: Writes, leadership: Leadership) -> Running {
        let service = counting(self.world.sandbox.service(BELAYER), Arc::clone(&self.bytes));
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        let options = Options {
            writes,
            leadership,
            ..options(client::in_process(
                service,
                belayer_holds::names::USER_AGENT,
            ))
        };
        let operator = Operator::new(options, Components::default().with(settings));
        let protection = operator.provided().unwrap();
        let holds = operator.holds();
        let stop = CancellationToken::new();
        let task = tokio::spawn(operator.run(stop.clone()));
        Running {
            protection,
            holds,
            stop,
            task,
        }
    }

    /// A PVC without a hold.
    fn pvc(&self, name: &str) {
        self.pvc_with(name, json!({}));
    }

    fn held_pvc(&self, name: &str) {
        self.pvc_with(name, json!({ "finalizers": [PVC_PROTECTION_HOLD] }));
    }

    fn pvc_with(&self, name: &str, metadata: Value) {
        self.pvc_in(SHOP, name, metadata);
    }

    fn pvc_in(&self, namespace: &str, name: &str, mut metadata: Value) {
        metadata["name"] = name.into();
        metadata["namespace"] = namespace.into();
        let pvc = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        self.world.create(&PVCS, Some(namespace), pvc);
    }

    /// Creates a pod bound to a node that refers to these PVCs; returns its UID.
    fn pod(&self, name: &str, pvcs: &[&str]) -> String {
        self.create_pod(name, pvcs, json!("node-1"))
    }

    fn unbound_pod(&self, name: &str, pvcs: &[&str]) -> String {
        self.create_pod(name, pvcs, Value::Null)
    }

    fn create_pod(&self, name: &str, pvcs: &[&str], node: Value) -> String {
        let volumes: Vec<Value> = pvcs
            .iter()
            .enumerate()
            .map(|(n, pvc)| json!({ "name": format!("v{n}"), "persistentVolumeClaim": { "claimName": pvc } }))
            .collect();
        self.create_pod_of(name, volumes.into(), node)
    }

    fn create_pod_of(&self, name: &str, volumes: Value, node: Value) -> String {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": SHOP, "name": name },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        });
        if volumes
            .as_array()
            .is_some_and(|volumes| !volumes.is_empty())
        {
            pod["spec"]["volumes"] = volumes;
        }
        if !node.is_null() {
            pod["spec"]["nodeName"] = node;
        }
        let pod = self.world.create(&Gvr::PODS, Some(SHOP), pod);
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn delete_pvc(&self, name: &str) {
        self.world.delete(&PVCS, Some(SHOP), name);
    }

    /// Deletes the pod at once.
    fn remove_pod(&self, name: &str) {
        self.world.delete(&Gvr::PODS, Some(SHOP), name);
    }

    /// Requests the deletion of the pod, which stays until its kubelet ends it.
    fn delete_pod_gracefully(&self, name: &str) {
        let options = DeleteOptions {
            grace_period_seconds: Some(30),
            ..DeleteOptions::default()
        };
        let user = belayer_sandbox::Actor::new("user");
        self.world
            .cluster()
            .delete(&user, &Gvr::PODS, Some(SHOP), name, &options)
            .unwrap();
    }

    fn patch_pvc(&self, name: &str, patch: Value) {
        self.world
            .patch_in(&PVCS, Some(SHOP), name, patch, Subresource::None);
    }

    fn finalizers(&self, pvc: &str) -> Vec<String> {
        self.finalizers_in(SHOP, pvc)
    }

    fn finalizers_in(&self, namespace: &str, pvc: &str) -> Vec<String> {
        let Ok(pvc) = self.world.cluster().get(&PVCS, Some(namespace), pvc) else {
            return Vec::new();
        };
        let all = pvc["metadata"]["finalizers"].as_array();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.map(|all| all.iter().map(text).collect())
            .unwrap_or_default()
    }

    fn exists(&self, pvc: &str) -> bool {
        let found = self.world.cluster().get(&PVCS, Some(SHOP), pvc);
        found.is_ok()
    }

    fn is_held(&self, pvc: &str) -> bool {
        let all = self.finalizers(pvc);
        all.iter().any(|name| name == PVC_PROTECTION_HOLD)
    }

    async fn all_held(&self, pvcs: &[&str]) {
        for pvc in pvcs {
            eventually("it is held", || self.is_held(pvc)).await;
        }
    }

    async fn gone(&self, pvc: &str) {
        eventually(&format!("the claim {pvc} is gone"), || !self.exists(pvc)).await;
    }

    /// Successful writes of Belayer to PVCs.
    fn applied(&self) -> Vec<Write> {
        let writes = self.world.sandbox.recorder().writes_by(BELAYER);
        writes
            .into_iter()
            .filter(|write| write.resource == PVCS && write.outcome == Outcome::Applied)
            .collect()
    }

    fn lists_of_pods(&self) -> u64 {
        self.world.requests(Verb::List, "pods")
    }
}

fn protected_by_kubernetes() -> Value {
    json!({ "finalizers": [KUBERNETES_PVC_PROTECTION] })
}

type Count = Box<dyn FnMut(Frame<Bytes>) -> Frame<Bytes> + Send>;

/// Counts the bytes of responses.
fn counting<S, R, B>(
    service: S,
    bytes: Arc<AtomicU64>,
) -> impl Service<
    R,
    Response = http::Response<MapFrame<B, Count>>,
    Error = S::Error,
    Future: Send + 'static,
> + Send
+ 'static
where
    S: Service<R, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    R: 'static,
{
    ServiceBuilder::new()
        .map_response(move |answer: http::Response<B>| {
            let bytes = Arc::clone(&bytes);
            let count: Count = Box::new(move |frame: Frame<Bytes>| {
                let length = frame.data_ref().map_or(0, Bytes::len);
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                frame
            });
            answer.map(|body| body.map_frame(count))
        })
        .service(service)
}
