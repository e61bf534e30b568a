//! The report of drain as steps, text and data.

use belayer_inspect::reader::Trouble;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_holds_and_writes_nothing() {
    let world = installed();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let report = drain(&world, Writes::DryRun).run(&Silent).await.unwrap();
    assert!(report.taken.dry_run);
    assert_eq!(report.taken.holds["belayer.dev/pod-status"]["Drained"], 1);
    assert_eq!((report.passes, report.gate), (1, GateState::Untouched));
    assert!(world.sandbox.recorder().writes_by(ADMIN).is_empty());
    assert!(world.is_held("a"));
}

/// Records every reported step.
#[derive(Default)]
struct Steps(parking_lot::Mutex<Vec<String>>);

impl Progress for Steps {
    fn waiting(&self, trouble: Option<&Trouble>) {
        self.0.lock().push(format!("waits: {trouble:?}"));
    }

    fn step(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}

/// L6: between its passes drain sends no request for longer than the time after which a silent server is reported.
/// That does not count as silence, even if one API is down permanently.
#[rstest]
#[case::every_api_answers(None)]
#[case::one_api_is_down(Some("secrets"))]
#[tokio::test(start_paused = true)]
async fn l6_a_responding_server_is_never_reported(#[case] down: Option<&str>) {
    let world = installed();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    if let Some(resource) = down {
        let lists = Match::verb(Verb::List).resource(resource).client(ADMIN);
        let fault = Fault::on(lists).answer(Answer::internal_error());
        world.sandbox.faults().inject(fault);
    }
    let steps = Steps::default();
    drain(&world, Writes::Sent).run(&steps).await.unwrap();
    let steps = steps.0.into_inner();
    assert!(
        steps.iter().all(|step| !step.starts_with("waits")),
        "{steps:?}"
    );
}

/// L6: drain waits for a hanging request, and reports it once.
#[tokio::test(start_paused = true)]
async fn l6_a_server_that_stops_responding_is_reported() {
    let world = installed();
    let lists = Match::verb(Verb::List).resource("secrets").client(ADMIN);
    let fault = Fault::on(lists).times(1).delay(Duration::from_secs(20));
    world.sandbox.faults().inject(fault);
    let steps = Steps::default();
    let report = drain(&world, Writes::Sent).run(&steps).await.unwrap();
    assert_eq!(report.outcome, Outcome::Clean);
    let steps = steps.0.into_inner();
    let waits = steps.iter().filter(|step| step.starts_with("waits"));
    assert_eq!(waits.count(), 1, "{steps:?}");
}

/// T4: otherwise a mistyped namespace would show only by exit code 3 at the end.
#[tokio::test(start_paused = true)]
async fn t4_a_missing_excepted_namespace_is_reported() {
    let world = installed();
    let steps = Steps::default();
    let drain = drain_except(&world, Writes::Sent, &[NAMESPACE, "nosuchns"]);
    let report = drain.run(&steps).await.unwrap();
    assert_eq!(report.exit_code, 0);
    let says = "namespace nosuchns does not exist (--except-namespace)";
    assert_eq!(report.notes, [says]);
    let steps = steps.0.into_inner();
    assert!(steps.contains(&format!("warning: {says}")), "{steps:?}");
}

/// A policy of Belayer that adds a hold.
fn policy(world: &World) {
    let expression = json!({ "expression": "[\"belayer.dev/pod-status\"]" });
    let policy = json!({
        "metadata": { "name": "belayer-pod-hold", "labels": { "app.kubernetes.io/name": "belayer" } },
        "spec": { "mutations": [{ "patchType": "JSONPatch", "jsonPatch": expression }] },
    });
    world.create(&policies(), None, policy);
}

#[rstest]
#[case::a_run(
    Writes::Sent,
    "removed",
    "Removed",
    ["policiesRemoved", "objectsReleased", "released"],
    ["policiesToRemove", "objectsToRelease", "toRelease"]
)]
#[case::a_dry_run(
    Writes::DryRun,
    "would remove",
    "Would remove",
    ["policiesToRemove", "objectsToRelease", "toRelease"],
    ["policiesRemoved", "objectsReleased", "released"]
)]
#[tokio::test(start_paused = true)]
async fn a_dry_run_and_a_run_have_different_texts_and_keys(
    #[case] writes: Writes,
    #[case] step: &str,
    #[case] verb: &str,
    #[case] there: [&str; 3],
    #[case] not_there: [&str; 3],
) {
    const POLICY: &str = "mutatingadmissionpolicies.admissionregistration.k8s.io/belayer-pod-hold";
    let world = installed();
    policy(&world);
    map(&world, "a", "belayer.dev/pod-status");
    let steps = Steps::default();
    let report = drain(&world, writes).run(&steps).await.unwrap();
    let steps = steps.0.into_inner();
    let about: Vec<&String> = steps.iter().filter(|step| step.contains(POLICY)).collect();
    assert_eq!(about, [&format!("{step} {POLICY}")]);
    let text = text::report(&report, usize::MAX);
    let says = format!("{verb} admission policies that add holds:\n  {POLICY}\n");
    assert!(text.starts_with(&says), "{text}");
    let data = serde_json::to_value(&report).unwrap();
    assert_eq!(data[there[0]], json!([POLICY]));
    assert_eq!(data[there[1]], 1);
    assert_eq!(data[there[2]]["belayer.dev/pod-status"]["Drained"], 1);
    for key in not_there {
        assert!(data.get(key).is_none(), "{key}: {data}");
    }
    let yaml = serde_saphyr::to_string(&report).unwrap();
    assert!(yaml.contains("dryRun: "), "{yaml}");
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_own_namespace_is_reported() {
    let world = World::new();
    for writes in [Writes::DryRun, Writes::Sent] {
        let report = drain(&world, writes).run(&Silent).await.unwrap();
        let says = "namespace belayer-system does not exist: if Belayer runs in another one, it keeps adding holds; set \
                    that namespace with --own-namespace";
        assert!(
            report.notes.iter().any(|note| note.starts_with(says)),
            "{:?}",
            report.notes
        );
    }
    world.create_namespace(OWN);
    let report = drain(&world, Writes::DryRun).run(&Silent).await.unwrap();
    assert_eq!(report.notes, [""; 0]);
}

#[rstest]
#[case::one(&["a"], "1 PVC that is being deleted waits for kubernetes.io/pvc-protection", "if it stays,")]
#[case::two(&["a", "b"], "2 PVCs that are being deleted wait for kubernetes.io/pvc-protection", "if they stay,")]
#[tokio::test(start_paused = true)]
async fn waiting_pvcs_are_counted_in_the_text(
    #[case] names: &[&str],
    #[case] says: &str,
    #[case] then: &str,
) {
    let world = installed();
    for name in names {
        pvc(&world, name, &[KUBERNETES]);
        world.delete(&PVCS, Some(NAMESPACE), name);
    }
    let report = drain(&world, Writes::DryRun).run(&Silent).await.unwrap();
    let text = text::report(&report, usize::MAX);
    assert!(text.contains(says) && text.contains(then), "{text}");
}

/// A drain that is not complete leaves a Belayer that adds no holds: the text names the way back.
#[rstest]
#[case::in_use(Writes::Sent, true, Outcome::LeftOver, true)]
#[case::complete(Writes::Sent, false, Outcome::Clean, false)]
#[case::a_dry_run(Writes::DryRun, true, Outcome::LeftOver, false)]
#[tokio::test(start_paused = true)]
async fn an_incomplete_drain_names_the_way_back(
    #[case] writes: Writes,
    #[case] is_used: bool,
    #[case] outcome: Outcome,
    #[case] is_named: bool,
) {
    let world = installed();
    pvc(&world, "data", &[PVC_HOLD]);
    if is_used {
        user_of(&world, "data");
    }
    let report = drain(&world, writes).run(&Silent).await.unwrap();
    assert_eq!(report.outcome, outcome, "{report:?}");
    let text = text::report(&report, usize::MAX);
    assert_eq!(
        text.contains("`belayer drain --resume`"),
        is_named,
        "{text}"
    );
}
