//! The API server denies what a re-creation needs.

use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::{Answer, ApiError, Fault, Gvr, ListOptions, Match, Reason, Verb};
use rstest::rstest;
use serde_json::{Value, json};

use super::{YARD, Yard, uid};
use crate::world::BELAYER;

async fn is_reported(yard: &Yard) {
    let reported = || yard.world.events("RecreationDenied") == 1;
    yard.until("it is reported", reported).await;
}

#[rstest]
#[case::denied(Answer::forbidden("no permissions"))]
#[case::too_large(Answer::error(belayer_sandbox::ApiError::internal(
    "etcdserver: request is too large"
)))]
#[case::too_large_for_the_client_of_etcd(Answer::error(belayer_sandbox::ApiError::internal(
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3000446 vs. 2097152)"
)))]
#[tokio::test(start_paused = true)]
async fn a_rejection_that_cannot_be_recorded_is_reported(#[case] answer: Answer) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create)
        .resource("podrecreations")
        .client(BELAYER);
    let denied = yard
        .world
        .sandbox
        .faults()
        .inject(Fault::on(creates).answer(answer));
    let belayer = yard.run();
    yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(600)).await;
    assert!(
        denied.hits() < 30,
        "tried {} times in ten minutes",
        denied.hits()
    );
    assert!(yard.is_held("web"));
    belayer.stop().await;
}

const POLICY: &str = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'size' with binding 'all' denied request: no";
const WEBHOOK: &str = "admission webhook \"guard.example.com\" denied the request: no";

/// A policy or a webhook chooses the code of its denial.
#[rstest]
#[case::too_large(413, Reason::RequestEntityTooLarge, POLICY)]
#[case::unauthorized(401, Reason::Unauthorized, POLICY)]
#[case::a_conflict(409, Reason::Conflict, WEBHOOK)]
#[case::a_name_in_use(409, Reason::AlreadyExists, WEBHOOK)]
#[case::too_many_requests(429, Reason::TooManyRequests, WEBHOOK)]
#[tokio::test(start_paused = true)]
async fn a_pod_denied_with_another_code_is_reported_and_given_up(
    #[case] code: u16,
    #[case] reason: Reason,
    #[case] message: &str,
) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let answer = ApiError::new(code, reason, message);
    let fault = Fault::on(creates).answer(Answer::error(answer));
    let fault = yard.world.sandbox.faults().inject(fault);
    let belayer = yard.run();
    let first = yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(4_800)).await;
    assert_eq!(yard.phase(), "Ended");
    // Each try has a generated name, and then the pod's own.
    assert!(fault.hits() < 60, "tried {} times", fault.hits() / 2);
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert!(!yard.is_held("web"));
    belayer.stop().await;
}

/// The Event is about the pod, and the record is not changed.
#[rstest]
#[case::the_deletion_of_the_pod(Verb::Delete, "pods", "Deleting", "the deletion of the pod")]
#[case::the_status(Verb::Patch, "podrecreations", "", "the status of its record")]
#[tokio::test(start_paused = true)]
async fn a_step_that_is_denied_is_reported(
    #[case] verb: Verb,
    #[case] resource: &'static str,
    #[case] phase: &str,
    #[case] what: &str,
) {
    let yard = Yard::new();
    let requests = Match::verb(verb).resource(resource).client(BELAYER);
    let fault = Fault::on(requests).answer(Answer::forbidden("not today"));
    let fault = yard.world.sandbox.faults().inject(fault);
    let belayer = yard.run();
    yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(300)).await;
    assert_eq!(yard.phase(), phase);
    assert!(fault.hits() < 12, "{} tries in five minutes", fault.hits());
    let cluster = yard.world.cluster();
    let events = cluster.list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let denied = |event: &&Arc<Value>| event["reason"] == "RecreationDenied";
    let event = events.iter().find(denied).unwrap();
    assert_eq!(event["involvedObject"]["kind"], "Pod");
    let message = event["message"].as_str().unwrap();
    assert!(message.contains(what), "{message}");
    assert!(message.contains("not today"), "{message}");
    fault.remove();
    is_re_created_at_last(&yard).await;
    belayer.stop().await;
}

/// After a denial the next attempt is up to ten minutes later.
async fn is_re_created_at_last(yard: &Yard) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(1_200);
    while !yard.is_settled("web") {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it is not re-created"
        );
        yard.pass(Duration::from_secs(1)).await;
    }
}

/// The dry run was accepted, and the webhook denies the pod once it exists only in its record. The code is the one that also
/// says that the name is in use.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_denied_while_it_exists_only_in_its_record_is_not_lost() {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the pause runs", || yard.phase() == "Waiting")
        .await;
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let answer = ApiError::new(409, Reason::AlreadyExists, WEBHOOK);
    let denied = Fault::on(creates).answer(Answer::error(answer));
    let denied = yard.world.sandbox.faults().inject(denied);
    is_reported(&yard).await;
    assert_eq!(yard.phase(), "Creating");
    yard.wait_for(Duration::from_secs(20_000)).await;
    yard.no_loss();
    assert_eq!(yard.phase(), "Ended");
    assert!(denied.hits() < 30, "tried {} times", denied.hits());
    let record = yard.record();
    let message = record["status"]["message"].as_str().unwrap();
    assert!(message.contains(".spec.pod"), "{message}");
    denied.remove();
    // Its user creates it again.
    let mut pod = record["spec"]["pod"].clone();
    pod["metadata"]["name"] = json!("web");
    yard.world.create(&Gvr::PODS, Some(YARD), pod);
    yard.wait("the record is deleted", || yard.records().is_empty())
        .await;
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_denied_by_quota_stays_and_is_recreated_later() {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let quota = Answer::forbidden("exceeded quota: pods");
    let fault = yard
        .world
        .sandbox
        .faults()
        .inject(Fault::on(creates).answer(quota));
    let belayer = yard.run();
    let first = yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(300)).await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), first, "the rejected pod is still there");
    assert!(fault.hits() < 12, "{} tries in five minutes", fault.hits());
    let conditions = yard.record()["status"]["conditions"].clone();
    let denied = conditions
        .as_array()
        .unwrap()
        .iter()
        .find(|condition| condition["type"] == "CreateDenied")
        .unwrap();
    assert!(
        denied["message"]
            .as_str()
            .unwrap()
            .contains("exceeded quota")
    );
    yard.world.sandbox.faults().clear();
    is_re_created_at_last(&yard).await;
    belayer.stop().await;
}

/// The dry run has a generated name, which the API server cuts after 58 characters: it must not end in the dot there.
#[tokio::test(start_paused = true)]
async fn a_pod_with_a_dot_in_its_long_name_is_not_refused() {
    let yard = Yard::new();
    let belayer = yard.run();
    let name = format!("{}.example", "n".repeat(57));
    yard.pod_with(&name, json!({ "labels": {} }));
    yard.until("it runs", || yard.is_settled(&name)).await;
    assert_eq!(yard.world.events("RecreationDenied"), 0);
    belayer.stop().await;
}

/// As of a quota whose numbers change, or of a webhook that adds a trace ID.
#[tokio::test(start_paused = true)]
async fn r3_a_denial_whose_message_changes_is_tried_again_with_the_same_pause() {
    let yard = Yard::new();
    let faults = yard.world.sandbox.faults();
    let denial = |number: u32| {
        let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
        let answer = Answer::forbidden(format!("exceeded quota: used {number}"));
        Fault::on(creates).answer(answer)
    };
    for number in 1..100 {
        faults.inject(denial(number).probability(0.05));
    }
    let always = faults.inject(denial(0));
    let belayer = yard.run();
    yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(300)).await;
    let tries = always.hits() / 2;
    assert!(tries < 8, "{tries} tries in five minutes");
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_denied_for_an_hour_is_given_up() {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(creates).answer(Answer::forbidden("policy")));
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.pass(Duration::from_secs(3_000)).await;
    assert_eq!(yard.phase(), "Rejected");
    yard.pass(Duration::from_secs(1_800)).await;
    assert_eq!(yard.phase(), "Ended");
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert!(!yard.is_held("web"));
    belayer.stop().await;
}

/// The message of a webhook may be longer than an annotation that Belayer keeps.
#[rstest]
#[case::of_bytes("x")]
#[case::of_wide_characters("é")]
#[case::of_wider_characters("登")]
#[tokio::test(start_paused = true)]
async fn a_pod_denied_with_a_long_message_is_annotated_once(#[case] text: &str) {
    let yard = Yard::new();
    let creates = Match::verb(Verb::Create).resource("pods").client(BELAYER);
    let answer = Answer::forbidden(text.repeat(2_000 / text.len()));
    yard.world
        .sandbox
        .faults()
        .inject(Fault::on(creates).answer(answer));
    let belayer = yard.run();
    let first = yard.pod("web");
    yard.pass(Duration::from_secs(4_800)).await;
    let pod = yard.find("web").unwrap();
    assert_eq!(uid(&pod), first);
    let reason = &pod["metadata"]["annotations"]["belayer.dev/recreation-ended"];
    assert!(
        reason.as_str().unwrap().contains("denied the pod"),
        "{reason}"
    );
    assert!(!yard.is_held("web"), "it stays held");
    let requests = yard.writes_of(&Gvr::PODS).len();
    yard.pass(Duration::from_secs(3_600)).await;
    assert_eq!(yard.writes_of(&Gvr::PODS).len(), requests);
    assert!(yard.records().is_empty(), "the record has not expired");
    belayer.stop().await;
}

/// The policies of an admin for pods. They are evaluated by the sandbox.
fn load(yard: &Yard, policy: &str) {
    yard.world.sandbox.load_yaml(policy).unwrap();
}

const NAMES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "object.metadata.name in ['build-7']", message: pods here are named build-NUMBER}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: names}
spec: {policyName: names, validationActions: [Deny]}
"#;

/// A policy about names accepts the pod, and not the generated name of the dry run.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_generated_name_is_denied_is_re_created() {
    let yard = Yard::new();
    load(&yard, NAMES);
    let belayer = yard.run();
    let first = yard.pod("build-7");
    yard.until("it runs", || yard.is_settled("build-7")).await;
    assert_ne!(uid(&yard.find("build-7").unwrap()), first);
    assert_eq!(yard.world.events("RecreationDenied"), 0);
    belayer.stop().await;
}

const ANNOTATIONS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: annotations}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: marked, expression: "'belayer.dev/recreation' in object.metadata.?annotations.orValue({})"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "remove", path: "/metadata/annotations/belayer.dev~1recreation"}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: annotations}
spec: {policyName: annotations}
"#;

/// Without its annotations a re-created pod would count as an ordinary one: it would be re-created again and again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_admission_strips_of_its_annotations_is_not_re_created() {
    let yard = Yard::rejecting(9);
    load(&yard, ANNOTATIONS);
    let belayer = yard.run();
    let first = yard.pod("web");
    is_reported(&yard).await;
    yard.pass(Duration::from_secs(4_800)).await;
    assert_eq!(yard.phase(), "Ended");
    let message = super::text(&yard.record(), "/status/message");
    let expected = "admission removes belayer.dev/recreation from it";
    assert!(message.contains(expected), "{message}");
    assert_eq!(uid(&yard.find("web").unwrap()), first);
    assert_eq!(yard.creates(), 0);
    belayer.stop().await;
}
