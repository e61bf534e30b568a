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
