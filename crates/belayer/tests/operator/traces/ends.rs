//! How recorded workflows end: with the holds of an older Belayer, without any, and with the Belayer under test.

use belayer_workload::model::{Rules, WorkflowResult};

use super::closed::{Holder, run};
use super::found_in_all;
use super::recording::{Recording, Side};
use super::scripts::{self, Script};

/// The results that Belayer is there to save: these workflows end with it as with the older version.
const SAVED: [&str; 2] = ["ended-deleted-while-down", "sidecar-deleted-late"];

fn recorded(trace: &str, side: Side) -> WorkflowResult {
    let recording = Recording::read(trace, side);
    WorkflowResult::of(&recording.workflow().last().unwrap().object)
}

/// The workflows that do not end as recorded on the side that `expected` names.
fn differences(holder: Holder, expected: impl Fn(&Script) -> Side + Sync) -> Vec<String> {
    found_in_all(&scripts::all(), |script| {
        let side = expected(script);
        let end = run(script, holder, Rules::default());
        let expected = recorded(script.trace, side);
        let differs = end != expected;
        let text = || format!("{}\n  ended:  {end}\n  {side}: {expected}", script.trace);
        differs.then(text).into_iter().collect()
    })
}

fn assert_none(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn the_model_ends_every_workflow_as_recorded_without_belayer() {
    assert_none(&differences(Holder::None, |_| Side::Free));
}

#[test]
fn the_model_ends_every_workflow_as_recorded_with_the_holds_of_9e06281() {
    assert_none(&differences(Holder::Old, |_| Side::Held));
}

/// The principle, and rules A2, A3 and A6: Belayer changes how a workflow ends only by saving the results of pods that
/// ended by themselves.
#[test]
fn a2_a3_a6_belayer_changes_no_end_except_by_saving_results() {
    let side = |script: &Script| {
        if SAVED.contains(&script.trace) {
            Side::Held
        } else {
            Side::Free
        }
    };
    assert_none(&differences(Holder::Belayer, side));
}

#[test]
fn every_recording_has_its_script() {
    let mut scripted: Vec<_> = scripts::all().iter().map(|script| script.trace).collect();
    scripted.sort_unstable();
    let mut recorded: Vec<_> = super::PROMISES
        .iter()
        .map(|promise| promise.trace)
        .collect();
    recorded.sort_unstable();
    assert_eq!(scripted, recorded);
}
