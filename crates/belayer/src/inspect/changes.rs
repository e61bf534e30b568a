//! Which results of a watch differ from the one before in more than times.

use belayer_inspect::explain::{Explained, Explanation};
use belayer_inspect::report::{Group, Report, Summary};

/// Whether the report differs in more than times and costs.
pub(super) fn of_report(now: &Report, before: &Report) -> bool {
    let timeless = |report: &Report| {
        let mut report = report.clone();
        report.summary = Summary::default();
        groups(&mut report.groups);
        report
    };
    timeless(now) != timeless(before)
}

/// Whether the explanation differs in more than times.
pub(super) fn of_explanation(now: &Explanation, before: &Explanation) -> bool {
    let timeless = |explanation: &Explanation| {
        let mut explanation = explanation.clone();
        groups(&mut explanation.groups);
        let pods = explanation.pods.iter_mut();
        let of_pods = pods.flat_map(|pod| &mut pod.belayer);
        explanation.belayer.iter_mut().chain(of_pods).for_each(one);
        explanation
    };
    timeless(now) != timeless(before)
}

/// Removes what changes with every read.
fn groups(groups: &mut [Group]) {
    for group in groups {
        // It names the age of a Lease renewal.
        group.proof.clear();
        group.missing.iter_mut().for_each(durations);
        for step in &mut group.next {
            durations(&mut step.say);
        }
        for object in &mut group.objects {
            object.age_seconds = 0;
            object.detail.iter_mut().for_each(durations);
        }
    }
}

fn one(explained: &mut Explained) {
    explained.requeue_after_seconds = None;
    let texts = [&mut explained.next].into_iter();
    texts
        .chain(&mut explained.missing)
        .chain(&mut explained.notes)
        .for_each(durations);
}

/// Removes durations from a text: `90m`, `9m30s` and `3592 s`.
fn durations(text: &mut String) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &str| {
        word.trim_matches(|c: char| c.is_ascii_punctuation())
            .to_owned()
    };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_digit());
    let is_duration = |at: usize, word: &str| {
        let mut units = word.split_inclusive(['s', 'm', 'h', 'd']);
        let follows = words.get(at + 1).map(|next| bare(next));
        is_number(word) && follows.as_deref() == Some("s")
            || !word.is_empty()
                && units.all(|part| is_number(&part[..part.len() - 1]) && !is_number(part))
    };
    let kept = words.iter().enumerate();
    let kept = kept.filter(|(at, word)| !is_duration(*at, &bare(word)));
    *text = kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("checks again in 3592 s", "checks again in 3590 s", true)]
    #[case("for 90m (its duration)", "for 9m30s (its duration)", true)]
    #[case("is silent for 119s.", "is silent for 2m", true)]
    #[case("web-0 uses it", "web-1 uses it", false)]
    #[case("2 pods use it", "3 pods use it", false)]
    #[case("", "checks again", false)]
    fn only_durations_are_ignored(#[case] one: &str, #[case] other: &str, #[case] expected: bool) {
        let [mut one, mut other] = [one.to_owned(), other.to_owned()];
        durations(&mut one);
        durations(&mut other);
        assert_eq!(one == other, expected, "{one:?} {other:?}");
    }
}
