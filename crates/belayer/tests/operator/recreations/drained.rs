//! `belayer drain` while re-creations are in progress, one in each phase.

use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::object::Resource;
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::passes::Outcome as Drained;
use belayer_drain::progress::Silent;
use belayer_drain::report::{Reason, Report};
use belayer_drain::run::{Drain, DrainParts, Kinds};
use belayer_drain::selection::NoSelection;
use belayer_drain::text;
use belayer_holds::names::{
    FIELD_MANAGER, RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION, RECREATION_UID_ANNOTATION,
};
use belayer_inspect::reader::Reader;
use belayer_sandbox::{Answer, Fault, FaultHandle, Match};
use rstest::rstest;

use super::*;

/// Four pods, each in another phase of its re-creation.
struct Phases {
    yard: Yard,
    /// The API server denies creates of pods, for example by a quota.
    denied: FaultHandle,
    /// UIDs of the existing pods.
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
        self.report(name, Fate::Rejected("OutOfcpu"));
    }

    async fn comes_to(&self, name: &str, phase: &str) {
        self.wait(&format!("{name} is {phase}"), || {
            self.phase_of(name) == phase
        })
        .await;
    }

    /// Runs the drain with the permissions of an admin.
    fn drain(&self) -> Drain {
        self.drain_for(Purpose::Everything(Order::of_the_admin()), Kinds::Served)
    }

    fn drain_for(&self, purpose: Purpose, kinds: Kinds) -> Drain {
        let client = client::in_process(
            self.world.sandbox.service("admin"),
            belayer_holds::names::USER_AGENT,
        );
        let bounds = Bounds::default();
        Drain::new(DrainParts {
            executor: Arc::new(Executor::new(
                client.clone(),
                FIELD_MANAGER,
                bounds,
                Writes::Sent,
            )),
            reader: Reader::new(client, bounds),
            namespace: "belayer-system".to_owned(),
            purpose,
            kinds,
            selection: Box::new(NoSelection),
            timeout: Duration::from_secs(300),
            except_namespaces: Vec::new(),
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

/// `web-1` is re-created and has not started, an attempt is reserved for `web-2`, `web-3` is in its pause, and `web-4`
/// was rejected and exists.
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
    let denied = Fault::on(creates).answer(Answer::forbidden("exceeded quota"));
    let denied = yard.world.sandbox.faults().inject(denied);
    yard.comes_to("web-2", "Creating").await;
    yard.reject("web-4").await;
    yard.comes_to("web-4", "Rejected").await;
    assert_eq!(yard.phase_of("web-3"), "Waiting", "its pause is over");
    let uid_of = |name: &str| uid(&yard.find(name).unwrap());
    let (rejected, recreated) = (uid_of("web-4"), uid_of("web-1"));
    let phases = Phases {
        yard,
        denied,
        rejected,
        recreated,
    };
    (phases, belayer)
}

impl Phases {
    /// The state after a drain: no hold, and the same pods.
    fn check(&self) {
        let yard = &self.yard;
        assert_eq!(yard.held(), Vec::<String>::new());
        assert_eq!(uid(&yard.find("web-4").unwrap()), self.rejected);
        assert_eq!(uid(&yard.find("web-1").unwrap()), self.recreated);
    }

    /// Both pods that exist only in their records are reported, and nothing is lost.
    fn names_pods_that_exist_only_in_records(&self, report: &Report) {
        let text = text::report(report, usize::MAX);
        assert_eq!(report.outcome, Drained::LeftOver, "{text}");
        for name in ["web-2", "web-3"] {
            assert!(self.yard.find(name).is_none());
            let record = self.yard.record_of(name).unwrap();
            let kept = &record["spec"]["pod"]["spec"]["containers"][0]["name"];
            assert_eq!(kept, "main");
            let left = report.left.iter().find(|left| left.name.starts_with(name));
            assert_eq!(
                left.map(|left| left.reason),
                Some(Reason::InItsRecord),
                "{text}"
            );
        }
        assert!(
            text.contains("2 pods that exist only in a PodRecreation"),
            "{text}"
        );
    }
}

/// R5: a pod that exists only in its record is created during the drain, or reported.
#[rstest]
#[case::while_the_controllers_run("up")]
#[case::while_they_are_down("down")]
#[tokio::test(start_paused = true)]
async fn r5_a_pod_that_exists_only_in_its_record_is_created_or_reported(#[case] controllers: &str) {
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
    phases.check();
    phases.names_pods_that_exist_only_in_records(&report);
    if controllers == "up" {
        let text = text::report(&report, usize::MAX);
        assert!(text.contains("the API server denies it"), "{text}");
    }

    // While drained, Belayer creates them, also after a restart, and starts no other re-creation.
    phases.denied.remove();
    let belayer = match belayer {
        Some(belayer) => belayer,
        None => yard.run(),
    };
    for name in ["web-2", "web-3"] {
        yard.comes_to(name, "Recreated").await;
    }
    assert_eq!(yard.creates(), creates + 2);
    let report = yard.drain().run(&Silent).await.unwrap();
    assert_eq!(
        report.outcome,
        Drained::Clean,
        "{}",
        text::report(&report, usize::MAX)
    );
    phases.check();

    // A pod that ran and was deleted meanwhile is never created again.
    for name in ["web-2", "web-3"] {
        yard.report(name, Fate::Runs);
    }
    yard.comes_to("web-2", "Started").await;
    belayer.stop().await;
    yard.delete("web-3");
    yard.drain().resume(&Silent).await.unwrap();
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(600)).await;
    assert!(yard.find("web-3").is_none());
    // web-4 was rejected and exists: nothing of it ran, so it is re-created now.
    assert_eq!(yard.creates(), creates + 3);
    belayer.stop().await;
}

/// R5: drained in phase `Creating` with the controllers down: the pod exists, and its record does not name it. It
/// loses its hold, runs, ends and is deleted; much later Belayer starts again.
#[rstest]
#[tokio::test(start_paused = true)]
async fn r5_a_pod_that_ran_after_the_drain_is_never_created_again(
    #[values("drained", "switched off")] how: &str,
    #[values(false, true)] answer_lost: bool,
) {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    let faults = yard.world.sandbox.faults();
    // The first create is the server-side dry run; the sixth write of a record names its pod.
    if answer_lost {
        let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
        faults.inject(Fault::on(creates).nth(2).lose_answer());
    }
    let records = Match::writes().resource("podrecreations").client(BELAYER);
    faults.inject(Fault::on(records).after(5).hang());
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.wait("it is held", || yard.is_held("web")).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.wait("its pod is created", || {
        yard.find("web").is_some_and(|pod| uid(&pod) != first)
    })
    .await;
    belayer.crash();
    tokio::task::yield_now().await;
    faults.clear();
    assert_eq!(yard.phase_of("web"), "Creating");
    assert!(yard.is_held("web"));
    let of_the_admin = Order::of_the_admin();
    let drain = match how {
        "drained" => yard.drain(),
        _ => yard.drain_for(
            Purpose::SwitchedOff(of_the_admin, vec![POD_RECREATION_HOLD]),
            Kinds::These(vec![Resource::pods()]),
        ),
    };
    let report = drain.run(&Silent).await.unwrap();
    assert_eq!(
        report.outcome,
        Drained::Clean,
        "{}",
        text::report(&report, usize::MAX)
    );
    assert!(!yard.is_held("web"));
    yard.report("web", Fate::Runs);
    let ended = json!({ "status": { "phase": "Succeeded" } });
    let status = belayer_sandbox::Subresource::Status;
    yard.world
        .patch_in(&Gvr::PODS, Some(YARD), "web", ended, status);
    yard.delete("web");
    yard.wait_for(Duration::from_secs(3 * 86_400)).await;
    yard.drain().resume(&Silent).await.unwrap();
    let belayer = yard.run();
    yard.wait_for(Duration::from_secs(600)).await;
    assert!(yard.find("web").is_none(), "it was created a second time");
    assert_eq!(yard.creates(), 1);
    belayer.stop().await;
}

/// A rejected pod without its hold: a Belayer that watched it all the time has the proof that nothing of it ran, and
/// holds it again.
#[tokio::test(start_paused = true)]
async fn a_rejected_pod_is_released_and_recreated_after_the_drain() {
    let (phases, belayer) = phases().await;
    let yard = &phases.yard;
    let report = yard.drain().run(&Silent).await.unwrap();
    assert_eq!(
        report.outcome,
        Drained::LeftOver,
        "{}",
        text::report(&report, usize::MAX)
    );
    phases.check();
    phases.denied.remove();
    yard.drain().resume(&Silent).await.unwrap();
    yard.comes_to("web-4", "Recreated").await;
    assert_ne!(uid(&yard.find("web-4").unwrap()), phases.rejected);
    // The re-created one starts, and its record shows that.
    yard.report("web-1", Fate::Runs);
    yard.comes_to("web-1", "Started").await;
    yard.wait("it is released", || !yard.is_held("web-1")).await;
    belayer.stop().await;
}

/// T4: an annotation that cannot name a record of its pod keeps no hold. A name with a slash made every drain give up.
#[rstest]
#[case::of_another_pod("other-0123456789")]
#[case::with_a_slash("a/b")]
#[case::of_this_pod_with_a_slash("web-a/b")]
#[case::empty("")]
#[case::the_parent("..")]
#[case::escaped("%")]
#[tokio::test(start_paused = true)]
async fn t4_an_annotation_that_names_no_record_keeps_no_hold(#[case] record: &str) {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    yard.pod_with(
        "web",
        json!({
            "finalizers": ["belayer.dev/pod-recreation"],
            "annotations": { RECREATION_ANNOTATION: record, RECREATION_UID_ANNOTATION: "u-r" },
        }),
    );
    let report = yard.drain().run(&Silent).await.unwrap();
    let said = text::report(&report, usize::MAX);
    assert_eq!(report.outcome, Drained::Clean, "{said}");
    assert!(!yard.is_held("web"));
}

/// R5: what cannot be listed is not absent. The two pods that exist only in records are unknown here, so that the cluster
/// is not drained.
#[rstest]
#[case::fails(Answer::internal_error(), Drained::Error)]
#[case::is_forbidden(Answer::forbidden("no"), Drained::Refused)]
#[tokio::test(start_paused = true)]
async fn r5_records_that_cannot_be_listed_end_no_drain(
    #[case] answer: Answer,
    #[case] outcome: Drained,
) {
    let (phases, belayer) = phases().await;
    let yard = &phases.yard;
    belayer.crash();
    let lists = Match::verb(Verb::List)
        .resource("podrecreations")
        .client("admin");
    let unlisted = yard
        .world
        .sandbox
        .faults()
        .inject(Fault::on(lists).answer(answer));
    // So the kind is listed for the sake of these pods only.
    let kinds = || Kinds::Among(vec![Resource::pods()]);
    let everything = || Purpose::Everything(Order::of_the_admin());
    let report = yard
        .drain_for(everything(), kinds())
        .run(&Silent)
        .await
        .unwrap();
    let text = text::report(&report, usize::MAX);
    assert_eq!(report.outcome, outcome, "{text}");
    assert!(text.contains("podrecreations"), "{text}");
    unlisted.remove();
    let report = yard
        .drain_for(everything(), kinds())
        .run(&Silent)
        .await
        .unwrap();
    assert_eq!(report.outcome, Drained::LeftOver);
    phases.names_pods_that_exist_only_in_records(&report);
}

/// R5: a pod of an attempt that lost its hold: its record must name it before Belayer is gone.
#[tokio::test(start_paused = true)]
async fn r5_a_record_that_cannot_name_its_pod_is_reported() {
    let (phases, belayer) = phases().await;
    let yard = &phases.yard;
    belayer.crash();
    let record = yard.record_of("web-2").unwrap();
    let marks = json!({
        RECREATION_UID_ANNOTATION: text(&record, "/metadata/uid"),
        RECREATION_ATTEMPT_ANNOTATION: "1",
    });
    yard.pod_with("web-2", json!({ "annotations": marks }));
    let writes = Match::verb(Verb::Patch)
        .resource("podrecreations")
        .client("admin");
    let refused = Fault::on(writes).answer(Answer::internal_error());
    let refused = yard.world.sandbox.faults().inject(refused);
    let report = yard.drain().run(&Silent).await.unwrap();
    let why = |report: &Report| {
        let left = report
            .left
            .iter()
            .find(|left| left.name.starts_with("web-2"));
        left.map(|left| left.why.clone())
    };
    let found = why(&report).unwrap();
    assert!(
        found.contains("could not write the pod into its record"),
        "{found}"
    );
    refused.remove();
    let report = yard.drain().run(&Silent).await.unwrap();
    assert_eq!(why(&report), None);
}

/// R5: a later version may know more phases.
#[tokio::test(start_paused = true)]
async fn r5_a_record_in_an_unknown_phase_is_reported() {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    let records = json!({ "items": [{
        "metadata": { "namespace": YARD, "name": "r", "uid": "u", "resourceVersion": "1" },
        "spec": { "podName": "web" },
        "status": { "phase": "Frozen" },
    }]});
    let lists = Match::verb(Verb::List)
        .resource("podrecreations")
        .client("admin");
    let answer = Answer::raw(200, "application/json", records.to_string());
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(lists).answer(answer));
    let kinds = Kinds::Among(vec![Resource::pods()]);
    let drain = yard.drain_for(Purpose::Everything(Order::of_the_admin()), kinds);
    let report = drain.run(&Silent).await.unwrap();
    assert_eq!(report.outcome, Drained::LeftOver);
    assert!(
        report.left[0].why.contains("\"Frozen\""),
        "{:?}",
        report.left
    );
}

/// R5: a rejected pod that only a finalizer of another controller keeps. Once it is gone, it exists only in its record.
#[tokio::test(start_paused = true)]
async fn r5_a_rejected_pod_that_waits_for_another_finalizer_is_reported() {
    let yard = Yard::new();
    yard.world.create_namespace("belayer-system");
    let belayer = yard.run();
    yard.pod_with("web", json!({ "finalizers": ["example.com/theirs"] }));
    yard.wait("it is held", || yard.is_held("web")).await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    yard.comes_to("web", "Deleting").await;
    let report = yard.drain().run(&Silent).await.unwrap();
    let text = text::report(&report, usize::MAX);
    assert_eq!(report.outcome, Drained::LeftOver, "{text}");
    assert!(text.contains("example.com/theirs"), "{text}");
    belayer.stop().await;
}
