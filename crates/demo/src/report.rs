//! Figures of a chapter, in words.

use std::time::Duration;

use super::controller::{Release, by_evidence};
use super::telling::Telling;
use super::world::{Cast, World};

/// What Belayer did since a mark, and the pod that waited longest for it.
pub(super) fn report(world: &World, telling: &Telling, cast: &Cast, mark: usize) {
    telling.result(&released(&world.controller.ledger().since(mark)));
    let pods = world.chronicle.pods(|pod| cast.has(pod));
    let waited = pods
        .iter()
        .filter_map(|pod| Some((pod.life.waited?, &pod.life)));
    let waited: Vec<_> = waited.collect();
    if let Some((longest, life)) = waited.iter().max_by_key(|(waited, _)| *waited) {
        telling.aside(&format!(
            "{} were deleted while held; {} waited longest: {}",
            waited.len(),
            life.key(),
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

/// A duration as people say it.
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
    fn durations_are_said_in_fitting_units(#[case] millis: u64, #[case] said: &str) {
        assert_eq!(span(Duration::from_millis(millis)), said);
    }

    #[test]
    fn releases_are_told_by_evidence_and_spread() {
        let release = |evidence, millis| Release {
            evidence,
            took: Duration::from_millis(millis),
        };
        let all = [
            release("Consumed", 5),
            release("OwnerGone", 1),
            release("Consumed", 40),
        ];
        let told = "3 released (Consumed 2, OwnerGone 1), p50 5 ms, max 40 ms after the evidence";
        assert_eq!(released(&all), told);
        assert_eq!(
            released(&[]),
            "0 released (none), no time after the evidence"
        );
    }
}
