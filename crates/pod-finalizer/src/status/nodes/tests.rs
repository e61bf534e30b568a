use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use belayer_core::damage::{Edit, damaged};

fn workflow(status: Value) -> Vec<u8> {
    let workflow = json!({
        "metadata": {"uid": "u-1", "resourceVersion": "7", "name": "w"},
        "spec": {"entrypoint": "main"}, "status": status,
    });
    serde_json::to_vec(&workflow).unwrap()
}

fn table() -> Value {
    json!({
        "w-1": {"id": "w-1", "name": "w.a", "type": "Pod", "phase": "Succeeded"},
        "w-2": {"id": "w-2", "name": "w.b", "type": "Pod", "phase": "Running"},
        "w-3": {"id": "w-3", "name": "w.c", "type": "Pod", "phase": "Error"},
        "w-4": {"id": "w-4", "name": "w.d", "type": "Pod"},
    })
}

fn pod() -> Uid {
    Uid::new("p-1")
}

/// A workflow whose one node is `node`.
fn of_node(node: Value) -> Value {
    json!({ "nodes": { "w-1": node } })
}

fn pack(bytes: &[u8]) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    STANDARD.encode(encoder.finish().unwrap())
}

/// Those of all tests, by id and by name.
fn asked() -> Vec<NodeRef> {
    let ids = (0..6).map(|n| NodeRef::Id(format!("w-{n}").into()));
    let names = ["w.a", "w.b", "w.c", "w.d", "w.e"].map(|name| NodeRef::Name(name.into()));
    ids.chain(names).collect()
}

fn now<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

fn read_at_once(body: &[u8], uid: &str, asked: Vec<NodeRef>) -> Result<Nodes, Unread> {
    let unpacking = Semaphore::new(1);
    now(read(body, &Uid::new(uid), asked, &unpacking))
}

fn fulfilled(status: Value) -> Nodes {
    read_at_once(&workflow(status), "u-1", asked()).unwrap()
}

fn unreadable(status: Value) -> String {
    match read_at_once(&workflow(status), "u-1", asked()).unwrap_err() {
        Unread::Otherwise(why) => why,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::plain(json!({"nodes": table()}))]
#[case::gzip(json!({"compressedNodes": pack(table().to_string().as_bytes())}))]
#[case::a9_zstd(json!({"compressedNodes": include_str!("packed/table.zstd.txt").trim()}))]
#[case::a9_brotli(json!({"compressedNodes": include_str!("packed/table.brotli.txt").trim()}))]
fn a9_fulfilled_nodes_are_found_by_id_and_by_name(#[case] status: Value) {
    let nodes = fulfilled(status);
    assert_eq!(nodes.version(), ResourceVersion::new(7));
    for (id, name, expected) in [
        ("w-1", "w.a", true),
        ("w-2", "w.b", false),
        ("w-3", "w.c", true),
        ("w-4", "w.d", false),
        ("w-5", "w.e", false),
    ] {
        assert_eq!(
            nodes.is_fulfilled(&NodeRef::Id(id.into()), &pod(), None),
            expected,
            "{id}"
        );
        assert_eq!(
            nodes.is_fulfilled(&NodeRef::Name(name.into()), &pod(), None),
            expected,
            "{name}"
        );
    }
}

/// What Argo Workflows writes beside the phase: whether the outputs have arrived (3.6), whose
/// successor is awaited (4.0), and whose result it was (4.2).
#[rstest]
#[case::outputs_have_arrived(of_node(json!({"phase": "Succeeded", "taskResultSynced": true})), true)]
#[case::outputs_have_not_arrived(of_node(json!({"phase": "Succeeded", "taskResultSynced": false})), false)]
#[case::no_value_at_all(of_node(json!({"phase": "Succeeded", "taskResultSynced": null})), true)]
#[case::the_table_shows_not_yet(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-1": false}}), false)]
#[case::the_table_shows_it(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-1": true}}), true)]
#[case::the_table_is_about_others(json!({"nodes": {"w-1": {"phase": "Failed"}}, "taskResultsCompletionStatus": {"w-2": false}}), true)]
#[case::the_node_takes_precedence(json!({"nodes": {"w-1": {"phase": "Failed", "taskResultSynced": true}}, "taskResultsCompletionStatus": {"w-1": false}}), true)]
#[case::of_this_pod(of_node(json!({"phase": "Succeeded", "capturedPodUID": "p-1"})), true)]
#[case::of_another_pod(of_node(json!({"phase": "Succeeded", "capturedPodUID": "p-0"})), false)]
#[case::of_an_unnamed_pod(of_node(json!({"phase": "Succeeded", "capturedPodUID": ""})), true)]
#[case::an_earlier_pod_was_gone(of_node(json!({"phase": "Succeeded", "message": "pod deleted", "finishedAt": "2026-11-21T12:00:00Z"})), true)]
#[case::to_be_replaced(of_node(json!({"phase": "Pending", "restartingPodUID": "p-1"})), true)]
#[case::to_be_replaced_before_it_reported(of_node(json!({"phase": "Pending", "restartingPodUID": "p-1", "taskResultSynced": false})), true)]
#[case::its_predecessor_is_replaced(of_node(json!({"phase": "Pending", "restartingPodUID": "p-0"})), false)]
#[case::its_successor_runs(of_node(json!({"phase": "Running", "restartingPodUID": "p-1"})), false)]
fn a_phase_without_outputs_is_not_a_taken_result(#[case] status: Value, #[case] expected: bool) {
    let compressed = {
        let mut status = status.clone();
        let table = status["nodes"].take();
        status["compressedNodes"] = json!(pack(table.to_string().as_bytes()));
        status
    };
    for status in [status, compressed] {
        let nodes = fulfilled(status);
        let node = NodeRef::Id("w-1".into());
        assert_eq!(nodes.is_fulfilled(&node, &pod(), None), expected);
    }
}

#[rstest]
#[case::a_number(json!(3))]
#[case::a_text(json!("garbage"))]
#[case::a_phase_that_is_none(json!({"phase": 7}))]
#[case::no_word_about_outputs(json!({"phase": "Succeeded", "taskResultSynced": "no"}))]
fn an_unreadable_node_does_not_affect_the_others(#[case] bad: Value) {
    let nodes = fulfilled(json!({"nodes": {"w-0": bad, "w-1": {"phase": "Succeeded"}}}));
    assert!(nodes.is_fulfilled(&NodeRef::Id("w-1".into()), &pod(), None));
    let bad = NodeRef::Id("w-0".into());
    assert!(!nodes.is_fulfilled(&bad, &pod(), None));
    assert!(nodes.objection(&bad).unwrap().contains("cannot be read"));
}

#[rstest]
#[case::in_part(json!({"name": "w.a", "phase": "Failed", "taskResultSynced": false}), Some("not its outputs yet"))]
#[case::of_another_pod(json!({"name": "w.a", "phase": "Failed", "capturedPodUID": "p-0"}), Some("another pod, uid p-0"))]
#[case::all_of_it(json!({"name": "w.a", "phase": "Failed"}), None)]
#[case::nothing_yet(json!({"name": "w.a", "phase": "Running"}), None)]
fn an_ended_node_reports_what_it_lacks(#[case] node: Value, #[case] why: Option<&str>) {
    let told = fulfilled(of_node(node)).objection(&NodeRef::Name("w.a".into()));
    assert_eq!(told.is_some(), why.is_some(), "{told:?}");
    assert!(told.is_none_or(|told| told.contains(why.unwrap())));
}

#[rstest]
#[case::no_status(Value::Null)]
#[case::no_nodes(json!({"phase": "Running"}))]
#[case::null_nodes(json!({"nodes": null, "compressedNodes": ""}))]
fn no_nodes_are_no_evidence(#[case] status: Value) {
    assert!(!fulfilled(status).is_fulfilled(&NodeRef::Id("w-1".into()), &pod(), None));
}

#[rstest]
#[case::no_base64(json!({"compressedNodes": "%%%"}), "not valid base64")]
#[case::base64_broken_in_the_middle(json!({"compressedNodes": pack(b"{}").replace('A', "%")}), "not valid base64")]
#[case::no_gzip(json!({"compressedNodes": STANDARD.encode([0x1f, 0x8b, 0, 0, 0])}), "not valid gzip")]
#[case::a9_no_zstd(json!({"compressedNodes": STANDARD.encode([0x28, 0xb5, 0x2f, 0xfd, 0])}), "not valid zstd")]
#[case::a9_no_brotli(json!({"compressedNodes": "aGVsbG8="}), "not valid brotli")]
#[case::a9_zstd_with_a_window_of_64_mib(
    json!({"compressedNodes": include_str!("packed/window.zstd.txt").trim()}), "not valid zstd"
)]
#[case::no_table(json!({"compressedNodes": pack(b"[1]")}), "cannot be read")]
#[case::no_map(json!({"nodes": [3]}), "cannot be read")]
#[case::no_table_of_outputs(json!({"taskResultsCompletionStatus": [3]}), "cannot be read")]
fn an_unreadable_status_gives_no_nodes_and_a_reason(#[case] status: Value, #[case] why: &str) {
    let told = unreadable(status);
    assert!(told.contains(why), "{told}");
}

#[test]
fn an_unreadable_output_status_is_no_evidence_for_its_node() {
    let node = json!({"phase": "Succeeded"});
    let nodes = fulfilled(json!({
        "nodes": {"w-1": node, "w-2": node}, "taskResultsCompletionStatus": {"w-1": "no"},
    }));
    assert!(!nodes.is_fulfilled(&NodeRef::Id("w-1".into()), &pod(), None));
    assert!(nodes.is_fulfilled(&NodeRef::Id("w-2".into()), &pod(), None));
}

#[test]
fn t3_nodes_that_are_not_requested_are_not_kept() {
    let only = vec![NodeRef::Id("w-2".into())];
    let body = workflow(json!({"nodes": table()}));
    let nodes = read_at_once(&body, "u-1", only).unwrap();
    let (asked, other) = (NodeRef::Id("w-2".into()), NodeRef::Id("w-1".into()));
    assert!(nodes.covers(&asked) && !nodes.is_fulfilled(&asked, &pod(), None));
    assert!(!nodes.covers(&other) && !nodes.is_fulfilled(&other, &pod(), None));
    assert_eq!(nodes.asked.len(), 1);
}

#[test]
fn t3_a_node_with_an_invalid_uid_is_not_kept() {
    let long = "x".repeat(1000);
    let nodes = fulfilled(of_node(json!({"phase": "Failed", "capturedPodUID": long})));
    let node = NodeRef::Id("w-1".into());
    assert!(nodes.objection(&node).unwrap().contains("cannot be read"));
}

/// As Argo writes them, some 900 bytes each.
fn large_table(nodes: usize) -> Vec<u8> {
    let mut table = Vec::new();
    for n in 0..nodes {
        let comma = if n == 0 { '{' } else { ',' };
        let inputs = "x".repeat(700);
        write!(
            table,
            r#"{comma}"w-{n}":{{"id":"w-{n}","name":"w[{n}].step","type":"Pod","phase":"Succeeded","taskResultSynced":true,"inputs":{{"parameters":[{{"name":"p","value":"{inputs}"}}]}},"children":["w-{}"]}}"#,
            n + 1
        )
        .unwrap();
    }
    table.push(b'}');
    table
}

#[test]
fn t3_a_workflow_of_20_000_nodes_is_read() {
    let status = json!({"compressedNodes": pack(&large_table(20_000))});
    let asked: Vec<_> = (0..20_000)
        .map(|n| match n % 2 {
            0 => NodeRef::Id(format!("w-{n}").into()),
            _ => NodeRef::Name(format!("w[{n}].step").into()),
        })
        .collect();
    let nodes = read_at_once(&workflow(status), "u-1", asked.clone()).unwrap();
    assert!(
        asked
            .iter()
            .all(|node| nodes.is_fulfilled(node, &pod(), None))
    );
}

#[rstest]
#[case::gzip(pack(&vec![b' '; 3 << 20]))]
#[case::a9_zstd(include_str!("packed/bomb.zstd.txt").trim().to_owned())]
#[case::a9_brotli(include_str!("packed/bomb.brotli.txt").trim().to_owned())]
fn t3_a_small_text_that_unpacks_to_a_lot_is_cut_off(#[case] bomb: String) {
    assert!(bomb.len() < 8192);
    let unpacked = |limit| {
        let table = Table::new(asked());
        now(unpack(bomb.as_bytes(), limit, table)).map(drop)
    };
    let told = unpacked(2 << 20).unwrap_err();
    assert_eq!(
        told,
        Unread::TooLarge("its compressed nodes unpack to more than 2 MiB".into())
    );
    assert!(matches!(unpacked(4 << 20), Err(Unread::Otherwise(_))));
}

#[test]
fn a9_an_offloaded_status_is_not_read() {
    let body = workflow(json!({"offloadNodeStatusVersion": "fnv:12", "nodes": table()}));
    let unread = read_at_once(&body, "u-1", asked()).unwrap_err();
    assert_eq!(unread, Unread::Offloaded);
}

#[test]
fn another_object_of_that_name_is_no_evidence() {
    let body = workflow(json!({"nodes": table()}));
    read_at_once(&body, "u-2", asked()).unwrap_err();
}

/// A pod of `w-1` that was created at 12:00.
#[rstest]
#[case::before_it("2026-11-21T11:59:59Z", false)]
#[case::after_it("2026-11-21T12:00:01Z", true)]
fn a_node_whose_pod_was_gone_is_not_about_a_later_pod(
    #[case] finished: &str,
    #[case] expected: bool,
) {
    let node = json!({"phase": "Error", "message": "pod deleted", "finishedAt": finished});
    let nodes = fulfilled(of_node(node));
    let id = NodeRef::Id("w-1".into());
    let created = "2026-11-21T12:00:00Z".parse().unwrap();
    assert_eq!(nodes.is_fulfilled(&id, &pod(), Some(created)), expected);
    assert!(
        !nodes.is_fulfilled(&id, &pod(), None),
        "it is not being deleted"
    );
    assert!(nodes.objection(&id).is_some());
}

/// A11: a pod of `w-1`, created at 12:00, belongs to an earlier run of its workflow.
#[rstest]
#[case::retried_and_its_node_is_not_made_yet(json!({"startedAt": "2026-11-21T12:05:00Z", "nodes": {}}), true)]
#[case::retried_and_its_node_began_again(
    json!({"phase": "Running", "startedAt": "2026-11-21T12:05:00Z", "nodes": {"w-1": {"startedAt": "2026-11-21T12:05:01Z"}}}),
    true
)]
#[case::first_status_long_after_its_pods(
    json!({"startedAt": "2026-11-21T12:05:00Z", "conditions": [], "nodes": {"w-1": {"startedAt": "2026-11-21T12:05:00Z"}}}),
    false
)]
#[case::had_finished(
    json!({"startedAt": "2026-11-21T12:05:00Z", "conditions": [{"type": "Completed", "status": "True"}], "nodes": {}}),
    false
)]
#[case::another_condition(
    json!({"startedAt": "2026-11-21T12:05:00Z", "conditions": [{"type": "PodRunning", "status": "False"}], "nodes": {}}),
    false
)]
#[case::unreadable_conditions(json!({"startedAt": "2026-11-21T12:05:00Z", "conditions": {"a": 1}, "nodes": {}}), false)]
#[case::absence_alone_proves_nothing(json!({"startedAt": "2026-11-21T11:59:00Z", "nodes": {}}), false)]
#[case::clocks_may_differ(json!({"startedAt": "2026-11-21T12:01:00Z", "nodes": {}}), false)]
#[case::its_node_is_kept_by_the_retry(
    json!({"startedAt": "2026-11-21T12:05:00Z", "nodes": {"w-1": {"startedAt": "2026-11-21T11:59:59Z"}}}),
    false
)]
#[case::retried_by_a_clock_that_is_ahead(
    json!({"startedAt": "2026-11-21T12:05:00Z", "nodes": {"w-1": {"startedAt": "2026-11-21T12:00:01Z"}}}),
    false
)]
#[case::its_node_does_not_show_when_it_began(json!({"startedAt": "2026-11-21T12:05:00Z", "nodes": {"w-1": {"startedAt": null}}}), false)]
#[case::its_node_is_unreadable(json!({"startedAt": "2026-11-21T12:05:00Z", "nodes": {"w-1": 3}}), false)]
#[case::a_finished_workflow(json!({"phase": "Failed", "startedAt": "2026-11-21T12:05:00Z", "nodes": {}}), false)]
#[case::an_unknown_phase(json!({"phase": 7, "startedAt": "2026-11-21T12:05:00Z", "nodes": {}}), false)]
#[case::an_invalid_time(json!({"startedAt": "soon", "nodes": {}}), false)]
#[case::no_time(json!({"nodes": {}}), false)]
fn a11_a_pod_of_an_earlier_run(#[case] mut status: Value, #[case] expected: bool) {
    if status["conditions"].is_null() {
        status["conditions"] = json!([
            { "type": "PodRunning", "status": "False" }, { "type": "Completed", "status": "False" },
        ]);
    }
    let nodes = read_at_once(&workflow(status), "u-1", asked()).unwrap();
    let created = "2026-11-21T12:00:00Z".parse().unwrap();
    let id = NodeRef::Id("w-1".into());
    assert_eq!(nodes.is_of_earlier_run(&id, created), expected);
    let not_asked = NodeRef::Id("w-9".into());
    assert!(!nodes.is_of_earlier_run(&not_asked, created));
    assert!(!nodes.is_of_earlier_run(&id, Timestamp::MAX));
}

/// A status in each format that Argo writes.
fn packed_tables() -> [Vec<u8>; 3] {
    let decoded = |text: &str| STANDARD.decode(text.trim()).unwrap();
    [
        decoded(&pack(table().to_string().as_bytes())),
        decoded(include_str!("packed/table.zstd.txt")),
        decoded(include_str!("packed/table.brotli.txt")),
    ]
}

proptest! {
    /// Whatever a tenant writes into a status that looks nearly like one of Argo's.
    #[test]
    fn fuzz_a_damaged_status_is_read_or_refused(
        edits in prop::collection::vec(any::<Edit>(), 1..8),
        of_text: bool,
    ) {
        for packed in packed_tables() {
            let text = if of_text {
                let text = STANDARD.encode(&packed).into_bytes();
                String::from_utf8_lossy(&damaged(&text, &edits)).into_owned()
            } else {
                STANDARD.encode(damaged(&packed, &edits))
            };
            let _ = read_at_once(&workflow(json!({ "compressedNodes": text })), "u-1", asked());
        }
        let plain = workflow(json!({ "nodes": table(), "phase": "Running" }));
        let _ = read_at_once(&damaged(&plain, &edits), "u-1", asked());
    }
}
