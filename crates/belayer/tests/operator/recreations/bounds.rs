//! Owners that are read first, and rate limits.

use std::time::Duration;

use belayer_metrics::Exporter;
use belayer_pod_recreation::Settings;
use belayer_pod_recreation::rate_limit::{CircuitBreaker, Rate};
use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Fate, RECORDS, YARD, Yard, uid};
use crate::world::{BELAYER, gates};

fn config_map(yard: &Yard) -> Value {
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "owner" } });
    let gvr = Gvr::CONFIGMAPS;
    let owner = yard.world.create(&gvr, Some(YARD), object);
    json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner) }])
}

/// Garbage collection is slow: the record still exists long after the deletion of the owner.
#[tokio::test(start_paused = true)]
async fn a_deleted_owner_is_noticed_before_an_attempt_is_reserved() {
    let yard = Yard::without_garbage_collection();
    let owners = config_map(&yard);
    let belayer = yard.run();
    yard.pod_with(
        "web",
        json!({ "annotations": { "belayer.dev/recreate": "true" }, "ownerReferences": owners }),
    );
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    yard.world.delete(&Gvr::CONFIGMAPS, Some(YARD), "owner");
    yard.wait("it is given up", || yard.phase() == "Ended")
        .await;
    let status = yard.record()["status"].clone();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("ConfigMap owner is gone"), "{message}");
    assert_eq!(status["attempts"], 0);
    yard.wait_for(Duration::from_secs(600)).await;
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_an_existing_owner_is_recreated() {
    let yard = Yard::new();
    let owners = config_map(&yard);
    let belayer = yard.run();
    yard.pod_with(
        "web",
        json!({ "annotations": { "belayer.dev/recreate": "true" }, "ownerReferences": owners }),
    );
    yard.until("it runs", || yard.is_settled("web")).await;
    let again = yard.find("web").unwrap();
    assert_eq!(again["metadata"]["ownerReferences"], owners);
    belayer.stop().await;
}

/// The owner cannot be read: nothing is reserved, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn no_attempt_is_reserved_while_the_owner_is_unreadable() {
    let yard = Yard::new();
    let owners = config_map(&yard);
    let reads = Match::verb(Verb::Get)
        .resource("configmaps")
        .client(BELAYER);
    let unavailable = belayer_sandbox::Answer::service_unavailable();
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(reads).answer(unavailable));
    let belayer = yard.run();
    yard.pod_with(
        "web",
        json!({ "annotations": { "belayer.dev/recreate": "true" }, "ownerReferences": owners }),
    );
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    yard.wait_for(Duration::from_secs(120)).await;
    assert_eq!(yard.record()["status"]["attempts"], 0);
    yard.world.sandbox.faults().clear();
    yard.until("it runs", || yard.is_settled("web")).await;
    belayer.stop().await;
}

/// Every node rejects everything: the budget is used up, then there are no more attempts.
#[tokio::test(start_paused = true)]
async fn rejections_by_every_node_end_with_the_budget() {
    const PODS: usize = 60;
    let yard = Yard::rejecting(99);
    let mut settings = Settings::default();
    settings.rate_limits.per_node = Rate {
        per_second: 2.0,
        burst: 5,
    };
    settings.rate_limits.breaker = CircuitBreaker {
        rejections: 20,
        within_seconds: 60,
        open_seconds: 30,
        namespaces: Vec::new(),
    };
    let belayer = yard.run_as(BELAYER, settings);
    let node = json!({ "nodeName": "node-1" });
    for n in 0..PODS {
        yard.pod_on(&format!("web-{n}"), node.clone());
    }
    let all_ended = |yard: &Yard| {
        let records = yard.records();
        let exhausted = |record: &&std::sync::Arc<Value>| record["status"]["phase"] == "Exhausted";
        records.iter().filter(exhausted).count() == PODS
    };
    let begun = tokio::time::Instant::now();
    while !all_ended(&yard) {
        assert!(
            begun.elapsed() < Duration::from_secs(3_000),
            "not all records have ended"
        );
        yard.play();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(yard.creates(), PODS * 3, "exactly the budget");
    for record in yard.records() {
        let status = &record["status"];
        assert_eq!(
            (&status["attempts"], &status["podStarts"]),
            (&json!(3), &json!(4))
        );
    }
    // 180 re-creations at two a second after the first five.
    assert!(
        begun.elapsed() > Duration::from_secs(85),
        "no re-creation waited"
    );
    let writes = yard.applied(&Gvr::PODS) + yard.applied(&RECORDS);
    yard.wait_for(Duration::from_secs(1_800)).await;
    let later = yard.applied(&Gvr::PODS) + yard.applied(&RECORDS);
    assert_eq!(later, writes, "writes after the end");
    belayer.stop().await;
}

/// Circuit breakers that open for five minutes after so many rejections.
fn opening_after(rejections: u32) -> Settings {
    let mut settings = Settings::default();
    settings.policy.backoff_seconds = 1;
    settings.rate_limits.breaker = CircuitBreaker {
        rejections,
        within_seconds: 60,
        open_seconds: 300,
        namespaces: Vec::new(),
    };
    settings
}

/// The circuit breaker of one namespace on the node is open: its rejected pods wait until it closes.
#[tokio::test(start_paused = true)]
async fn while_a_circuit_breaker_is_open_rejected_pods_wait() {
    let yard = Yard::rejecting(1);
    let belayer = yard.run_as(BELAYER, opening_after(3));
    let node = json!({ "nodeName": "node-1" });
    for name in ["a", "b", "c"] {
        yard.pod_on(name, node.clone());
    }
    yard.pass(Duration::from_secs(200)).await;
    assert_eq!(yard.creates(), 0, "the breaker is open");
    assert_eq!(yard.records().len(), 3);
    yard.until("all run", || {
        ["a", "b", "c"].iter().all(|name| yard.is_running(name))
    })
    .await;
    belayer.stop().await;
}

/// One rejection in each of three namespaces: the node is the cause. In two namespaces it is not.
#[rstest]
#[case::with_two_others(&["a", "b"], 0)]
#[case::with_one_other(&["a"], 1)]
#[tokio::test(start_paused = true)]
async fn t8_the_circuit_breaker_of_a_node_opens_for_all_namespaces(
    #[case] others: &[&str],
    #[case] created: usize,
) {
    let yard = Yard::rejecting(1);
    let belayer = yard.run_as(BELAYER, opening_after(2));
    let node = json!({ "nodeName": "node-1" });
    for &namespace in others {
        yard.world.create_namespace(namespace);
        yard.pod_in(namespace, "web", node.clone());
        let held = || {
            let pod = yard.world.cluster().get(&Gvr::PODS, Some(namespace), "web");
            pod.is_ok_and(|pod| pod["metadata"]["finalizers"].is_array())
        };
        yard.until("it is held", held).await;
        yard.report_in(namespace, "web", super::Fate::Rejected("OutOfcpu"));
    }
    yard.pod_on("web", node);
    yard.pass(Duration::from_secs(200)).await;
    let records = yard.records().len();
    let created_here = yard.pods_seen("web") - 1;
    assert_eq!((records, created_here), (1, created));
    yard.until("it runs", || yard.is_running("web")).await;
    belayer.stop().await;
}

/// A cancellation by the user survives a restart of Belayer.
#[rstest]
#[case::of_the_record("Rejected")]
#[tokio::test(start_paused = true)]
async fn a_cancellation_survives_a_restart(#[case] phase: &str) {
    let yard = Yard::new();
    let tries = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let slow = Fault::on(tries).delay(Duration::from_secs(2));
    yard.world.sandbox.faults().inject(slow);
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.until("it is there", || yard.phase() == phase).await;
    let name = super::text(&yard.record(), "/metadata/name");
    yard.world.delete(&RECORDS, Some(YARD), &name);
    yard.wait("it is released", || !yard.is_held("web")).await;
    belayer.stop().await;
    let again = yard.run();
    yard.pass(Duration::from_secs(300)).await;
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert!(yard.records().is_empty(), "it was recorded again");
    assert_eq!(yard.creates(), 0);
    again.stop().await;
}

/// Drained during the pause: no pod gets a new hold, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn r5_a_pod_that_exists_only_in_its_record_is_created_during_a_drain() {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    let gate = |mode: &str| json!({ "data": { "mode": mode } });
    let normal = json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "belayer-gate" }, "data": { "mode": "normal" } });
    let own = Some("belayer-system");
    yard.world.create(&gates(), own, normal);
    let set_mode = |mode: &str| {
        let none = belayer_sandbox::Subresource::None;
        yard.world
            .patch_in(&gates(), own, "belayer-gate", gate(mode), none);
    };
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    set_mode("draining");
    let begun = Instant::now();
    yard.until("it runs", || yard.is_settled("web")).await;
    let pause = Duration::from_secs(12);
    assert!(begun.elapsed() < pause, "it waited: {:?}", begun.elapsed());
    // No re-creation starts meanwhile.
    yard.pod("late");
    yard.pass(Duration::from_secs(600)).await;
    assert!(!yard.is_held("late"));
    assert_eq!(yard.creates(), 1);
    set_mode("normal");
    yard.wait("it is held", || yard.is_held("late")).await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected() {
    let yard = Yard::new();
    let belayer = yard.run();
    let retry_after = Duration::from_secs(50);
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let busy = Fault::on(creates).answer(Answer::too_many_requests(retry_after));
    let fault = yard.world.sandbox.faults().inject(busy.times(1));
    let begun = Instant::now();
    yard.pod("web");
    yard.until("it has started", || yard.started("web") == 1)
        .await;
    assert_eq!(fault.hits(), 1);
    assert!(begun.elapsed() >= retry_after, "{:?}", begun.elapsed());
    belayer.stop().await;
}

/// `belayer_holds` and `belayer_waiting` of pod-recreation.
#[tokio::test(start_paused = true)]
async fn the_metrics_count_held_and_waiting_pods() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let yard = Yard::new();
    let belayer = yard.run();
    let counts = || {
        let text = exporter.render();
        ["belayer_holds", "belayer_waiting"].map(|name| {
            let series = format!("{name}{{controller=\"pod-recreation\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&series));
            value.unwrap_or("none").to_owned()
        })
    };
    for name in ["web", "db"] {
        yard.pod(name);
    }
    yard.wait("both are held", || {
        yard.is_held("web") && yard.is_held("db")
    })
    .await;
    yard.wait_for(Duration::from_secs(6)).await;
    assert_eq!(counts(), ["2", "0"]);
    let patches = Match::verb(Verb::Patch).resource("pods").client(BELAYER);
    let faults = yard.world.sandbox.faults();
    let denied = faults.inject(Fault::on(patches).answer(Answer::internal_error()));
    yard.delete("web");
    yard.wait_for(Duration::from_secs(6)).await;
    assert_eq!(counts(), ["2", "1"]);
    denied.remove();
    yard.report("db", Fate::Runs);
    let released = || yard.find("web").is_none() && !yard.is_held("db");
    yard.wait("both are released", released).await;
    yard.wait_for(Duration::from_secs(6)).await;
    assert_eq!(counts(), ["0", "0"]);
    belayer.stop().await;
}
