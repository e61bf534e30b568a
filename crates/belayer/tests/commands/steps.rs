//! The steps of a group with many objects, and names and places in them.

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::json;

use crate::world::{TOOL, World, group};

/// It is unknown whose finalizer it is: the first object shows it as well as each other.
#[tokio::test(flavor = "multi_thread")]
async fn one_step_about_an_unknown_finalizer_is_enough() {
    let world = World::new().await;
    for index in 0..20 {
        world.stuck_config_map(&format!("a{index}"), "example.com/a", json!({}));
    }
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "example.com/a");
    assert_eq!(group["objects"].as_array().unwrap().len(), 20, "{group:#}");
    let next = group["next"].as_array().unwrap();
    assert_eq!(next.len(), 2, "{group:#}");
    assert!(
        next[1]["say"]
            .as_str()
            .unwrap()
            .starts_with("Do not remove it by force")
    );
}

/// The objects of one kind that remain in a namespace may be in several groups.
#[tokio::test(flavor = "multi_thread")]
async fn all_groups_of_what_remains_are_named() {
    let world = World::new().await;
    let namespace = json!({ "metadata": { "name": "st" } });
    world.create(&Gvr::NAMESPACES, None, namespace);
    for index in 0..6 {
        let name = format!("a{index}");
        let finalizers = [format!("example.com/{name}")];
        let map = json!({ "metadata": { "name": name, "finalizers": finalizers } });
        world.create(&Gvr::CONFIGMAPS, Some("st"), map);
        world.delete(&Gvr::CONFIGMAPS, Some("st"), &name);
    }
    world.delete(&Gvr::NAMESPACES, None, "st");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "namespace-content");
    let detail = group["objects"][0]["detail"].to_string();
    assert!(detail.contains("6 configmaps remain: "), "{group:#}");
    assert!(
        detail.contains(", see [1], [2], [3] and 3 more groups"),
        "{group:#}"
    );
}

/// With -n given, another namespace is no advice.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_may_not_be_listed_is_named() {
    let world = World::new().await;
    let no = Fault::on(Match::verb(Verb::List).client(TOOL)).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let answer = world.run(&["stuck", "-n", "default"]).await;
    assert_eq!(answer.code, 4, "{}", answer.err);
    assert!(
        answer.has("You may not list anything in namespace default."),
        "{}",
        answer.out
    );
    assert!(!answer.has("use -n NAME"), "{}", answer.out);
}

/// RBAC objects may have any name without `/` and `%`.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_several_words_is_explained() {
    let world = World::new().await;
    let roles = Gvr::new("rbac.authorization.k8s.io", "v1", "roles");
    let role = json!({ "metadata": { "name": "two words", "finalizers": ["example.com/a"] } });
    world.create(&roles, Some("default"), role);
    world.delete(&roles, Some("default"), "two words");
    for object in [&["role/two words"] as &[_], &["role", "two words"]] {
        let explained = world.run(&[&["explain"], object].concat()).await;
        assert_eq!(explained.code, 3, "{}", explained.err);
    }
}

/// Only the leader writes about an object, and a name may begin with a hyphen or be an expression.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_every_pod_is_read() {
    let world = World::new().await;
    let operator = json!({
        "metadata": { "name": "strimzi-entity-operator" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "a": "b" } }, "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "m", "image": "m" }] },
        } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    world.create_by(None, &deployments, Some("default"), operator);
    let ready = json!({ "replicas": 2, "readyReplicas": 2 });
    let name = "strimzi-entity-operator";
    world.status(&deployments, Some("default"), name, ready);
    let map = json!({ "metadata": { "name": "a.b", "finalizers": ["example.com/a"] } });
    world.create_by(Some(name), &Gvr::CONFIGMAPS, Some("default"), map);
    world.delete(&Gvr::CONFIGMAPS, Some("default"), "a.b");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "example.com/a");
    assert_eq!(group["verdict"], "controller-alive", "{group:#}");
    let command = group["next"][0]["command"].as_str().unwrap();
    for says in [" --all-pods=true ", " --prefix ", " | grep -F -- a.b"] {
        assert!(command.contains(says), "{command}");
    }
}

/// The command for a finalizer names its index, which changes with each removal.
#[rstest]
#[case::one(&["strimzi.io/topic-operator"], false)]
#[case::two(&["strimzi.io/topic-operator", "example.com/a"], true)]
#[tokio::test(flavor = "multi_thread")]
async fn several_finalizers_are_removed_one_at_a_time(
    #[case] finalizers: &[&str],
    #[case] expected: bool,
) {
    let world = World::new().await;
    let map = json!({ "metadata": { "name": "a", "finalizers": finalizers } });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    world.delete(&Gvr::CONFIGMAPS, Some("default"), "a");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "strimzi.io/topic-operator");
    assert_eq!(group["verdict"], "controller-gone", "{group:#}");
    let says = "run this command again after each";
    assert_eq!(
        group["next"].to_string().contains(says),
        expected,
        "{group:#}"
    );
}

#[rstest]
#[case(&["drain", "--dry-run", "--except-namespace", ""])]
#[case(&["check", "--as", ""])]
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_name_is_wrong_usage(#[case] arguments: &[&str]) {
    let world = World::new().await;
    let answer = world.run(arguments).await;
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
}

/// A tenant can set thousands of finalizers on one object: the output is not their square, and names Belayer's and the
/// known ones.
#[tokio::test(flavor = "multi_thread")]
async fn t4_an_object_with_thousands_of_finalizers_is_one_of_many() {
    let world = World::new().await;
    let mut finalizers: Vec<String> = (0..3_000).map(|n| format!("a.b/g{n}")).collect();
    finalizers.push("strimzi.io/topic-operator".to_owned());
    let map = json!({ "metadata": { "name": "many", "finalizers": finalizers } });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    world.delete(&Gvr::CONFIGMAPS, Some("default"), "many");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 20);
    let _known = group(&report, "strimzi.io/topic-operator");
    assert!(
        report.to_string().contains("it has 2981 more finalizers"),
        "{report:#}"
    );
    let text = world.run(&["explain", "cm/many"]).await.out;
    assert!(text.contains("2981 more finalizers"), "{text}");
    assert!(text.len() < 50_000, "{} bytes", text.len());
}
