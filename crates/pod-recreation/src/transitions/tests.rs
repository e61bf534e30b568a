mod picture;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use belayer_core::object::Uid;
use belayer_holds::holding::Holding;
use belayer_holds::node_wipe::{Report, WipeState};
use belayer_holds::selection::Selection;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::api::{ConditionStatus, ConditionType, OnWipeTimeout, Wipe};
use crate::decide::tests::case;
use crate::decide::{Effect, ObservedWipe, RecordSnapshot, StatusWrite, decide};
use crate::proof::MayHaveRun;
use crate::reason::Class;
use crate::record::Record;
use crate::snapshot::{ObservedPod, Origin, PodState, PodView};

/// More than an hour after the early times.
const NOW: i64 = 10_000;
const PHASES: [Phase; 8] = [
    Rejected, Deleting, Waiting, Creating, Recreated, Started, Exhausted, Ended,
];

fn sometimes<T: Clone + std::fmt::Debug + 'static>(some: &[T]) -> BoxedStrategy<Option<T>> {
    let some = some.iter().cloned().map(Some);
    select([None].into_iter().chain(some).collect::<Vec<_>>()).boxed()
}

fn early_or_now() -> impl Strategy<Value = i64> {
    select(vec![0, NOW])
}

prop_compose! {
    fn records()(
        phase in sometimes(&PHASES),
        attempts in 0..4_u32,
        rejected in select(vec!["u-1", "u-2"]),
        known in sometimes(&["u-1", "u-2"]),
        hold_kept in any::<bool>(),
        wiping in sometimes(&[OnWipeTimeout::Fail, OnWipeTimeout::Proceed]),
        created in early_or_now(),
        rejected_at in early_or_now(),
        denied in sometimes(&[0, NOW]),
        ended_at in early_or_now(),
        deleted_at in early_or_now(),
        deleting in prop::bool::weighted(0.02),
        node in sometimes(&["node-1"]),
    ) -> Record {
        let mut record = case::attempts(attempts, case::record(phase));
        record = case::deleted_at(deleted_at, case::ended_at(ended_at, record));
        record.created = Some(case::at(created));
        let status = &mut record.status;
        status.node_name = node.map(str::to_owned);
        status.rejected_uid = Some(rejected.into());
        status.pod_uid = known.map(str::to_owned);
        if !hold_kept {
            status.conditions.clear();
        }
        let (yes, because) = (ConditionStatus::True, ("OutOfcpu", ""));
        status.set(ConditionType::PodRejected, yes, because, case::at(rejected_at));
        if let Some(policy) = wiping {
            record.policy.wipe = Wipe::Required;
            record.policy.on_wipe_timeout = policy;
        }
        if let Some(since) = denied {
            record = case::denied_since(since, record);
        }
        record.meta.deletion_timestamp = deleting.then(|| case::at(NOW));
        record
    }
}

fn states() -> impl Strategy<Value = PodState> {
    let rejected = |class, never_ran| case::with(class, never_ran, case::pod("u")).state;
    select(vec![
        PodState::Pending,
        PodState::Started,
        PodState::Ended,
        rejected(Class::Race, case::never_ran()),
        rejected(Class::Race, case::never_ran()),
        rejected(Class::Race, case::never_ran()),
        rejected(Class::Race, Err(MayHaveRun::HasAddress)),
        rejected(Class::Permanent, case::never_ran()),
    ])
}

prop_compose! {
    fn pods()(
        uid in select(vec!["u-1", "u-1", "u-2", "u-9"]),
        state in states(),
        origin in sometimes(&[("r-1", 1), ("r-1", 3), ("r-9", 1)]),
        deleting in select(vec![false, false, true]),
        held in select(vec![true, true, true, false]),
        selection in select(vec![Selection::Yes, Selection::Yes, Selection::Yes, Selection::No, Selection::Ignored]),
        recreation_ended in select(vec![false, false, true]),
    ) -> PodView {
        let mut pod = PodView {
            state, deleting, held, selection, recreation_ended, ..case::pod(uid)
        };
        pod.origin = origin.map(|(record, attempt)| Origin {
            record: "web-u-1".into(),
            record_uid: Uid::new(record),
            attempt,
            annotated: true,
        });
        pod
    }
}

fn wipes() -> impl Strategy<Value = ObservedWipe> {
    let report = |state| {
        ObservedWipe::Requested(Some(Report {
            state,
            reason: "NotComplete".into(),
            message: "/ws/u is a mount in use".into(),
            paths: Vec::new(),
        }))
    };
    select(vec![
        ObservedWipe::Unknown,
        ObservedWipe::NotServed,
        ObservedWipe::NotRequested,
        ObservedWipe::Requested(None),
        ObservedWipe::Requested(None),
        ObservedWipe::Requested(None),
        report(WipeState::Wiped),
        report(WipeState::NotWiped),
    ])
}

prop_compose! {
    fn snapshots()(
        record in proptest::option::weighted(0.9, records()),
        pod in proptest::option::of(pods()),
        is_known in prop::bool::weighted(0.97),
        namespace_terminating in prop::bool::weighted(0.03),
        replaced in prop::bool::weighted(0.1),
        cancelled in any::<bool>(),
        created in sometimes(&[1, 3]),
        watched in sometimes(&[Duration::ZERO, Duration::from_secs(10_000)]),
        holding in select(vec![Holding::Allowed, Holding::Draining]),
        wipe in wipes(),
    ) -> RecordSnapshot {
        RecordSnapshot {
            namespace_terminating,
            pod: if is_known { case::snapshot(None, pod).pod } else { ObservedPod::Unknown },
            record: record.map(Box::new),
            replaced,
            cancelled,
            created,
            watched,
            holding,
            wipe,
            record_ttl: Duration::from_secs(3_600),
        }
    }
}

fn state(snapshot: &RecordSnapshot) -> State {
    let record = snapshot.record.as_deref();
    record.map_or(NoRecord, |record| State::of(&record.status))
}

/// The state after a step.
fn target(from: State, effect: &Effect) -> State {
    match effect {
        Effect::CreateRecord { .. } => New,
        Effect::DeleteRecord => NoRecord,
        Effect::Status(step)
        | Effect::Intend { step, .. }
        | Effect::Reserve { step, .. }
        | Effect::ReadNode { step, .. } => State::of(&step.next),
        Effect::DeletePod { .. }
        | Effect::CreatePod { .. }
        | Effect::RequestWipe { .. }
        | Effect::AnnotatePod { .. } => from,
    }
}

/// R3: every end is recorded as an Event and sets every condition about the chain. A write after the end adds the
/// report of the node agent only.
fn check_end(from: State, step: &StatusWrite) -> Result<(), TestCaseError> {
    let ends = step.next.phase.is_some_and(Phase::is_final);
    if !ends || from == State::of(&step.next) {
        return Ok(());
    }
    prop_assert!(step.notice.is_some(), "no Event: {step:?}");
    for condition in [
        ConditionType::PodRejected,
        ConditionType::Recreated,
        ConditionType::Started,
        ConditionType::Exhausted,
        ConditionType::CreateDenied,
    ] {
        let set = step.next.condition(condition);
        prop_assert!(set.is_some(), "{condition:?} is not set: {step:?}");
    }
    Ok(())
}

#[test]
fn declared_transitions_are_those_of_decide() {
    let seen = RefCell::new(vec![false; DECIDED.len()]);
    let config = Config {
        cases: 40_000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let result = TestRunner::new_with_rng(config, rng).run(&snapshots(), |snapshot| {
        let decision = decide(&snapshot, case::at(NOW));
        if let Some(effect) = &decision.effect {
            let from = state(&snapshot);
            let made = (from, decision.row, target(from, effect));
            let declared = DECIDED.iter().position(|one| *one == made);
            prop_assert!(declared.is_some(), "{made:?} is not declared");
            seen.borrow_mut()[declared.unwrap_or_default()] = true;
            if let Effect::Status(step) = effect {
                check_end(from, step)?;
            }
        }
        Ok(())
    });
    result.unwrap();
    let seen = seen.into_inner();
    let unseen: Vec<_> = DECIDED.iter().zip(seen).filter(|(_, seen)| !seen).collect();
    assert!(unseen.is_empty(), "never decided: {unseen:#?}");
}

#[test]
fn final_phases_are_never_left_and_every_create_was_reserved() {
    for (from, rule, to) in DECIDED.iter().chain(FOUND) {
        if let In(phase) = from
            && phase.is_final()
        {
            assert!(to == from || *to == NoRecord, "{rule} leaves a final phase");
        }
        if *to == In(Creating) {
            let reserved = [In(Waiting), In(Creating)].contains(from);
            assert!(reserved, "{rule} creates without a reservation");
        }
    }
}

/// `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- the_drawing_of_the_transitions` updates the README.
#[test]
fn the_drawing_of_the_transitions_matches_the_declaration() {
    const BEGIN: &str = "<!-- transitions: made from src/transitions.rs -->\n";
    const END: &str = "<!-- end of transitions -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{}{END}{after}", drawing());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "the drawing in {} is outdated",
            path.display()
        );
    }
}

fn drawing() -> String {
    let name = |state: State| match state {
        NoRecord => "[*]".to_owned(),
        New => "New".to_owned(),
        In(phase) => phase.as_str().to_owned(),
    };
    let decided = DECIDED.iter().map(|one| (one, one.1.name.to_owned()));
    let found = FOUND.iter().map(|one| (one, format!("({})", one.1.name)));
    let mut arrows: Vec<((State, State), Vec<String>)> = Vec::new();
    for ((from, _, to), rule) in decided.chain(found) {
        let ends = (*from, *to);
        match arrows.iter_mut().find(|(arrow, _)| *arrow == ends) {
            Some((_, rules)) => rules.push(rule),
            None => arrows.push((ends, vec![rule])),
        }
    }
    let mut drawing = "```mermaid\nstateDiagram-v2\n".to_owned();
    for ((from, to), rules) in arrows {
        let (from, to, rules) = (name(from), name(to), rules.join(", "));
        writeln!(drawing, "  {from} --> {to}: {rules}").unwrap();
    }
    drawing + "```\n"
}
