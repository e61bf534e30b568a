//! `belayer drain` while re-creations are under way, one in each phase.

use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::passes::Outcome as Drained;
use belayer_drain::progress::Silent;
use belayer_drain::report::Report;
use belayer_drain::run::{Drain, Kinds, Parts};
use belayer_drain::selection::NoSelection;
use belayer_drain::text;
use belayer_inspect::reader::Reader;
use belayer_sandbox::{Answer, Fault, FaultHandle, Match};
use rstest::rstest;

use super::*;

/// Four pods, each in another phase of its re-creation.
struct Phases {
    yard: Yard,
    /// Creates of pods are refused, by a quota perhaps.
    refused: FaultHandle,
    /// UIDs of the pods that are there.
    rejected: String,
    recreated: String,
}

impl Yard {
    fn record_of(&self, pod: &str) -> Option<Arc<Value>> {
        let mut records = self.records().into_iter();
        records.find(|record| record["spec"]["podName"] == pod)
    }

    fn phase_of(&self, pod: &str) -> String {
        self.record_of(pod)
            .map(|record| text(&record, "/status/phase"))
            .unwrap_or_default()
    }

    /// A new pod whose node rejects it once it is held.
    async fn reject(&self, name: &str) {
        self.pod(name);
        self.wait("it is held", || self.is_held(name)).await;
        self.tell(name, Fate::Rejected("OutOfcpu"));
    }

    async fn comes_to(&self, name: &str, phase: &str) {
        self.wait(&format!("{name} is {phase}"), || {
            self.phase_of(name) == phase
        })
        .await;
    }

    /// As `belayer drain`, with the admin's own rights.
    fn drain(&self) -> Drain {
        let client = client::in_process(self.world.sandbox.service("admin"));
        let bounds = Bounds::default();
        Drain::new(Parts {
            executor: Arc::new(Executor::new(client.clone(), bounds, Writes::Sent)),
            reader: Reader::new(client, bounds),
            namespace: "belayer-system".to_owned(),
            purpose: Purpose::Everything(Order::of_the_admin()),
            kinds: Kinds::Served,
            selection: Box::new(NoSelection),
            timeout: Duration::from_secs(300),
        })
    }

    fn held(&self) -> Vec<String> {
        let pods = self.list(&Gvr::PODS);
        let is_held = |pod: &&Arc<Value>| {
            let all = pod["metadata"]["finalizers"].as_array();
            all.is_some_and(|all| !all.is_empty())
        };
        let held = pods.iter().filter(is_held);
        held.map(|pod| text(pod, "/metadata/name")).collect()
    }
}

/// `web-1` is re-created and has not started, an attempt is reserved for `web-2`, the pause of
/// `web-3` runs, and `web-4` was rejected and stands there.
async fn phases() -> (Phases, Running) {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    let belayer = yard.run();
    yard.reject("web-1").await;
    yard.comes_to("web-1", "Recreated").await;
    yard.reject("web-2").await;
    yard.comes_to("web-2", "Waiting").await;
    yard.wait_for(Duration::from_secs(8)).await;
    yard.reject("web-3").await;
    yard.comes_to("web-3", "Waiting").await;
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let refused = Fault::on(creates).answer(Answer::forbidden("exceeded quota"));
    let refused = yard.world.sandbox.faults().inject(refused);
    yard.comes_to("web-2", "Creating").await;
    yard.reject("web-4").await;
    yard.comes_to("web-4", "Rejected").await;
    assert_eq!(yard.phase_of("web-3"), "Waiting", "its pause is over");
    let uid_of = |name: &str| uid(&yard.find(name).unwrap());
    let (rejected, recreated) = (uid_of("web-4"), uid_of("web-1"));
    let phases = Phases {
        yard,
        refused,
        rejected,
        recreated,
    };
    (phases, belayer)
}

impl Phases {
    /// What a drain leaves: no hold, and every pod either there or in its record.
    fn check(&self, report: &Report) {
        let yard = &self.yard;
        assert_eq!(report.outcome, Drained::Clean, "{}", text::report(report));
        assert_eq!(yard.held(), Vec::<String>::new());
        assert_eq!(uid(&yard.find("web-4").unwrap()), self.rejected);
        assert_eq!(uid(&yard.find("web-1").unwrap()), self.recreated);
        for name in ["web-2", "web-3"] {
            assert!(yard.find(name).is_none());
            let record = yard.record_of(name).unwrap();
            assert_eq!(
                record["spec"]["pod"]["spec"]["containers"][0]["name"],
                "main"
            );
        }
    }

    fn says_what_is_in_records_alone(report: &Report) {
        let text = text::report(report);
        assert!(
            text.contains("Note: 2 pods are to be re-created and are in their PodRecreation alone, such as yard/web-2-"),
            "{text}"
        );
        assert!(text.contains("belayer drain --resume"), "{text}");
    }

    /// A kubelet that takes what is re-created now.
    async fn both_run_in_the_end(&self) {
        let yard = &self.yard;
        for name in ["web-2", "web-3"] {
            yard.wait("it is there again, and held", || yard.is_held(name))
                .await;
            yard.tell(name, Fate::Runs);
            yard.comes_to(name, "Started").await;
            yard.wait("it is let go", || !yard.is_held(name)).await;
        }
    }
}

#[rstest]
#[case::while_the_controllers_run("up")]
#[case::while_they_are_down("down")]
#[tokio::test(start_paused = true)]
async fn what_is_in_its_record_alone_is_told_and_goes_on_when_draining_is_over(
    #[case] controllers: &str,
) {
    let (phases, belayer) = phases().await;
    let yard = &phases.yard;
    let belayer = if controllers == "up" {
        Some(belayer)
    } else {
        belayer.crash();
        None
    };
    let creates = yard.creates();
    let report = yard.drain().run(&Silent).await.unwrap();
    phases.check(&report);
    Phases::says_what_is_in_records_alone(&report);

    // Nothing is begun, not by a new process either, though the quota allows it now.
    phases.refused.remove();
    yard.wait_for(Duration::from_secs(600)).await;
    if let Some(belayer) = belayer {
        belayer.stop().await;
    }
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(600)).await;
    assert_eq!(yard.creates(), creates, "re-created while drained");
    phases.check(&report);

    yard.drain()
        .resume(&belayer_drain::progress::Silent)
        .await
        .unwrap();
    phases.both_run_in_the_end().await;
    belayer.stop().await;
}

/// What stands there without its hold is not re-created any more: nobody could prove that it never ran.
#[tokio::test(start_paused = true)]
async fn what_stands_there_is_let_go_told_and_given_up() {
    let (phases, belayer) = phases().await;
    let yard = &phases.yard;
    let report = yard.drain().run(&Silent).await.unwrap();
    phases.check(&report);
    phases.refused.remove();
    yard.drain()
        .resume(&belayer_drain::progress::Silent)
        .await
        .unwrap();
    yard.comes_to("web-4", "Ended").await;
    assert_eq!(uid(&yard.find("web-4").unwrap()), phases.rejected);
    let why = text(&yard.record_of("web-4").unwrap(), "/status/message");
    assert!(why.contains("not re-created"), "{why}");
    assert!(yard.world.events("NotRecreated") > 0, "nobody is told");
    // The one that was re-created starts, and its record says so.
    yard.tell("web-1", Fate::Runs);
    yard.comes_to("web-1", "Started").await;
    belayer.stop().await;
}
