//! The figures of a chapter as text.

use std::time::Duration;

use super::controller::{Release, by_evidence};
use super::output::Output;
use super::world::{WorkflowSet, World};

/// Prints Belayer's releases since a mark, and the pod that waited longest.
pub(super) fn report(world: &World, output: &Output, set: &WorkflowSet, mark: usize) {
    output.result(&released(&world.controller.release_log().since(mark)));
    let pods = world.state.pods(|pod| set.has(pod));
    let waited = pods
        .iter()
        .filter_map(|pod| Some((pod.object.waited?, &pod.object)));
    let waited: Vec<_> = waited.collect();
    if let Some((longest, object)) = waited.iter().max_by_key(|(waited, _)| *waited) {
        output.detail(&format!(
            "{} were deleted while they had a hold; {} waited longest: {}",
            waited.len(),
            object.key(),
            span(*longest)
        ));
    }
}

/// `23 released (Consumed 20, OwnerGone 3), p50 2 ms, max 14 ms after the evidence`.
fn released(releases: &[Release]) -> String {
    let by: Vec<String> = by_evidence(releases)
        .into_iter()
        .map(|(evidence, count)| format!("{evidence} {count}"))
        .collect();
    let by = if by.is_empty() {
        "none".to_owned()
    } else {
        by.join(", ")
    };
    let took = spread(releases.iter().map(|release| release.took));
    format!(
        "{} released ({by}), {took} after the evidence",
        releases.len()
    )
}

/// `p50 2 ms, max 14 ms`.
pub(super) fn spread(durations: impl IntoIterator<Item = Duration>) -> String {
    let mut all: Vec<Duration> = durations.into_iter().collect();
    all.sort_unstable();
    match (all.get(all.len() / 2), all.last()) {
        (Some(half), Some(most)) => format!("p50 {}, max {}", span(*half), span(*most)),
        _ => "no time".to_owned(),
    }
}

/// A duration in a readable unit.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "under 1 ms".to_owned(),
        millis @ 1..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "under 1 ms")]
    #[case(999, "999 ms")]
    #[case(1_250, "1.2 s")]
    fn durations_have_readable_units(#[case] millis: u64, #[case] text: &str) {
        assert_eq!(span(Duration::from_millis(millis)), text);
    }

    #[test]
    fn releases_are_summed_up_by_evidence_and_time() {
        let release = |evidence, millis| Release {
            evidence,
            took: Duration::from_millis(millis),
        };
        let all = [
            release("Consumed", 5),
            release("OwnerGone", 1),
            release("Consumed", 40),
        ];
        let expected =
            "3 released (Consumed 2, OwnerGone 1), p50 5 ms, max 40 ms after the evidence";
        assert_eq!(released(&all), expected);
        assert_eq!(
            released(&[]),
            "0 released (none), no time after the evidence"
        );
    }
}
