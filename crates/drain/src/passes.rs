//! Decides when a run ends: after two consecutive passes, seconds apart, that found nothing to do, the last of
//! them begun after every API server has noticed the deletion of the policies.
//!
//! If a client keeps adding holds, for example a tenant who writes a Belayer finalizer on its own pods, there
//! are no such passes. So passes that find only new holds end the run as well.
//!
//! A pure state machine: its input is the time and a pass, its output the next step.
//!
//! ```
//! use belayer_drain::passes::Outcome;
//!
//! assert_eq!(Outcome::Clean.exit_code(), 0);
//! ```

use std::time::Duration;

/// Least time between the starts of the two last passes.
pub const APART: Duration = Duration::from_secs(3);

/// An API server may apply a deleted policy for up to about ten seconds: an object that is created in that
/// time may still get a hold.
pub const SETTLE: Duration = Duration::from_secs(12);

/// Consecutive passes with denied releases after which the run ends.
pub const REFUSED_TRIES: u32 = 3;

/// Pause before a denied release is retried: the policy that denies it may be about to be deleted.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// How long passes must find only new holds to end the run, from when the policies have no effect any more.
pub const NEW_HOLDS_FOR: Duration = Duration::from_secs(10);

/// Fewest passes in which new holds must be found to end the run: one long pass finds what was added during the one before.
const NEW_HOLDS_TIMES: u32 = 2;

/// Pause after a pass that had something to do.
const PAUSE: Duration = Duration::from_millis(500);

/// Counters of one pass. The [module's example](self) has the best outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// When it began, since the start of the run.
    pub begun: Duration,
    /// Objects with a hold.
    pub found: usize,
    /// Objects that were released, or did not exist any more.
    pub released: usize,
    /// Objects whose release failed for a reason that may pass.
    pub unsettled: usize,
    /// Objects whose release the server denied.
    pub refused: usize,
    /// Objects that must keep a hold.
    pub left: usize,
    /// Kinds that may not be listed.
    pub hidden: usize,
    /// Kinds whose list failed for another reason, and objects that cannot be decoded.
    pub unseen: usize,
}

/// The step after a pass. The [module's example](self) has the best outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another pass after this pause.
    Again(Duration),
    /// The end of the run.
    Stop(Outcome),
}

/// Result of a run. The exit codes are documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No hold of the purpose is left.
    Clean,
    /// Something failed, but was not denied: the server did not answer, or there was no progress.
    #[default]
    Error,
    /// A hold must stay: a PVC in use that only Belayer protects.
    LeftOver,
    /// Only new holds were found: a client keeps adding them.
    NewHolds,
    /// The server denied something: RBAC, a policy, a webhook.
    Refused,
}

impl Outcome {
    /// The process's exit code. 2 is wrong usage in every command.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Error => 1,
            Self::LeftOver | Self::NewHolds => 3,
            Self::Refused => 4,
        }
    }
}

/// State of the passes of one run. The [module's example](self) has the best outcome.
#[derive(Debug, Clone)]
pub struct Passes {
    timeout: Duration,
    /// Fewest objects with a hold in a pass.
    fewest: usize,
    /// When a pass last found fewer objects than all passes before, at the earliest when the policies have no effect
    /// any more. Only that is progress; otherwise a run in which objects are held again as fast as they are released
    /// would not end.
    progressed: Duration,
    /// A pass that begins before this time since the start is not the last.
    settled: Duration,
    /// Start of the first of consecutive passes that found nothing to do, and whether they could list everything.
    clean: Option<(Duration, bool)>,
    refused: u32,
    /// Number of passes.
    passes: u32,
    /// The pass since which only new holds were found.
    complete: Option<Complete>,
    timed_out: bool,
}

/// A pass that handled everything that it found, begun after the policies had no effect any more.
#[derive(Debug, Clone, Copy)]
struct Complete {
    number: u32,
    begun: Duration,
    /// Passes after it that found holds.
    with_new: u32,
}

impl Passes {
    /// A run that ends after `timeout` without progress, and not with a pass that began before `settled`.
    pub fn new(timeout: Duration, settled: Duration) -> Self {
        Self {
            timeout,
            fewest: usize::MAX,
            progressed: settled,
            settled,
            clean: None,
            refused: 0,
            passes: 0,
            complete: None,
            timed_out: false,
        }
    }

    /// A change was made that API servers notice late: no pass before `settled` is the last.
    pub fn settle_at(&mut self, settled: Duration) {
        self.settled = self.settled.max(settled);
        // Later changes are not progress: a run in which another client restores the policies again and again would not
        // end.
        if self.passes == 0 {
            self.progressed = self.settled;
        }
    }

    /// Whether the run ended because there was no progress for the timeout.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// The number, from 1, of the pass since which only new holds were found: that pass handled everything
    /// that it found.
    pub fn only_new_holds_since(&self) -> Option<u32> {
        self.complete.map(|complete| complete.number)
    }

    /// The step after this pass, which ended at `now`.
    pub fn next(&mut self, pass: &Pass, now: Duration) -> Next {
        if pass.found < self.fewest {
            self.fewest = pass.found;
            self.progressed = self.progressed.max(now);
        }
        self.passes += 1;
        self.complete = self.completed(pass);
        self.refused = if pass.refused > 0 {
            self.refused + 1
        } else {
            0
        };
        let tried = pass.refused == 0 || self.refused >= REFUSED_TRIES;
        let quiet = pass.released == 0 && pass.unsettled == 0 && tried;
        let listed_all = pass.unseen == 0 && pass.hidden == 0;
        self.clean = match self.clean.filter(|_| quiet) {
            // One pass that lists everything does not show that nothing is left: passes that did not do not count.
            Some((_, false)) if listed_all => Some((pass.begun, true)),
            Some((begun, _)) => {
                if pass.begun >= begun + APART && pass.begun >= self.settled {
                    return Next::Stop(outcome(pass));
                }
                Some((begun, listed_all))
            }
            None => quiet.then_some((pass.begun, listed_all)),
        };
        let only_new = self.complete.filter(|_| pass.released > 0 && tried);
        let only_new = only_new.filter(|complete| complete.with_new > 0);
        if only_new.is_some_and(|complete| {
            complete.with_new >= NEW_HOLDS_TIMES && pass.begun >= complete.begun + NEW_HOLDS_FOR
        }) {
            return Next::Stop(match outcome(pass) {
                Outcome::Clean => Outcome::NewHolds,
                other => other,
            });
        }
        // The time for which the run itself waits before it may end is not time without progress.
        let waits = match (self.clean, only_new) {
            (Some((clean, _)), _) => clean + APART,
            (None, Some(complete)) => self.progressed.max(complete.begun) + NEW_HOLDS_FOR,
            (None, None) => Duration::ZERO,
        };
        let deadline = self.progressed + self.timeout;
        if now >= deadline && pass.begun >= waits {
            self.timed_out = true;
            return Next::Stop(match outcome(pass) {
                Outcome::Clean => Outcome::Error,
                other => other,
            });
        }
        let pause = match self.clean {
            Some((clean, _)) => (clean + APART)
                .max(self.settled)
                .saturating_sub(now)
                .max(PAUSE),
            None if pass.refused > 0 && pass.released == 0 => REFUSED_PAUSE,
            None => PAUSE,
        };
        Next::Again(pause.min(deadline.max(waits).saturating_sub(now)))
    }

    /// The pass since which only new holds were found, if this pass is one of them or the first. What was added while the
    /// policies still had an effect is not new.
    fn completed(&self, pass: &Pass) -> Option<Complete> {
        if pass.unsettled > 0 || pass.unseen > 0 || pass.hidden > 0 || pass.begun < self.settled {
            return None;
        }
        let since = self.complete.filter(|since| since.begun >= self.settled);
        Some(match since {
            Some(since) => Complete {
                with_new: since.with_new + u32::from(pass.released > 0),
                ..since
            },
            None => Complete {
                number: self.passes,
                begun: pass.begun,
                with_new: 0,
            },
        })
    }
}

/// The result if this pass is the last. The [module's example](self) has the best outcome.
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

    /// Plays passes of one second each; returns the number of passes until the stop, and the result.
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

    /// A pass that makes no progress.
    fn more(begun: u64) -> Pass {
        Pass {
            found: 2,
            ..at(begun)
        }
    }

    fn left(pass: Pass) -> Pass {
        Pass { left: 1, ..pass }
    }

    fn unlisted(pass: Pass) -> Pass {
        Pass { unseen: 1, ..pass }
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
    #[case::not_before_policies_have_no_effect(&[at(0), at(3), at(11), at(12)], 12, (4, Some(Outcome::Clean)))]
    #[case::consecutive(&[at(0), released(at(3)), at(6), at(9)], 0, (4, Some(Outcome::Clean)))]
    #[case::failures_are_retried(&[unsettled(at(0)), unsettled(at(3)), at(6), at(9)], 0, (4, Some(Outcome::Clean)))]
    #[case::holds_that_stay_end_the_run(&[left(at(0)), left(at(3))], 0, (2, Some(Outcome::LeftOver)))]
    #[case::denials_are_retried(&[refused(at(0)), refused(at(5)), refused(at(10)), refused(at(15))], 0, (4, Some(Outcome::Refused)))]
    #[case::a_denial_that_ends_does_not_count(&[refused(at(0)), released(at(5)), at(8), at(11)], 0, (4, Some(Outcome::Clean)))]
    #[case::t4_only_new_holds(
        &[released(at(0)), released(at(5)), released(at(9)), released(at(10))], 0, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_not_before_policies_have_no_effect(
        &[released(at(0)), released(at(11)), released(at(12)), released(at(21)), released(at(22))], 12, (5, Some(Outcome::NewHolds))
    )]
    #[case::t4_one_pass_with_new_holds_is_not_enough(
        &[released(at(0)), released(at(30)), released(at(60))], 0, (3, Some(Outcome::NewHolds))
    )]
    #[case::t4_a_clean_pass_between_changes_nothing(
        &[released(at(0)), released(at(4)), at(5), released(at(10))], 0, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_holds_after_a_failure_are_not_new(
        &[unsettled(at(0)), released(at(10)), released(at(19)), released(at(20))], 0, (4, Some(Outcome::NewHolds))
    )]
    #[case::t4_holds_after_an_unlisted_kind_are_not_new(
        &[unlisted(at(0)), released(at(10)), released(at(19)), at(22), at(25)], 0, (5, Some(Outcome::Clean))
    )]
    #[case::one_pass_after_an_unlisted_kind_is_not_enough(
        &[unlisted(at(0)), at(12), at(15)], 0, (3, Some(Outcome::Clean))
    )]
    #[case::a_kind_that_cannot_be_listed_ends_the_run(
        &[at(0), unlisted(at(1)), unlisted(at(4))], 0, (3, Some(Outcome::Error))
    )]
    #[case::t4_holds_that_stay_take_precedence(
        &[left(released(at(0))), left(released(at(9))), left(released(at(10)))], 0, (3, Some(Outcome::LeftOver))
    )]
    #[case::t4_denials_are_retried(
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
    #[case::while_holds_are_released(&[unsettled(released(more(5))), released(more(9))], Outcome::Error)]
    #[case::not_before_the_second_clean_pass(&[more(9), more(12)], Outcome::Clean)]
    #[case::with_holds_that_stay(&[left(more(9)), left(more(12))], Outcome::LeftOver)]
    #[case::not_before_holds_are_known_to_be_new(
        &[released(more(5)), released(more(9)), released(more(10))], Outcome::NewHolds
    )]
    #[case::with_denials(&[refused(more(9))], Outcome::Refused)]
    fn time_runs_out(#[case] rows: &[Pass], #[case] expected: Outcome) {
        let first = Pass { found: 1, ..at(0) };
        let rows = [&[released(first)], rows].concat();
        // The first pass ends at second 1: its count is progress.
        assert_eq!(played(&rows, 0, 9), (rows.len(), Some(expected)));
    }

    /// The holds that the second pass finds were added while the policies still had an effect.
    #[test]
    fn holds_from_before_the_end_of_the_policies_are_not_new() {
        let mut passes = Passes::new(s(120), SETTLE);
        let mut begun = Duration::ZERO;
        let mut next = |pass: Pass, took| {
            let next = passes.next(&Pass { begun, ..pass }, begun + took);
            if let Next::Again(pause) = next {
                begun += took + pause;
            }
            next
        };
        for took in [s(30), s(1)] {
            let again = next(released(at(0)), took);
            assert!(matches!(again, Next::Again(_)), "{again:?}");
        }
        assert_eq!(next(at(0), s(1)), Next::Again(s(2)));
        assert_eq!(next(at(0), s(1)), Next::Stop(Outcome::Clean));
    }

    /// Repeats a pass of 300 ms after the pauses that the run asks for; returns when the run ended, the result, and
    /// whether it timed out. With `restored`, another client restores the policies before each pass.
    fn repeated(pass: fn(Pass) -> Pass, timeout: u64, restored: bool) -> (Duration, Outcome, bool) {
        let mut state = Passes::new(s(timeout), SETTLE);
        let mut now = Duration::ZERO;
        for count in 0..1_000 {
            let begun = now;
            now += Duration::from_millis(300);
            if restored || count == 0 {
                state.settle_at(begun + SETTLE);
            }
            let pass = pass(Pass {
                begun,
                ..Pass::default()
            });
            match state.next(&pass, now) {
                Next::Again(pause) => now += pause,
                Next::Stop(outcome) => return (now, outcome, state.timed_out()),
            }
        }
        panic!("the run does not end");
    }

    /// A run waits until the policies have no effect, and before its last pass. That is not time without progress.
    #[rstest]
    fn time_does_not_run_out_while_the_run_waits(#[values(1, 3, 9, 11, 13, 120)] timeout: u64) {
        let (ended, outcome, timed_out) = repeated(|pass| pass, timeout, false);
        assert_eq!((outcome, timed_out), (Outcome::Clean, false));
        assert!(ended < SETTLE + s(1), "{ended:?}");
        let (ended, outcome, timed_out) = repeated(released, timeout, false);
        assert_eq!((outcome, timed_out), (Outcome::NewHolds, false));
        assert!(ended < SETTLE + NEW_HOLDS_FOR + s(2), "{ended:?}");
    }

    #[rstest]
    #[case::nothing_to_do(|pass| pass)]
    #[case::new_holds(released)]
    #[case::failures(unsettled)]
    fn time_runs_out_while_another_client_restores_the_policies(
        #[case] pass: fn(Pass) -> Pass,
        #[values(1, 9, 30)] timeout: u64,
    ) {
        let (ended, outcome, timed_out) = repeated(pass, timeout, true);
        assert_eq!((outcome, timed_out), (Outcome::Error, true));
        let longest = SETTLE + NEW_HOLDS_FOR.max(s(timeout)) + s(2);
        assert!(ended < longest, "{ended:?}");
    }

    #[test]
    fn l6_time_counts_from_the_last_progress() {
        // More objects than one pass can handle.
        let found = |begun, found| unsettled(released(Pass { found, ..at(begun) }));
        // Each pass finds fewer: no time limit applies.
        let fewer: Vec<Pass> = (0..20).map(|n| found(n * 8, 100 - n as usize)).collect();
        assert_eq!(played(&fewer, 0, 10), (20, None));
        // As many objects are held again as were released.
        let as_many: Vec<Pass> = (0..20).map(|n| found(n, 5)).collect();
        assert_eq!(played(&as_many, 0, 10), (11, Some(Outcome::Error)));
    }

    #[rstest]
    #[case::nothing(at(0), Outcome::Clean, 0)]
    #[case::a_kind_was_not_listed(Pass { unseen: 1, ..at(0) }, Outcome::Error, 1)]
    #[case::a_kind_may_not_be_listed(Pass { hidden: 1, ..at(0) }, Outcome::Refused, 4)]
    #[case::in_use(left(at(0)), Outcome::LeftOver, 3)]
    #[case::a_denial_takes_precedence_over_holds_that_stay(
        left(refused(at(0))),
        Outcome::Refused,
        4
    )]
    #[case::an_error_takes_precedence_over_holds_that_stay(
        left(unsettled(at(0))),
        Outcome::Error,
        1
    )]
    #[case::a_denial_takes_precedence_over_an_error(refused(unsettled(at(0))), Outcome::Refused, 4)]
    fn outcomes_and_their_exit_codes(
        #[case] pass: Pass,
        #[case] expected: Outcome,
        #[case] code: u8,
    ) {
        assert_eq!(outcome(&pass), expected);
        assert_eq!(expected.exit_code(), code);
    }

    #[test]
    fn the_next_pass_begins_when_it_can_be_the_last() {
        let mut passes = Passes::new(s(100), s(12));
        assert_eq!(passes.next(&at(0), s(1)), Next::Again(s(11)));
        let mut passes = Passes::new(s(100), s(0));
        assert_eq!(passes.next(&at(0), s(1)), Next::Again(s(2)));
        assert_eq!(passes.next(&released(at(3)), s(4)), Next::Again(PAUSE));
    }
}
