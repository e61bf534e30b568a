use rstest::rstest;

use super::*;

#[rstest]
#[case("web-0", "0a1b2c3d-0000", "web-0-0a1b2c3d")]
#[case("web", "short", "web-short")]
fn a_record_is_named_after_its_pod(#[case] pod: &str, #[case] uid: &str, #[case] expected: &str) {
    assert_eq!(record_name(pod, uid), expected);
    assert!(is_name_for(expected, pod));
}

#[rstest]
#[case::of_another_pod("web-0a1b2c3d", "web-a")]
#[case::of_a_longer_name("web-a-0a1b2c3d", "web")]
#[case::of_none("Not A Name!", "web")]
#[case::of_no_uid("web-", "web")]
fn a_record_of_another_pod_name_does_not_match(#[case] record: &str, #[case] pod: &str) {
    assert!(!is_name_for(record, pod));
}

#[test]
fn a_long_name_is_cut_to_fit() {
    let name = record_name(&"x".repeat(253), "0a1b2c3d-0000");
    assert_eq!(name.len(), 253);
    assert!(name.ends_with("x-0a1b2c3d"));
    let dotted = record_name(&format!("{}.{}", "x".repeat(243), "y"), "0a1b2c3d");
    assert!(dotted.ends_with("x-0a1b2c3d"), "{dotted}");
}

#[rstest]
#[case::first(0, 15)]
#[case::second(1, 30)]
#[case::third(2, 60)]
#[case::capped(9, 300)]
#[case::far_beyond(60, 300)]
fn the_pause_doubles_and_is_capped(#[case] attempts: u32, #[case] seconds: u64) {
    let pause = Policy::default().pause(attempts, 0.0);
    assert_eq!(pause, Duration::from_secs(seconds));
    let spread = Policy::default().pause(attempts, 1.0);
    assert_eq!(spread, Duration::from_secs(seconds).mul_f64(1.1));
}

#[test]
fn the_time_of_a_condition_changes_only_with_its_status() {
    let mut status = Status::default();
    let at = |second| Timestamp::from_second(second).unwrap();
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    status.set(ConditionType::CreateDenied, yes, ("Quota", "a"), at(10));
    status.set(ConditionType::CreateDenied, yes, ("Quota", "b"), at(20));
    let condition = status.condition(ConditionType::CreateDenied).unwrap();
    assert_eq!(condition.last_transition_time, at(10));
    assert_eq!(condition.message, "b");
    status.set(ConditionType::CreateDenied, no, ("", ""), at(30));
    let condition = status.condition(ConditionType::CreateDenied).unwrap();
    assert_eq!(condition.last_transition_time, at(30));
    assert_eq!(status.conditions.len(), 1);
}

/// Row *GitOps*: records of every phase and how kstatus must judge them, in `e2e/fixtures/records.json`. The scenarios
/// `records-kstatus` and `argo-cd-health` ask kstatus and the health check for Argo CD.
///
/// `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- the_records_that_other_tools_judge` writes it anew.
#[test]
fn the_records_that_other_tools_judge() {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let record = |name: &str, status: &Status, generation: i64, kstatus: &str| {
        serde_json::json!({
            "kstatus": kstatus,
            "record": {
                "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
                "metadata": { "name": name, "namespace": "default", "generation": generation },
                "status": status,
            },
        })
    };
    let at = |phase: Phase| {
        let mut status = Status {
            phase: Some(phase),
            message: Some("because".to_owned()),
            observed_generation: Some(1),
            ..Status::default()
        };
        status.summarize(now);
        status
    };
    let mut records: Vec<Value> = [
        (Phase::Rejected, "InProgress"),
        (Phase::Deleting, "InProgress"),
        (Phase::Waiting, "InProgress"),
        (Phase::Creating, "InProgress"),
        (Phase::Recreated, "InProgress"),
        (Phase::Started, "Current"),
        (Phase::Exhausted, "Failed"),
        (Phase::Ended, "Current"),
    ]
    .map(|(phase, kstatus)| record(&phase.as_str().to_lowercase(), &at(phase), 1, kstatus))
    .into();
    let mut denied = at(Phase::Creating);
    let because = ("Refused", "quota");
    denied.set(
        ConditionType::CreateDenied,
        ConditionStatus::True,
        because,
        now,
    );
    denied.summarize(now);
    records.push(record("denied", &denied, 1, "Failed"));
    denied.set(
        ConditionType::CreateDenied,
        ConditionStatus::False,
        ("", ""),
        now,
    );
    denied.summarize(now);
    records.push(record("denied-no-more", &denied, 1, "InProgress"));
    records.push(record("changed", &at(Phase::Started), 2, "InProgress"));

    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../e2e/fixtures/records.json"
    );
    let wanted = format!("{:#}\n", Value::from(records));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let fixture = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        fixture == wanted,
        "{path} is not up to date: run this test with UPDATE_SNAPSHOTS=1"
    );
}
