//! Which rules, faults and events the runs have reached.

use std::collections::BTreeMap;

use belayer_holds::runner::{Executed, Observer, What};
use parking_lot::Mutex;

/// How often something was reached, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Coverage(BTreeMap<String, u64>);

impl Coverage {
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

/// Counts what Belayer carried out, by rule.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Coverage>);

impl Rules {
    /// The counts so far.
    pub(crate) fn take(&self) -> Coverage {
        std::mem::take(&mut self.0.lock())
    }
}

impl Observer for Rules {
    fn executed(&self, executed: &Executed<'_>) {
        let row = executed.by.row;
        let what = match executed.what {
            What::Held => "adds",
            What::Released { .. } => "releases",
            What::Adopted { .. } => "also removes",
            What::Recorded => "records",
            What::Deleted { .. } => "deletes",
            What::Denied { .. } => "is denied",
            What::Pretended { .. } => "would act",
        };
        let name = format!(
            "rule {} {:02} {} {what}",
            executed.by.component, row.number, row.name
        );
        self.0.lock().add(name, 1);
    }
}
