//! One step: a command, its log, its duration and its counts.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use wait4::{ResUse, Wait4 as _};

use super::counts::Counts;
use super::skips::Skips;

/// How much of a failed step's log is printed.
const PRINTED_LINES: usize = 120;

/// How much is printed of what failed tests say.
const FAILURE_LINES: usize = 600;

/// How much of it is printed again at the end of the whole run.
const REPEATED_LINES: usize = 40;

/// How a step's output is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Succeeds or fails as a whole, and counts as one.
    Check,
    /// `cargo test`: counts per test binary.
    Tests,
    /// Scenarios: their lines are printed after the name of their provider, the last one has the counts.
    Scenarios(&'static str),
}

/// How a step ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// Its name and the start of what failed, to be printed again when all other steps have printed their lines.
    pub(super) failure: Option<String>,
}

/// A named command.
#[derive(Debug)]
pub(super) struct Step {
    name: String,
    command: Command,
    kind: Kind,
    /// Why it cannot be run.
    skipped: Option<&'static str>,
    background: bool,
}

impl Step {
    /// A step that succeeds or fails as a whole.
    pub(super) fn check(name: &str, command: Command) -> Self {
        Self {
            name: name.to_owned(),
            command,
            kind: Kind::Check,
            skipped: None,
            background: false,
        }
    }

    /// The same with the lowest priority, and without a progress bar, because another step has one.
    pub(super) fn in_background(self) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]);
        command.arg(self.command.get_program());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        Self {
            command,
            background: true,
            ..self
        }
    }

    /// A step that cannot be run; it is printed and counts as skipped.
    pub(super) fn skipped(name: &str, why: &'static str) -> Self {
        Self {
            skipped: Some(why),
            ..Self::check(name, Command::new("true"))
        }
    }

    /// `cargo test`.
    pub(super) fn tests(name: &str, command: Command) -> Self {
        Self {
            kind: Kind::Tests,
            ..Self::check(name, command)
        }
    }

    /// The scenarios on one provider.
    pub(super) fn scenarios(name: &str, provider: &'static str, command: Command) -> Self {
        Self {
            kind: Kind::Scenarios(provider),
            ..Self::check(name, command)
        }
    }

    /// Runs it, prints its line, and its log if it failed.
    pub(super) fn run(self, skips: Skips) -> Result<Outcome> {
        let Self {
            name,
            mut command,
            kind,
            skipped,
            background,
        } = self;
        if let Some(why) = skipped {
            return Ok(skip(&name, why, skips));
        }
        let started = Instant::now();
        let bar = if background { None } else { bar(&name) };
        if bar.is_none() {
            println!("     {name} ...");
        }
        let mut output = Output::new(kind, skips, bar.clone());
        let used = run(&mut command, &mut output)?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(output.close(&name, &used, started.elapsed()))
    }
}

/// Prints the line of a step that cannot be run: a failure where it has to.
fn skip(name: &str, why: &str, skips: Skips) -> Outcome {
    let mut counts = Counts::default();
    let failure = if skips.permit_step(why) {
        counts.skipped = 1;
        println!("skip {name}: {why}");
        None
    } else {
        counts.failed = 1;
        println!("FAIL {name}: {why}");
        Some(format!("{name}\n     | {why}"))
    };
    Outcome { counts, failure }
}

/// Runs the command. Returns its exit status, and the CPU time of it and of all processes that it waited for.
fn run(command: &mut Command, output: &mut Output) -> Result<ResUse> {
    // One pipe for both, so that their lines stay in order.
    let (reader, writer) = std::io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let child = command.spawn().context("start cargo")?;
    // The parent's ends of the pipe would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        output.line(&String::from_utf8_lossy(&line?));
    }
    Ok(child.wait4()?)
}

fn bar(name: &str) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    Some(bar)
}

/// The output so far.
struct Output {
    kind: Kind,
    bar: Option<ProgressBar>,
    counts: Option<Counts>,
    ignored: Vec<String>,
    skips: Skips,
    /// What was skipped although it may not be.
    refused: Vec<String>,
    /// The whole provider cannot be started, and says so.
    is_skipped: bool,
    /// What failed tests say: other test binaries follow, so that the last lines do not contain it.
    failures: Vec<String>,
    in_failures: bool,
    last: VecDeque<String>,
}

impl Output {
    fn new(kind: Kind, skips: Skips, bar: Option<ProgressBar>) -> Self {
        Self {
            kind,
            bar,
            counts: None,
            ignored: Vec::new(),
            skips,
            refused: Vec::new(),
            is_skipped: false,
            failures: Vec::new(),
            in_failures: false,
            last: VecDeque::new(),
        }
    }

    fn line(&mut self, line: &str) {
        let counts = match self.kind {
            Kind::Check => None,
            Kind::Tests => Counts::of_cargo_test(line),
            Kind::Scenarios(_) => Counts::of_scenarios(line),
        };
        self.in_failures = match self.kind {
            Kind::Check => false,
            Kind::Tests => counts.is_none() && (self.in_failures || line == "failures:"),
            Kind::Scenarios(_) => {
                line.starts_with("FAIL ") || self.in_failures && line.starts_with("     ")
            }
        };
        if self.in_failures && self.failures.len() < FAILURE_LINES {
            self.failures.push(line.to_owned());
        }
        if let Some(counts) = counts {
            self.counts = Some(self.counts.unwrap_or_default() + counts);
        } else if let Kind::Scenarios(provider) = self.kind {
            self.print(&format!("{provider:<8} {line}"));
            if let Some(skipped) = line.strip_prefix("skip ") {
                self.is_skipped |= skipped.starts_with("provider-");
                if !self.skips.permit_scenario(provider, skipped) {
                    self.refused.push(skipped.to_owned());
                }
            }
        } else if let Some(name) = ignored_test(line) {
            self.ignored.push(name.to_owned());
            if !self.skips.permit_test(name) {
                self.refused.push(name.to_owned());
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
        }
        self.last.push_back(line.to_owned());
        if self.last.len() > PRINTED_LINES {
            self.last.pop_front();
        }
    }

    fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("       {line}")),
            None => println!("       {line}"),
        }
    }

    /// The start of what failed tests say, or else the end of the log.
    fn text_of_failure(&self, lines: usize) -> Vec<&String> {
        if self.failures.is_empty() {
            let before = self.last.len().saturating_sub(lines);
            self.last.iter().skip(before).collect()
        } else {
            self.failures.iter().take(lines).collect()
        }
    }

    /// Why a command that ended well has not shown what it is for.
    fn shows_too_little(&self) -> Option<&'static str> {
        match self.counts {
            _ if self.kind == Kind::Check => None,
            None => Some("it printed no counts, so nothing shows that a test ran"),
            Some(counts) if counts.passed == 0 && !self.is_skipped => Some("no test passed"),
            Some(_) if !self.refused.is_empty() => {
                Some("with CI=true, only what xtask/src/test/skips.txt lists may be skipped")
            }
            Some(_) => None,
        }
    }

    /// Prints the result of the step. A failed command counts as one failure if nothing else failed.
    fn close(mut self, name: &str, used: &ResUse, took: Duration) -> Outcome {
        let status = used.status;
        let mut counts = self.counts.unwrap_or_default();
        let unshown = self
            .shows_too_little()
            .filter(|_| status.success() && counts.failed == 0);
        if let Some(why) = unshown {
            self.failures = vec![why.to_owned()];
            self.failures.append(&mut self.refused);
        }
        if (!status.success() || unshown.is_some()) && counts.failed == 0 {
            counts.failed = 1;
        }
        if status.success() && self.kind == Kind::Check {
            counts.passed = 1;
        }
        let seconds = took.as_secs_f64();
        let cpu = (used.rusage.utime + used.rusage.stime).as_secs_f64();
        let summary = if self.kind == Kind::Check {
            String::new()
        } else {
            format!(": {counts}")
        };
        let failure = (counts.failed > 0).then(|| {
            let text = self.text_of_failure(REPEATED_LINES).into_iter();
            text.fold(name.to_owned(), |text, line| text + "\n     | " + line)
        });
        if counts.failed == 0 {
            println!("ok   {name} {seconds:.1} s ({cpu:.1} s of CPU time){summary}");
        } else {
            println!("FAIL {name} {seconds:.1} s ({cpu:.1} s of CPU time){summary}");
            let is_printed = matches!(self.kind, Kind::Scenarios(_)) && unshown.is_none();
            if !is_printed || self.counts.is_none() {
                for line in self.text_of_failure(FAILURE_LINES) {
                    println!("     | {line}");
                }
            }
        }
        for name in self.ignored {
            println!("       skip {name}");
        }
        Outcome { counts, failure }
    }
}

/// The name of a test that is marked `#[ignore]`.
fn ignored_test(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    outcome.starts_with("ignored").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[rstest]
    #[case::it_passes("true", 1, 0)]
    #[case::it_fails("exit 3", 0, 1)]
    fn a_check_counts_as_one(#[case] script: &str, #[case] passed: u64, #[case] failed: u64) {
        let counts = Step::check("a check", shell(script))
            .run(Skips::Any)
            .unwrap()
            .counts;
        assert_eq!(
            counts,
            Counts {
                passed,
                failed,
                skipped: 0
            }
        );
    }

    #[test]
    fn a_step_in_the_background_has_the_lowest_priority() {
        let mut command = shell("test \"$(nice)\" = 19 && test \"$MARK\" = 1 && test -e bin/sh");
        command.env("MARK", "1").current_dir("/");
        let step = Step::check("a check", command).in_background();
        assert_eq!(step.run(Skips::Any).unwrap().counts.passed, 1);
    }

    #[test]
    fn a_step_that_cannot_be_run_counts_as_skipped() {
        let counts = Step::skipped("a check", "there is no tool")
            .run(Skips::Any)
            .unwrap()
            .counts;
        assert_eq!((counts.passed, counts.failed, counts.skipped), (0, 0, 1));
    }

    #[test]
    fn a_step_that_has_to_run_is_a_failure() {
        let step = Step::skipped("a check", "there is no tool");
        let outcome = step.run(Skips::Listed).unwrap();
        assert_eq!((outcome.counts.failed, outcome.counts.skipped), (1, 0));
        let expected = "a check\n     | there is no tool";
        assert_eq!(outcome.failure.as_deref(), Some(expected));
        let step = Step::skipped("a check", "there is no earlier release");
        assert_eq!(step.run(Skips::Listed).unwrap().counts.skipped, 1);
    }

    #[rstest]
    #[case::no_counts("true", Skips::Any, "it printed no counts")]
    #[case::nothing_ran("echo '0 passed, 0 failed, 0 skipped'", Skips::Any, "no test passed")]
    #[case::all_skipped(
        "echo 'skip a needs real nodes'; echo '0 passed, 0 failed, 1 skipped'",
        Skips::Any,
        "no test passed"
    )]
    #[case::another_skip(
        "echo 'skip a needs a kubelet'; echo '9 passed, 0 failed, 1 skipped'",
        Skips::Listed,
        "     | a needs a kubelet"
    )]
    #[case::the_provider(
        "echo 'skip provider-local no Go'; echo '0 passed, 0 failed, 1 skipped'",
        Skips::Listed,
        "     | provider-local no Go"
    )]
    fn scenarios_that_show_too_little_are_a_failure(
        #[case] script: &str,
        #[case] skips: Skips,
        #[case] expected: &str,
    ) {
        let step = Step::scenarios("scenarios", "local", shell(script));
        let outcome = step.run(skips).unwrap();
        assert_eq!(outcome.counts.failed, 1);
        let failure = outcome.failure.unwrap();
        assert!(failure.contains(expected), "{failure}");
    }

    #[rstest]
    #[case::one_may_be_skipped(
        "echo 'skip a needs real nodes'; echo '9 passed, 0 failed, 1 skipped'",
        Skips::Listed
    )]
    #[case::no_control_plane(
        "echo 'skip provider-local no Go'; echo '0 passed, 0 failed, 1 skipped'",
        Skips::Any
    )]
    fn scenarios_may_skip(#[case] script: &str, #[case] skips: Skips) {
        let step = Step::scenarios("scenarios", "local", shell(script));
        let counts = step.run(skips).unwrap().counts;
        assert_eq!((counts.failed, counts.skipped), (0, 1));
    }

    #[rstest]
    #[case::no_counts("true")]
    #[case::nothing_ran("echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured'")]
    #[case::another_is_ignored(
        "echo 'test a ... ignored'; echo 'test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured'"
    )]
    fn tests_that_show_too_little_are_a_failure(#[case] script: &str) {
        let step = Step::tests("tests", shell(script));
        assert_eq!(step.run(Skips::Listed).unwrap().counts.failed, 1);
    }

    #[test]
    fn test_binaries_are_added_up() {
        let line = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        let counts = Step::tests("tests", shell(&format!("echo '{line}'; echo '{line}'")))
            .run(Skips::Any)
            .unwrap()
            .counts;
        assert_eq!(
            counts,
            Counts {
                passed: 4,
                failed: 0,
                skipped: 2
            }
        );
    }

    #[test]
    fn what_failed_tests_say_is_kept_although_others_follow() {
        let mut output = Output::new(Kind::Tests, Skips::Any, None);
        let failed = [
            "failures:",
            "---- a stdout ----",
            "no",
            "failures:",
            "    a",
        ];
        for line in failed {
            output.line(line);
        }
        output
            .line("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        for _ in 0..PRINTED_LINES {
            output.line("test b ... ok");
        }
        assert_eq!(output.text_of_failure(FAILURE_LINES), failed);
    }

    #[test]
    fn failed_scenarios_are_printed_again_at_the_end() {
        let lines = [
            "ok   a 1 s",
            "FAIL b 1 s",
            "     no result",
            "ok   c 1 s",
            "1 passed, 1 failed, 0 skipped",
        ];
        let script = format!("printf '%s\\n' '{}'; exit 1", lines.join("' '"));
        let step = Step::scenarios("scenarios", "local", shell(&script));
        let expected = "scenarios\n     | FAIL b 1 s\n     |      no result";
        assert_eq!(
            step.run(Skips::Any).unwrap().failure.as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn the_end_of_a_failed_check_is_printed_again() {
        let step = Step::check("numbers", shell("seq 500; exit 1"));
        let failure = step.run(Skips::Any).unwrap().failure.unwrap();
        assert!(failure.starts_with("numbers\n     | 461\n") && failure.ends_with("| 500"));
    }

    #[test]
    fn tests_that_do_not_compile_are_a_failure() {
        let counts = Step::tests("tests", shell("echo error: no; exit 101"))
            .run(Skips::Any)
            .unwrap()
            .counts;
        assert_eq!(
            counts,
            Counts {
                passed: 0,
                failed: 1,
                skipped: 0
            }
        );
    }

    #[test]
    fn scenarios_that_cannot_start_are_a_failure_even_after_a_count() {
        let script = "echo '3 passed, 0 failed, 0 skipped'; exit 1";
        let counts = Step::scenarios("scenarios", "local", shell(script))
            .run(Skips::Any)
            .unwrap()
            .counts;
        assert_eq!(
            counts,
            Counts {
                passed: 3,
                failed: 1,
                skipped: 0
            }
        );
    }

    #[rstest]
    #[case("test a::b ... ignored", Some("a::b"))]
    #[case("test a::b ... ignored, needs a real cluster", Some("a::b"))]
    #[case("test a::b ... ok", None)]
    fn ignored_tests_are_named(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(ignored_test(line), expected);
    }
}
