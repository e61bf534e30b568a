//! `stuck` and `explain` on a CustomResourceDefinition, and on an owner whose dependents may not be listed.

use belayer_sandbox::{Actor, Answer, DeleteOptions, Fault, Gvr, Match, Propagation, Verb};
use rstest::rstest;
use serde_json::json;

use crate::nodes::dead_webhook;
use crate::world::{TOOL, World, group};

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn conversion_fails() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
        "message": "conversion webhook for stuck.example.com/v1, Kind=Widget failed: Post \"https://gone.svc\": no endpoints",
    });
    Answer::raw(500, "application/json", status.to_string())
}

const DEFINITION: &str = "widgets.stuck.example.com";

/// Deletes the definition of Widgets, of which one is kept.
fn deleted_definition(world: &World) {
    let widget = json!({
        "apiVersion": "stuck.example.com/v1", "kind": "Widget",
        "metadata": { "name": "a", "finalizers": ["example.com/keep"] },
    });
    world.create(&world.widgets(), Some("default"), widget);
    world.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, DEFINITION);
}

/// The API server lists them as this command does, and fails as well.
#[rstest]
#[case::the_conversion_fails(conversion_fails(), "webhook-down", r#""strategy":"None""#)]
#[case::not_allowed(Answer::forbidden("no"), "unknown", "again")]
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_instances_cannot_be_listed(
    #[case] answer: Answer,
    #[case] verdict: &str,
    #[case] step: &str,
) {
    let world = World::new().await;
    deleted_definition(&world);
    let lists = Match::verb(Verb::List).resource("widgets").client(TOOL);
    let _fault = world
        .sandbox
        .faults()
        .inject(Fault::on(lists).answer(answer));
    let object = format!("crd/{DEFINITION}");
    for arguments in [&["stuck", "-ojson"][..], &["explain", &object, "-ojson"]] {
        let report = world.run(arguments).await.json();
        let group = group(&report, CLEANUP);
        assert_eq!(group["cause"], "instances", "{group:#}");
        assert_eq!(group["verdict"], verdict, "{group:#}");
        let texts: Vec<&str> = group["next"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|step| [&step["say"], &step["command"]])
            .filter_map(|text| text.as_str())
            .collect();
        assert!(texts.join(" ").contains(step), "{group:#}");
        assert!(!group.to_string().contains("API server runs"), "{group:#}");
    }
}

/// The API server removes this finalizer by an update of the status, and cloud controllers do so in Services.
#[rstest]
#[case::the_definition("customresourcedefinitions", false)]
#[case::its_status("customresourcedefinitions/status", true)]
#[case::a_service("services", false)]
#[case::its_status_too("services/status", true)]
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_updates_of_the_status(
    #[case] resource: &str,
    #[case] expected: bool,
) {
    let world = World::new().await;
    deleted_definition(&world);
    let services = Gvr::new("", "v1", "services");
    let finalizer = "service.kubernetes.io/load-balancer-cleanup";
    let service = json!({ "metadata": { "name": "s", "finalizers": [finalizer] },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    world.create(&services, Some("default"), service);
    world.delete(&services, Some("default"), "s");
    let rule = json!({ "apiGroups": ["*"], "operations": ["UPDATE"], "resources": [resource] });
    dead_webhook(&world, &rule);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let groups = report["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["cause"] == "webhook");
    assert_eq!(found.is_some(), expected, "{report:#}");
    if let Some(found) = found {
        assert_eq!(found["objects"].as_array().unwrap().len(), 1, "{found:#}");
        assert!(
            found["proof"]
                .to_string()
                .contains(resource.split_once('/').unwrap().0)
        );
    }
}

/// A manifest may set it on any object.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_definition_waits_for_its_custom_resources() {
    let world = World::new().await;
    let widgets = world.widgets();
    let widget = json!({
        "apiVersion": "stuck.example.com/v1", "kind": "Widget",
        "metadata": { "name": "a", "finalizers": [CLEANUP] },
    });
    world.create(&widgets, Some("default"), widget);
    world.delete(&widgets, Some("default"), "a");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert_eq!(group(&report, CLEANUP)["cause"], "finalizer", "{report:#}");
}

/// The garbage collector sees dependents that this user may not list.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_wait_for_dependents_that_cannot_be_listed() {
    let world = World::new().await;
    let map = json!({ "metadata": { "name": "owner" } });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    let options = DeleteOptions {
        propagation_policy: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    let cluster = world.sandbox.cluster();
    let actor = Actor::new("test");
    cluster
        .delete(&actor, &Gvr::CONFIGMAPS, Some("default"), "owner", &options)
        .unwrap();
    let lists = Match::verb(Verb::List).resource("secrets").client(TOOL);
    let no = Fault::on(lists).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    for arguments in [&["stuck", "-ojson"][..], &["explain", "cm/owner", "-ojson"]] {
        let report = world.run(arguments).await.json();
        let group = group(&report, "foregroundDeletion");
        assert_eq!(group["cause"], "dependents", "{group:#}");
        assert_eq!(group["verdict"], "unknown", "{group:#}");
        assert!(
            group["missing"].to_string().contains("secrets"),
            "{group:#}"
        );
    }
    let explained = world.run(&["explain", "cm/owner"]).await;
    let says = "Unknown: whether objects of these kinds remain, which could not be listed: secrets";
    assert!(explained.has(says), "{}", explained.out);
}
