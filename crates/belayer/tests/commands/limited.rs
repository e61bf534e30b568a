//! `stuck` and `explain` for users who may not read everything: what is unknown is reported as unknown, with a step.

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::json;

use crate::world::{TOOL, World, group};

/// This user may no longer do this.
fn deny(world: &World, verb: Verb, resource: &str) {
    let requests = Match::verb(verb).resource(resource).client(TOOL);
    let no = Fault::on(requests).answer(Answer::forbidden("no"));
    world.sandbox.faults().inject(no);
}

/// A role for the kinds of a namespace does not include the namespace itself.
#[rstest]
#[case::it_may_be_listed(&[Verb::Get], 3)]
#[case::it_may_not_be_listed(&[Verb::Get, Verb::List], 4)]
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_may_not_be_read_is_listed_or_reported(
    #[case] denied: &[Verb],
    #[case] code: i32,
) {
    let world = World::new().await;
    for (name, finalizers) in [("other", json!([])), ("st", json!(["example.com/a"]))] {
        let namespace = json!({ "metadata": { "name": name, "finalizers": finalizers } });
        world.create(&Gvr::NAMESPACES, None, namespace);
        world.delete(&Gvr::NAMESPACES, None, name);
    }
    for verb in denied {
        deny(&world, *verb, "namespaces");
    }
    let answer = world.run(&["stuck", "-n", "st", "-ojson"]).await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    let report = answer.json();
    if code == 3 {
        assert_eq!(report["summary"]["stuck"], 1, "{report:#}");
        let _own = group(&report, "example.com/a");
        return;
    }
    let unseen = &report["unseen"][0];
    assert_eq!(unseen["resource"], "namespaces st", "{report:#}");
    assert_eq!(unseen["reason"], "not-allowed", "{report:#}");
}
