//! Replays of recorded workflows of a real Argo Workflows: what is released when.
//!
//! A replay repeats the recorded versions of pods and workflows at their recorded pace; nothing in it reacts to
//! Belayer. It shows when the holds end, not how the workflow would have ended: `ends` shows that, with a model of
//! Argo that reacts. See `e2e/fixtures/argo/README.md` for the recordings.

mod closed;
mod ends;
mod judge;
mod promises;
mod recorded;
mod recording;
mod replay;
mod scripts;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promises::{PROMISES, Promise};
use recorded::RecordedRun;
use recording::{Recording, Side};
use replay::{Holds, Machine, replay};

/// Errors in one recording: by step, `workflow` for the workflow itself.
fn broken(promise: &Promise, side: Side) -> BTreeMap<String, String> {
    let recording = Recording::read(promise.trace, side);
    let holds = match side {
        Side::Held => Holds::AtCreation,
        Side::Free => Holds::ByBelayer,
    };
    let replayed = replay(&recording, holds, Machine::AsRecorded);
    let mut broken = BTreeMap::new();
    let mut note = |step: &str, why: String| {
        broken.entry(step.to_owned()).or_insert(why);
    };
    for (step, pods) in recording.steps() {
        let promised = promise.of(side, &step);
        if promised.len() != pods.len() {
            let why = format!("{} pods, promised are {promised:?}", pods.len());
            note(&step, why);
        }
        for (number, (uid, until)) in pods.iter().zip(promised).enumerate() {
            let run = RecordedRun::of(&recording, uid);
            if let Err(why) = judge::pod(*until, &run, &replayed.objects[uid]) {
                note(&step, format!("pod {number}: {why}"));
            }
        }
    }
    if let Err(why) = judge::workflow(&recording, &replayed) {
        note("workflow", why);
    }
    if !replayed.left.is_empty() {
        note("workflow", format!("left behind: {:#?}", replayed.left));
    }
    broken
}

/// What `judge` finds in all items, sorted. Items are independent: each processor takes the next one.
fn found_in_all<T: Sync, F: Ord + Send>(
    items: &[T],
    judge: impl Fn(&T) -> Vec<F> + Sync,
) -> Vec<F> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let its = judge(item);
            found.lock().unwrap().extend(its);
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    found
}

/// The recorded ends that 9e06281 made worse are the same as without it (rules A2, A3 and A6), and no existing
/// result is lost.
#[test]
fn a2_a3_a6_recorded_workflows_are_released_as_promised() {
    let sides = [Side::Held, Side::Free];
    let recordings: Vec<(&Promise, Side)> = PROMISES
        .iter()
        .flat_map(|promise| sides.map(|side| (promise, side)))
        .collect();
    let faults = found_in_all(&recordings, |(promise, side)| {
        let broken = broken(promise, *side).into_iter();
        let text = |(step, why)| format!("{side}/{} {step}: {why}", promise.trace);
        broken.map(text).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A pod that was given up proves nothing about its node: it stays held while the Node is in the API.
#[test]
fn a2_pods_of_an_existing_node_stay_held() {
    const LONGER: Duration = Duration::from_secs(20);
    // Nodes are not watched: Belayer reads them periodically.
    const READ_AGAIN: Duration = Duration::from_secs(6);
    let recording = Recording::read("node-lost", Side::Held);
    let lost = |uid: &String| RecordedRun::of(&recording, uid).lost().unwrap();
    let pods: Vec<String> = recording.steps().into_values().flatten().collect();
    let removed = pods.iter().map(lost).max().unwrap() + LONGER;
    let replayed = replay(&recording, Holds::AtCreation, Machine::KeptUntil(removed));
    for uid in &pods {
        let [(at, evidence)] = replayed.objects[uid].released[..] else {
            panic!("{:?}", replayed.objects[uid]);
        };
        assert!(at >= removed, "released at {at:?} by {evidence}");
        assert_eq!(evidence, "NodeLost");
        assert!(at <= removed + READ_AGAIN, "released only at {at:?}");
    }
}

#[test]
fn every_recording_has_its_promise() {
    let mut promised: Vec<&str> = PROMISES.iter().map(|promise| promise.trace).collect();
    promised.sort_unstable();
    for side in [Side::Held, Side::Free] {
        let files = std::fs::read_dir(recording::folder(side)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut recorded: Vec<String> = names
            .filter_map(|name| name.strip_suffix(".jsonl.gz").map(str::to_owned))
            .collect();
        recorded.sort_unstable();
        assert_eq!(recorded, promised);
        for promise in PROMISES {
            let steps = Recording::read(promise.trace, side).steps();
            for name in promise.names(side) {
                assert!(
                    steps.contains_key(name),
                    "{side}/{}: no step {name}",
                    promise.trace
                );
            }
        }
    }
}

/// With podGC OnPodCompletion Argo never labels a pod: only the workflow's status shows, long before the workflow ends,
/// that its result was read. It is released within a second of the later of its deletion and that status.
#[test]
fn a19_only_the_status_releases_a_pod_that_argo_does_not_label() {
    for side in [Side::Held, Side::Free] {
        let promise = PROMISES.iter().find(|one| one.trace == "two-steps-gc");
        assert_eq!(broken(promise.unwrap(), side), BTreeMap::new(), "{side}");
        let recording = Recording::read("two-steps-gc", side);
        let pods = recording.steps().into_values().flatten();
        let runs: Vec<RecordedRun> = pods.map(|uid| RecordedRun::of(&recording, &uid)).collect();
        assert!(runs.iter().all(|run| run.labelled.is_none()), "{side}");
        let early = |run: &RecordedRun| {
            let (taken, finished) = (run.taken.unwrap(), run.finished.unwrap());
            finished > taken.max(run.deleted.unwrap()) + Duration::from_secs(5)
        };
        assert!(
            runs.iter().any(early),
            "{side}: no pod ended long before its workflow"
        );
    }
}
