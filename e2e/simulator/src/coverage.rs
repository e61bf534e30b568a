//! Which rules, transitions, faults and events the runs have reached.

use std::collections::{BTreeMap, HashMap};

use belayer_holds::decision::Rule;
use belayer_holds::runner::{By, Executed, Observer, What};
use belayer_pod_recreation::api::Phase;
use belayer_pod_recreation::transitions::{DECIDED, FOUND, State};
use parking_lot::Mutex;

use crate::fault::FaultKind;

/// How often something was reached, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Everything that runs should reach, as never reached.
    pub(crate) fn nothing() -> Self {
        let mut coverage = Self::default();
        for (component, rules) in TABLES {
            for rule in *rules {
                coverage.add(decision(component, rule), 0);
            }
        }
        for (from, _, to) in DECIDED.iter().chain(FOUND) {
            if let State::In(to) = to
                && *from != State::In(*to)
            {
                coverage.add(transition(*from, *to), 0);
            }
        }
        for kind in FaultKind::ALL {
            coverage.add(kind.name(), 0);
        }
        coverage
    }

    /// Counts something.
    pub(crate) fn add(&mut self, name: String, times: u64) {
        *self.0.entry(name).or_default() += times;
    }

    /// Adds the counts of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, times) in other.0 {
            self.add(name, times);
        }
    }

    /// Names with counts, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, times)| (name.as_str(), *times))
    }
}

/// The decision tables, by controller.
const TABLES: &[(&str, &[&Rule])] = &[
    (belayer_pod_finalizer::NAME, belayer_pod_finalizer::row::ALL),
    (
        belayer_workflow_finalizer::NAME,
        belayer_workflow_finalizer::row::ALL,
    ),
    (
        belayer_pvc_protection::NAME,
        belayer_pvc_protection::row::ALL,
    ),
    (
        belayer_pod_recreation::NAME,
        belayer_pod_recreation::row::ALL,
    ),
];

fn decision(component: &str, rule: &Rule) -> String {
    format!("decision {component} {:02} {}", rule.number, rule.name)
}

/// The name of a change of a record's phase.
pub(crate) fn transition(from: State, to: Phase) -> String {
    let from = match from {
        State::In(phase) => phase.as_str(),
        State::New | State::NoRecord => "new",
    };
    format!("record {from} to {}", to.as_str())
}

/// Counts what Belayer decided and carried out, by rule.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<HashMap<(&'static str, &'static Rule, Act), u64>>);

/// What Belayer did by a rule.
type Act = &'static str;

/// It decided, and nothing need follow.
const DECIDES: Act = "";

impl Rules {
    /// The counts so far.
    pub(crate) fn take(&self) -> Coverage {
        let mut coverage = Coverage::default();
        for ((component, rule, act), times) in self.0.lock().drain() {
            let name = match act {
                DECIDES => decision(component, rule),
                _ => format!("rule {component} {:02} {} {act}", rule.number, rule.name),
            };
            coverage.add(name, times);
        }
        coverage
    }

    fn count(&self, By { component, row }: By, act: Act) {
        *self.0.lock().entry((component, row, act)).or_default() += 1;
    }
}

impl Observer for Rules {
    fn executed(&self, executed: &Executed<'_>) {
        let act = match executed.what {
            What::Held => "adds",
            What::Released { .. } => "releases",
            What::Adopted { .. } => "also removes",
            What::Recorded => "records",
            What::Deleted { .. } => "deletes",
            What::Denied { .. } => "is denied",
            What::Pretended { .. } => "would act",
        };
        self.count(executed.by, act);
    }

    fn decided(&self, by: By) {
        self.count(by, DECIDES);
    }
}
