//! The command line, usually run by `cargo xtask simulate`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use belayer::arguments::number;
use clap::Parser;

use crate::coverage::Coverage;
use crate::plan::{LATE_REQUESTS, Plan};
use crate::run::{Outcome, run};
use crate::shrink::shrink;

/// Run Belayer on random clusters with random faults, and check every invariant
///
/// A seed decides everything about a run, so that the same seed gives the same run. Exit codes: 0 if no
/// invariant was violated, 1 if one was, 2 for an invalid command.
#[derive(Debug, Parser)]
#[command(name = "belayer-simulator", bin_name = "cargo xtask simulate", version)]
pub(crate) struct Simulate {
    /// How many seeds
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = number(0..=u64::MAX))]
    seeds: u64,

    /// The first seed. Its range decides the kind of run; the default is the first seed of the newest range
    #[arg(long, default_value_t = LATE_REQUESTS, value_name = "SEED", value_parser = number(0..=u64::MAX))]
    first: u64,

    /// Run only this seed, and print its events
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first"], value_parser = number(0..=u64::MAX))]
    seed: Option<u64>,

    /// With --seed: only these events, by number
    #[arg(long, value_name = "N,N", value_delimiter = ',', requires = "seed")]
    only: Option<Vec<usize>>,

    /// With --seed: also print the API server's record of all writes
    #[arg(long, requires = "seed")]
    writes: bool,

    /// With --seed: print the log of this level, such as `debug`
    #[arg(long, requires = "seed", value_name = "LEVEL")]
    log: Option<tracing::Level>,

    /// How many runs at the same time; by default one per processor
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Also print how often each rule, change of a record, fault and event was reached. A fault that stops watches
    /// counts each time it begins, others each request or watch
    #[arg(long)]
    coverage: bool,

    /// Also print a digest of all writes of all runs: another build that behaves in the same way prints the same
    #[arg(long)]
    digest: bool,
}

impl Simulate {
    pub(crate) fn execute(self) -> ExitCode {
        match self.seed {
            Some(seed) => self.one(seed),
            None => self.many(),
        }
    }

    fn one(&self, seed: u64) -> ExitCode {
        let mut plan = Plan::of(seed);
        if let Some(only) = &self.only {
            plan = plan.only(&only.iter().copied().collect());
        }
        print_plan(&plan);
        if let Some(level) = self.log {
            tracing_subscriber::fmt()
                .with_max_level(level)
                .with_ansi(false)
                .init();
        }
        let outcome = run(&plan);
        if self.writes {
            for line in outcome.lines() {
                anstream::println!("{line}");
            }
        }
        if self.coverage {
            print_coverage(&outcome.coverage);
        }
        if self.digest {
            print_digest(outcome.digest());
        }
        print_violations(&outcome);
        let is_good = outcome.violations.is_empty();
        if !is_good && self.only.is_none() {
            print_smallest(&plan);
        }
        exit(is_good)
    }

    fn many(&self) -> ExitCode {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(processors).max(1);
        let (next, end) = (
            AtomicU64::new(self.first),
            self.first.saturating_add(self.seeds),
        );
        let (sender, results) = mpsc::channel();
        let begun = Instant::now();
        let (mut coverage, mut failed) = (Coverage::default(), BTreeSet::new());
        // Runs end in any order, which a sum does not depend on.
        let mut sum: u64 = 0;
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return;
                        }
                        // The record of all writes is dropped here, by the thread that has allocated it.
                        let outcome = run(&Plan::of(seed));
                        let digest = if self.digest { outcome.digest() } else { 0 };
                        let Outcome {
                            violations,
                            coverage,
                            ..
                        } = outcome;
                        if sender.send((seed, violations, coverage, digest)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut reported = Instant::now();
            for (done, (seed, violations, reached, digest)) in results.iter().enumerate() {
                coverage.merge(reached);
                sum = sum.wrapping_add(digest);
                if let Some(first) = violations.first() {
                    failed.insert(seed);
                    anstream::println!("seed {seed} violates {first}");
                    anstream::println!("  cargo xtask simulate --seed {seed}");
                }
                if reported.elapsed() > Duration::from_secs(10) {
                    reported = Instant::now();
                    anstream::eprintln!(
                        "{} of {} seeds, {} failed",
                        done + 1,
                        self.seeds,
                        failed.len()
                    );
                }
            }
        });
        if self.coverage {
            print_coverage(&coverage);
        }
        if self.digest {
            print_digest(sum);
        }
        let took = begun.elapsed().as_secs_f64();
        let rate = self.seeds as f64 / took / jobs as f64;
        anstream::println!(
            "{} seeds from {}, {} failed, {took:.0} s, {rate:.1} seeds per second and processor",
            self.seeds,
            self.first,
            failed.len(),
        );
        if let Some(seed) = failed.first() {
            print_smallest(&Plan::of(*seed));
        }
        exit(failed.is_empty())
    }
}

fn exit(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print_plan(plan: &Plan) {
    let load = &plan.workload;
    anstream::println!(
        "seed {}: {} workflows of {} pods, podGC {:?}, Belayer's clock {} s ahead, {} of all pods rejected, nodes wiped: {}",
        plan.seed,
        load.workflows,
        load.pods_per_workflow,
        load.pod_gc,
        plan.skew,
        plan.rejections,
        plan.wipes,
    );
    for planned in &plan.events {
        let at = planned.at.as_secs_f64();
        anstream::println!("{:>4}  {at:6.2} s  {:?}", planned.number, planned.event);
    }
}

/// The smallest part of a plan that fails.
fn print_smallest(plan: &Plan) {
    let seed = plan.seed;
    anstream::println!("\nThe smallest part of seed {seed} that fails:");
    let smallest = shrink(plan);
    print_plan(&smallest);
    print_violations(&run(&smallest));
    let numbers: Vec<String> = smallest
        .events
        .iter()
        .map(|event| event.number.to_string())
        .collect();
    anstream::println!(
        "  cargo xtask simulate --seed {seed} --only {}",
        numbers.join(",")
    );
}

/// The first violations: one fault often has many.
fn print_violations(outcome: &Outcome) {
    for violation in outcome.violations.iter().take(10) {
        anstream::println!("violated {violation}");
    }
    anstream::println!("{} violations", outcome.violations.len());
}

fn print_digest(digest: u64) {
    anstream::println!("{digest:016x}  digest of all writes");
}

fn print_coverage(reached: &Coverage) {
    let mut coverage = Coverage::nothing();
    coverage.merge(reached.clone());
    for (name, times) in coverage.iter() {
        anstream::println!("{times:>10}  {name}");
    }
}
