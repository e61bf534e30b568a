use std::collections::BTreeSet;

use rstest::rstest;

use crate::event::Event;
use crate::plan::Plan;
use crate::run::run;

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let (one, other) = (run(&Plan::of(seed)).record, run(&Plan::of(seed)).record);
        let pairs = one.iter().zip(&other);
        let difference = pairs.into_iter().find(|(a, b)| a != b);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

#[test]
fn seeds_differ() {
    let plans: BTreeSet<String> = (0..50)
        .map(|seed| format!("{:?}", Plan::of(seed).events))
        .collect();
    assert!(plans.len() > 45, "{}", plans.len());
}

#[test]
fn a_part_of_a_plan_keeps_the_numbers_of_its_events() {
    let plan = (0..)
        .map(Plan::of)
        .find(|plan| plan.events.len() > 5)
        .unwrap();
    let some = BTreeSet::from([1, 4]);
    assert_eq!(plan.only(&some).numbers(), some);
}

#[test]
fn each_kind_of_event_has_its_own_name() {
    let names: BTreeSet<String> = Event::ALL.into_iter().map(Event::name).collect();
    assert_eq!(names.len(), Event::ALL.len());
}

#[rstest]
fn no_seed_violates_an_invariant(#[values(0, 1, 2, 3)] quarter: u64) {
    let seeds = quarter * 25..(quarter + 1) * 25;
    for seed in seeds {
        let outcome = run(&Plan::of(seed));
        assert!(
            outcome.violations.is_empty(),
            "cargo xtask simulate --seed {seed}: {:#?}",
            outcome.violations
        );
    }
}
