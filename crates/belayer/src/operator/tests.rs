use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_core::workqueue::{Outcome, WorkQueue, Workers};
use belayer_holds::names::{POD_RECREATION_HOLD, USER_AGENT};
use belayer_pod_recreation::crd;
use belayer_sandbox::{
    Actor, DeleteOptions, Gvr, ListOptions, Patch, Sandbox, Subresource, WriteOptions,
};
use serde_json::{Value, json};

use super::*;
use crate::health::Vitals;

const NAMESPACE: &str = "ci";

fn replica(sandbox: &Sandbox, leadership: Leadership) -> Operator {
    let client = client::in_process(sandbox.service("belayer"), USER_AGENT);
    let options = Options {
        watches: client.clone(),
        client,
        namespace: "belayer-system".into(),
        bounds: Bounds::default(),
        writes: Writes::Sent,
        leadership,
        lease: None,
        memory: Memory::default(),
        observer: Arc::new(()),
    };
    let components = Components::default()
        .with(belayer_pod_finalizer::profile::config::Settings::default())
        .with(belayer_workflow_finalizer::Settings::default())
        .with(belayer_pod_recreation::Settings::default());
    Operator::new(options, components)
}

fn create(sandbox: &Sandbox, gvr: &Gvr, namespace: Option<&str>, object: Value) {
    let (user, options) = (Actor::new("user"), WriteOptions::default());
    let created = sandbox
        .cluster()
        .create(&user, gvr, namespace, object, &options);
    created.unwrap();
}

/// Pods that the leader re-creates and releases. The standby's queues kept the key of each of them until it led.
#[tokio::test(start_paused = true)]
async fn the_queues_of_a_standby_forget_deleted_objects() {
    const PODS: usize = 20;
    let sandbox = Sandbox::builder().build();
    for text in [belayer_holds::gate::CRD, crd::YAML, crd::NODE_WIPE_YAML] {
        let definition = serde_saphyr::from_str(text).unwrap();
        create(&sandbox, &Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
    }
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    create(&sandbox, &Gvr::NAMESPACES, None, namespace);
    let (_guard, leadership) = Leadership::elected();
    let standby = replica(&sandbox, leadership);
    let queues = standby.queues.clone();
    let known = || -> usize { queues.iter().map(|queue| queue.snapshot().known).sum() };
    let stop = CancellationToken::new();
    let leader = replica(&sandbox, Leadership::unlimited());
    let running = [leader, standby].map(|one| tokio::spawn(one.run(stop.clone())));
    let pods = || {
        let all = ListOptions::default();
        sandbox
            .cluster()
            .list(&Gvr::PODS, None, &all)
            .unwrap()
            .items
    };
    let user = Actor::new("user");

    for n in 0..PODS {
        let pod = json!({
            "metadata": {
                "name": format!("p{n}"), "annotations": { "belayer.dev/recreate": "true" },
                "labels": { "workflows.argoproj.io/workflow": "w" },
            },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        });
        create(&sandbox, &Gvr::PODS, Some(NAMESPACE), pod);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    for (n, pod) in pods().iter().enumerate() {
        let held = pod["metadata"]["finalizers"].as_array();
        assert!(held.is_some_and(|all| all.iter().any(|name| name == POD_RECREATION_HOLD)));
        let rejected =
            json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected" });
        let status = if n % 2 == 0 {
            rejected
        } else {
            json!({ "phase": "Succeeded" })
        };
        let (cluster, options) = (sandbox.cluster(), WriteOptions::default());
        let (patch, face) = (
            Patch::Merge(json!({ "status": status })),
            Subresource::Status,
        );
        let name = pod["metadata"]["name"].as_str().unwrap();
        cluster
            .patch(
                &user,
                &Gvr::PODS,
                Some(NAMESPACE),
                name,
                patch,
                face,
                &options,
            )
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        known() >= PODS,
        "the standby has nothing to forget: {}",
        known()
    );
    for pod in pods() {
        let now = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let name = pod["metadata"]["name"].as_str().unwrap();
        let deleted = sandbox
            .cluster()
            .delete(&user, &Gvr::PODS, Some(NAMESPACE), name, &now);
        deleted.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(3 * 3_600)).await;
    assert_eq!(pods().len(), 0);
    assert_eq!(known(), 0, "{queues:#?}");

    stop.cancel();
    for one in running {
        one.await.unwrap();
    }
}

/// A task that waits for a server without answers. The Lease is released after the stop, so it must not wait for it.
#[tokio::test(start_paused = true)]
async fn a_background_task_delays_the_stop_for_half_a_minute_at_most() {
    let queue = WorkQueue::new("pods");
    let started = Vitals::default().workers("pods", queue.clone());
    let hangs: BackgroundTask = Box::new(|_| Box::pin(std::future::pending()));
    let group = WorkerGroup {
        name: "pods",
        queue: queue.clone(),
        needs: Vec::new(),
        start: Box::new(move || Workers::spawn(1, queue, |_| async { Outcome::Done })),
        background: vec![hangs],
    };
    let stop = CancellationToken::new();
    let working = tokio::spawn(work(group, started, std::future::ready(()), stop.clone()));
    tokio::time::sleep(STOP_WITHIN).await;
    assert!(!working.is_finished());
    let begun = tokio::time::Instant::now();
    stop.cancel();
    let ended = tokio::time::timeout(2 * STOP_WITHIN, working).await;
    ended.expect("it waits for the background task").unwrap();
    assert_eq!(begun.elapsed(), STOP_WITHIN);
}
