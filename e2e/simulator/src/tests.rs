use std::collections::BTreeSet;

use rstest::rstest;

use belayer_sandbox::Write;

use crate::checks;
use crate::coverage::Coverage;
use crate::event::Event;
use crate::plan::{
    LATE_REQUESTS, MORE_NAMES, MORE_REJECTIONS, MORE_RULES, MORE_SETTINGS, POLICIES, PROFILES,
    Plan, SHORT, SMALL,
};
use crate::run::run;

/// Belayer re-creates pods in this run.
const REJECTIONS: u64 = SHORT + 4;

#[test]
fn the_same_seed_gives_the_same_run() {
    // Node agents remove files in the last two.
    let all = (0..5)
        .chain(POLICIES..POLICIES + 3)
        .chain(MORE_RULES + 9..MORE_RULES + 13);
    for seed in all {
        let (one, other) = (run(&Plan::of(seed)).lines(), run(&Plan::of(seed)).lines());
        let pairs = one.iter().zip(&other);
        let difference = pairs.into_iter().find(|(a, b)| a != b);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

#[test]
fn the_digest_depends_on_the_writes() {
    let digest = |seed| run(&Plan::of(seed)).digest();
    assert_eq!(digest(POLICIES), digest(POLICIES));
    assert_ne!(digest(POLICIES), digest(POLICIES + 1));
}

#[test]
fn a_change_of_a_record_that_no_rule_makes_is_a_violation() {
    let (mut writes, mut violations) = (run(&Plan::of(REJECTIONS)).record, Vec::new());
    checks::transitions(&writes, &mut violations);
    assert_eq!(violations, [""; 0]);

    let is_rejected = |write: &Write| {
        let status = write.object.as_ref().map(|object| &object["status"]);
        status.is_some_and(|status| status["phase"] == "Rejected")
    };
    writes.retain(|write| !is_rejected(write));
    checks::transitions(&writes, &mut violations);
    let wanted = "TRANSITION: record new to Deleting";
    assert!(violations[0].starts_with(wanted), "{violations:?}");
}

#[test]
fn the_coverage_names_what_was_decided_and_what_never_was() {
    let mut coverage = Coverage::nothing();
    coverage.merge(run(&Plan::of(REJECTIONS)).coverage);
    let times = |name: &str| coverage.iter().find(|(one, _)| *one == name).unwrap().1;
    assert!(times("decision pod-recreation 12 keep") > 0);
    assert!(times("record Rejected to Deleting") > 0);
    assert_eq!(times("decision pvc-protection 07 advise"), 0);
    assert_eq!(times("fault Garbage"), 0);
}

#[test]
fn seeds_differ() {
    let plans: BTreeSet<String> = (0..50)
        .map(|seed| format!("{:?}", Plan::of(seed).events))
        .collect();
    assert!(plans.len() > 45, "{}", plans.len());
}

#[test]
fn a_part_of_a_plan_keeps_the_numbers_of_its_events() {
    let plan = (0..)
        .map(Plan::of)
        .find(|plan| plan.events.len() > 5)
        .unwrap();
    let some = BTreeSet::from([1, 4]);
    assert_eq!(plan.only(&some).numbers(), some);
}

#[test]
fn each_kind_of_event_has_its_own_name() {
    let names: BTreeSet<String> = Event::ALL.into_iter().map(Event::name).collect();
    assert_eq!(names.len(), Event::ALL.len());
}

/// Seeds that have failed.
#[rstest]
#[case::annotations_of_others_are_not_recorded(1042)]
#[case::labels_of_others_come_after_the_record(18752)]
#[case::a_tenant_overwrites_the_annotations_of_a_new_pod(3366)]
#[case::a_tenant_deletes_the_record(3425)]
#[case::a_tenant_deletes_the_record_of_a_new_pod(49944)]
#[case::the_pod_says_why_it_is_not_recreated(2406)]
#[case::all_attempts_are_used_up(16410)]
#[case::a_tenant_labels_a_running_pod_as_completed(3670)]
#[case::a_node_is_destroyed_with_its_results(4892)]
#[case::argo_overwrites_a_result_after_it_was_taken(12187)]
#[case::a_rejected_pod_whose_versions_were_missed(7997)]
#[case::a_deleted_workflow_that_another_program_keeps(40686)]
#[case::the_user_deletes_the_pod_before_its_record_is_created(200125)]
#[case::a_namespace_is_deleted_while_the_first_status_is_refused(100_986)]
#[case::a_user_replaces_a_rejected_pod_while_its_recreation_waits(301_744)]
#[case::a_user_copies_a_pod_whose_node_argo_has_given_up(302_075)]
#[case::the_record_is_gone_before_the_first_pod_may_be_released(54_047_187)]
#[case::a_tenant_labels_a_pod_with_an_adopted_finalizer(54_044_124)]
#[case::a_pod_with_an_adopted_finalizer_is_of_an_earlier_run(54_052_013)]
#[case::live_reads_fail_for_long_before_an_outcome_is_recorded(54_010_800)]
#[case::a_pod_is_rejected_long_after_it_was_accepted(55_054_911)]
#[case::the_same_on_a_node_that_comes_back(55_067_850)]
#[case::the_cache_shows_a_deleted_namespace_as_ignored(54_024_380)]
#[case::a_record_ends_while_its_namespace_is_ignored(55_134_452)]
#[case::an_event_of_a_watch_is_damaged(60_000_261)]
#[case::a_namespace_was_ignored_a_few_seconds_before_the_last_write(61_008_537)]
#[case::the_gate_may_not_be_written_for_half_a_minute(61_065_268)]
#[case::argo_writes_its_first_status_a_minute_late(63_170_192)]
#[case::a_pod_of_an_earlier_workflow_has_the_name(64_000_230)]
#[case::a_tenant_labels_a_running_pod_as_read(64_589_167)]
#[case::a_kubelet_is_cut_off_before_it_reports_a_start(64_643_388)]
#[case::events_of_a_pod_whose_release_is_denied(64_368_512)]
#[case::the_cache_shows_a_held_pod_as_released(65_040_730)]
#[case::a_workflow_is_retried_while_its_pvc_is_released(70_050_596)]
#[case::a_write_of_the_gate_is_handled_late(80_000_767)]
#[case::an_earlier_pod_takes_the_name_of_one_that_is_re_created(80_004_051)]
fn no_seed_fails_again(#[case] seed: u64) {
    let outcome = run(&Plan::of(seed));
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
}

#[rstest]
fn no_seed_violates_an_invariant(
    #[values(
        0,
        MORE_REJECTIONS,
        MORE_NAMES,
        SMALL,
        MORE_SETTINGS,
        PROFILES,
        POLICIES,
        SHORT,
        MORE_RULES,
        LATE_REQUESTS
    )]
    first: u64,
) {
    // `cargo xtask test` runs 3,000 more in an optimized build.
    for seed in first..first + 5 {
        let outcome = run(&Plan::of(seed));
        assert!(
            outcome.violations.is_empty(),
            "cargo xtask simulate --seed {seed}: {:#?}",
            outcome.violations
        );
    }
}
