//! What `explain` reports about a pod, on live reads.

use std::sync::Arc;

use belayer_core::client;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::slim::{DecodeContext, Interner, Keep, Pod};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::owner::OwnerReader;
use belayer_pod_recreation::explain::{Looks, Seen, why_not};
use belayer_pod_recreation::{Settings, component, holds, row};
use jiff::Timestamp;
use serde_json::json;

use super::{Fate, Yard};

struct Explainer {
    looks: Looks,
    pods: JsonDecoder<Pod>,
}

impl Explainer {
    fn new(yard: &Yard) -> Self {
        let client = client::in_process(yard.world.sandbox.service("somebody"));
        let executor = Arc::new(Executor::new(
            client,
            FIELD_MANAGER,
            Bounds::default(),
            Writes::DryRun,
        ));
        let context = |keep: Keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let namespaces = Decoders::new(JsonDecoder::new(context(component::keep_of_namespaces())));
        let owners = Decoders::new(JsonDecoder::new(DecodeContext::default()));
        let settings = Settings::default();
        Self {
            pods: JsonDecoder::new(context(component::keep_of_pods(&settings))),
            looks: Looks {
                settings,
                records: Decoders::new(JsonDecoder::new(DecodeContext::default())),
                namespaces: Arc::new(NamespaceReader::new(Arc::clone(&executor), namespaces)),
                owners: Arc::new(OwnerReader::new(Arc::clone(&executor), owners)),
                owner_kinds: Vec::new(),
                executor,
            },
        }
    }

    async fn look(&self, yard: &Yard) -> (Pod, Seen) {
        let pod = yard.find("web").unwrap().to_string();
        let pod = self.pods.decode_object(pod.as_bytes()).unwrap();
        let seen = self.looks.look(&pod).await.unwrap();
        (pod, seen)
    }
}

#[tokio::test(start_paused = true)]
async fn explain_covers_every_phase_of_a_pod() {
    let yard = Yard::new();
    let explainer = Explainer::new(&yard);
    let now = Timestamp::now;
    yard.pod("web");
    let (_, seen) = explainer.look(&yard).await;
    assert_eq!(holds::decide(&seen.hold, now()).row, row::ADD_HOLD);
    let belayer = yard.run();
    yard.wait("it is held", || yard.is_held("web")).await;
    let (pod, seen) = explainer.look(&yard).await;
    assert_eq!(holds::decide(&seen.hold, now()).row, row::KEEP);
    assert_eq!(why_not(&explainer.looks.settings, &pod, &seen), None);
    assert!(seen.of_the_record(now()).is_empty());

    belayer.stop().await;
    yard.tell("web", Fate::Rejected("OutOfcpu"));
    let (_, seen) = explainer.look(&yard).await;
    let told = seen.of_the_record(now()).join("\n");
    assert!(told.contains(row::REJECTED.says), "{told}");
    assert!(told.contains("writes its record"), "{told}");

    let belayer = yard.run();
    yard.until("it runs", || yard.is_settled("web")).await;
    let (pod, seen) = explainer.look(&yard).await;
    let told = seen.of_the_record(now()).join("\n");
    assert!(
        told.contains("phase Started: 1 of 3 re-creations begun"),
        "{told}"
    );
    let why = why_not(&explainer.looks.settings, &pod, &seen).unwrap();
    assert!(why.contains("never re-created"), "{why}");
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn explain_reports_why_a_pod_is_not_eligible() {
    let yard = Yard::new();
    let explainer = Explainer::new(&yard);
    yard.pod_with("web", json!({ "annotations": {} }));
    let (pod, seen) = explainer.look(&yard).await;
    let why = why_not(&explainer.looks.settings, &pod, &seen).unwrap();
    assert!(why.contains("belayer.dev/recreate"), "{why}");
    assert_eq!(
        holds::decide(&seen.hold, Timestamp::now()).row,
        row::NOT_OURS
    );
}
