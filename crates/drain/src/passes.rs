//! When the work is done: two passes in a row that found nothing to do, seconds apart, the last of
//! them begun after the API server has surely learned that the policies are gone.
//!
//! If someone keeps adding holds, such as a tenant who writes our finalizer on its own pods, there would never
//! be such passes. So passes that find only new holds end the run as well.
//!
//! A pure state machine: the time and a pass come in, the next step goes out.

use std::time::Duration;

/// At least so long from the beginning of one clean pass to that of the next.
pub const APART: Duration = Duration::from_secs(3);

/// An API server goes on with a policy that was removed for up to about ten seconds: what is created
/// within may still get a hold.
pub const SETTLE: Duration = Duration::from_secs(12);

/// How often a refused release is tried before it counts as refused for good.
pub const REFUSED_TRIES: u32 = 3;

/// Refused releases are tried again after this time: whoever refuses may be a policy that is just
/// being removed, or one that somebody has to remove.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// For this long passes may find only new holds, counted from when the policies are surely gone.
pub const NEW_HOLDS_FOR: Duration = Duration::from_secs(10);

/// The pause after a pass that had something to do.
const PAUSE: Duration = Duration::from_millis(500);

/// What one pass came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// When it began, from the start of the run.
    pub begun: Duration,
    /// Objects that it found with a hold of Belayer.
    pub found: usize,
    /// Objects that were released, or were gone by then.
    pub released: usize,
    /// Objects that may go and did not, for reasons that pass.
    pub unsettled: usize,
    /// Objects whose release the server refused.
    pub refused: usize,
    /// Objects that must stay.
    pub left: usize,
    /// Kinds that may not be looked at.
    pub hidden: usize,
    /// Kinds that could not be looked at for another reason, and objects that cannot be read.
    pub unseen: usize,
}

/// What follows a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another pass, after this time.
    Again(Duration),
    /// No more.
    Stop(Outcome),
}

/// What a run came to. Its exit code is documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing of what was meant is left.
    Clean,
    /// Something could not be done or found out for a reason that is no refusal: a server that does
    /// not answer, a time-out.
    Error,
    /// Something must stay: a claim in use that only we hold.
    LeftOver,
    /// Only new holds were found: someone keeps adding them.
    NewHolds,
    /// The server refuses: rights, a policy, a webhook.
    Refused,
}

impl Outcome {
    /// The process's exit code. 2 is wrong usage, for every command.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Error => 1,
            Self::LeftOver | Self::NewHolds => 3,
            Self::Refused => 4,
        }
    }
}

/// Follows the passes of one run.
#[derive(Debug, Clone)]
pub struct Passes {
    timeout: Duration,
    /// The fewest objects that a pass found with a hold.
    fewest: usize,
    /// When a pass last found fewer than all passes before it. Only that is progress: releasing objects
    /// that are held again just as fast is none, so that every run ends.
    progressed: Duration,
    /// Before that, from the start of the run, no pass is the last.
    settled: Duration,
    /// When the last pass began that found nothing to do, if the latest one did not.
    clean: Option<Duration>,
    refused: u32,
    /// How many passes there were.
    passes: u32,
    /// The number of the pass since which only new holds were found, and when it began.
    complete: Option<(u32, Duration)>,
}

impl Passes {
    /// A run that ends after `timeout` without progress, and in which no pass before `settled` counts.
    pub fn new(timeout: Duration, settled: Duration) -> Self {
        Self {
            timeout,
            fewest: usize::MAX,
            progressed: Duration::ZERO,
            settled,
            clean: None,
            refused: 0,
            passes: 0,
            complete: None,
        }
    }

    /// Something was changed that API servers learn of late: nothing before `settled` counts.
    pub fn settle_at(&mut self, settled: Duration) {
        self.settled = self.settled.max(settled);
    }

    /// Whether there has been no progress for too long.
    pub fn is_late(&self, now: Duration) -> bool {
        now >= self.progressed + self.timeout
    }

    /// The number of the pass, from 1, since which only new holds were found: that pass handled everything
    /// that it found.
    pub fn only_new_holds_since(&self) -> Option<u32> {
        self.complete.map(|(number, _)| number)
    }

    /// What follows this pass, which ended at `now`.
    pub fn next(&mut self, pass: &Pass, now: Duration) -> Next {
        if pass.found < self.fewest {
            self.fewest = pass.found;
            self.progressed = now;
        }
        self.passes += 1;
        let complete = pass.unsettled == 0 && pass.unseen == 0 && pass.hidden == 0;
        let since = match (complete, self.complete) {
            (false, _) => None,
            (true, None) => Some((self.passes, pass.begun)),
            (true, since) => since,
        };
        self.complete = since;
        self.refused = if pass.refused > 0 {
            self.refused + 1
        } else {
            0
        };
        let tried = pass.refused == 0 || self.refused >= REFUSED_TRIES;
        let quiet = pass.released == 0 && pass.unsettled == 0 && tried;
        let earlier = if quiet {
            self.clean.replace(pass.begun)
        } else {
            self.clean = None;
            None
        };
        // The first of a row counts from its own beginning.
        if let (Some(earlier), true) = (earlier, quiet) {
            if pass.begun >= earlier + APART && pass.begun >= self.settled {
                return Next::Stop(outcome(pass));
            }
            self.clean = Some(earlier);
        }
        if let Some((number, begun)) = since
            && number < self.passes
            && pass.released > 0
            && tried
            && pass.begun >= begun.max(self.settled) + NEW_HOLDS_FOR
        {
            return Next::Stop(match outcome(pass) {
                Outcome::Clean => Outcome::NewHolds,
                other => other,
            });
        }
        if self.is_late(now) {
            return Next::Stop(match outcome(pass) {
                Outcome::Clean => Outcome::Error,
                other => other,
            });
        }
        let pause = match self.clean {
            Some(clean) => (clean + APART)
                .max(self.settled)
                .saturating_sub(now)
                .max(PAUSE),
            None if pass.refused > 0 && pass.released == 0 => REFUSED_PAUSE,
            None => PAUSE,
        };
        Next::Again(pause.min(self.progressed + self.timeout - now))
    }
}

/// What a run came to if this was its last pass.
pub fn outcome(pass: &Pass) -> Outcome {
    if pass.refused > 0 || pass.hidden > 0 {
        return Outcome::Refused;
    }
    if pass.unsettled > 0 || pass.unseen > 0 {
        return Outcome::Error;
    }
    if pass.left > 0 {
        return Outcome::LeftOver;
    }
    Outcome::Clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(begun: u64) -> Pass {
        Pass {
            begun: s(begun),
            ..Pass::default()
        }
    }

    /// Runs passes of a second each; says after how many it stopped, and how.
    fn played(passes: &[Pass], settled: u64, timeout: u64) -> (usize, Option<Outcome>) {
        let mut state = Passes::new(s(timeout), s(settled));
        for (index, pass) in passes.iter().enumerate() {
            if let Next::Stop(outcome) = state.next(pass, pass.begun + s(1)) {
                return (index + 1, Some(outcome));
            }
        }
        (passes.len(), None)
    }

    fn released(pass: Pass) -> Pass {
        Pass {
            released: 1,
            ..pass
        }
    }

    fn refused(pass: Pass) -> Pass {
        Pass { refused: 1, ..pass }
    }

    /// No fewer than before.
    fn more(begun: u64) -> Pass {
        Pass {
            found: 2,
            ..at(begun)
        }
    }

    fn left(pass: Pass) -> Pass {
        Pass { left: 1, ..pass }
    }

    fn unsettled(pass: Pass) -> Pass {
        Pass {
            unsettled: 1,
            ..pass
        }
    }

    #[rstest]
    #[case::two_clean_passes_apart(&[at(0), at(3)], 0, (2, Some(Outcome::Clean)))]
    #[case::one_is_not_enough(&[at(0)], 0, (1, None))]
    #[case::too_close_to_each_other(&[at(0), at(2), at(3)], 0, (3, Some(Outcome::Clean)))]
    #[case::not_before_policies_are_surely_gone(&[at(0), at(3), at(11), at(12)], 12, (4, Some(Outcome::Clean)))]
    #[case::in_a_row(&[at(0), released(at(3)), at(6), at(9)], 0, (4, Some(Outcome::Clean)))]
    #[case::what_did_not_work_is_done_again(&[unsettled(at(0)), unsettled(at(3)), at(6), at(9)], 0, (4, Some(Outcome::Clean)))]
    #[case::what_must_stay_ends_it_as_well(&[left(at(0)), left(at(3))], 0, (2, Some(Outcome::LeftOver)))]
    #[case::refusals_are_tried_several_times(&[refused(at(0)), refused(at(5)), refused(at(10)), refused(at(15))], 0, (4, Some(Outcome::Refused)))]
    #[case::a_refusal_that_ends_is_forgotten(&[refused(at(0)), released(at(5)), at(8), at(11)], 0, (4, Some(Outcome::Clean)))]
    #[case::t4_nothing_but_new_holds(
        &[released(at(0)), released(at(5)), released(at(9)), released(at(10))], 0, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_not_before_policies_are_surely_gone(
        &[released(at(0)), released(at(11)), released(at(21)), released(at(22))], 12, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_a_clean_pass_between_changes_nothing(
        &[released(at(0)), at(5), released(at(10))], 0, (3, Some(Outcome::NewHolds))
    )]
    #[case::t4_what_was_not_done_before_is_not_new(
        &[unsettled(at(0)), released(at(10)), released(at(19)), released(at(20))], 0, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_nor_what_could_not_be_seen(
        &[Pass { unseen: 1, ..at(0) }, released(at(10)), released(at(19)), at(22), at(25)], 0, (5, Some(Outcome::Clean))
    )]
    #[case::t4_what_must_stay_is_told_first(
        &[left(released(at(0))), left(released(at(10)))], 0, (2, Some(Outcome::LeftOver))
    )]
    #[case::t4_refusals_are_tried_as_ever(
        &[released(at(0)), refused(released(at(10))), released(at(15))], 0, (3, Some(Outcome::NewHolds))
    )]
    fn rows_of_passes(
        #[case] rows: &[Pass],
        #[case] settled: u64,
        #[case] expected: (usize, Option<Outcome>),
    ) {
        assert_eq!(played(rows, settled, 1_000), expected);
    }

    #[rstest]
    #[case::while_something_moves(&[released(more(5)), released(more(9))], Outcome::Error)]
    #[case::before_two_were_clean(&[more(9)], Outcome::Error)]
    #[case::with_what_must_stay(&[left(more(9))], Outcome::LeftOver)]
    #[case::with_refusals(&[refused(more(9))], Outcome::Refused)]
    fn time_runs_out(#[case] rows: &[Pass], #[case] expected: Outcome) {
        let first = Pass { found: 1, ..at(0) };
        let rows = [&[released(first)], rows].concat();
        // The first pass ends at second 1: what it found is progress.
        assert_eq!(played(&rows, 0, 9), (rows.len(), Some(expected)));
    }

    #[test]
    fn l6_time_counts_from_the_last_progress() {
        // There is more than one pass can handle.
        let found = |begun, found| unsettled(released(Pass { found, ..at(begun) }));
        // Each pass finds fewer: it may take as long as it likes.
        let fewer: Vec<Pass> = (0..20).map(|n| found(n * 8, 100 - n as usize)).collect();
        assert_eq!(played(&fewer, 0, 10), (20, None));
        // As many are held again as were released.
        let as_many: Vec<Pass> = (0..20).map(|n| found(n, 5)).collect();
        assert_eq!(played(&as_many, 0, 10), (11, Some(Outcome::Error)));
    }

    #[rstest]
    #[case::nothing(at(0), Outcome::Clean, 0)]
    #[case::not_everything_was_seen(Pass { unseen: 1, ..at(0) }, Outcome::Error, 1)]
    #[case::not_everything_may_be_seen(Pass { hidden: 1, ..at(0) }, Outcome::Refused, 4)]
    #[case::in_use(left(at(0)), Outcome::LeftOver, 3)]
    #[case::a_refusal_counts_more_than_what_must_stay(left(refused(at(0))), Outcome::Refused, 4)]
    #[case::an_error_counts_more_than_what_must_stay(left(unsettled(at(0))), Outcome::Error, 1)]
    #[case::a_refusal_counts_more_than_an_error(refused(unsettled(at(0))), Outcome::Refused, 4)]
    fn outcomes_and_their_exit_codes(
        #[case] pass: Pass,
        #[case] expected: Outcome,
        #[case] code: u8,
    ) {
        assert_eq!(outcome(&pass), expected);
        assert_eq!(expected.exit_code(), code);
    }

    #[test]
    fn the_next_pass_comes_when_it_can_be_the_last() {
        let mut passes = Passes::new(s(100), s(12));
        assert_eq!(passes.next(&at(0), s(1)), Next::Again(s(11)));
        let mut passes = Passes::new(s(100), s(0));
        assert_eq!(passes.next(&at(0), s(1)), Next::Again(s(2)));
        assert_eq!(passes.next(&released(at(3)), s(4)), Next::Again(PAUSE));
    }
}
