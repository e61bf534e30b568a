//! The live table of a run.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::judge::Counts;
use super::plan::Plan;
use crate::progress::Progress;

/// Between two plain lines.
const LINES: Duration = Duration::from_secs(10);

/// A table on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub(super) struct Screen {
    progress: Progress,
    /// How many pods are created, if that was planned.
    pods: Option<usize>,
    printed: Instant,
}

impl Screen {
    pub(super) fn new(plan: &Plan) -> Self {
        let percent = plan.rejected * 100.0;
        let rate = plan.rate;
        let (title, pods) = match plan.disruptions {
            Some(faults) => (format!("{faults} faults, {rate} pods per second"), None),
            None => (
                format!("{} pods, {rate} per second", plan.pods),
                Some(plan.pods),
            ),
        };
        let title = format!("{title}, {percent:.0} % rejected");
        Self {
            progress: Progress::table(&title),
            pods,
            printed: Instant::now(),
        }
    }

    pub(super) fn show(&mut self, counts: &Counts) {
        if self.progress.is_terminal() {
            self.progress.detail(&table(counts, self.pods));
        } else if self.printed.elapsed() >= LINES {
            self.printed = Instant::now();
            Progress::say(&line(counts, self.pods));
        }
    }

    /// Something happened that is not in the table.
    pub(super) fn event(&self, text: &str) {
        self.progress.print(text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.progress.clear();
    }
}

fn cells(counts: &Counts, pods: Option<usize>) -> [(&'static str, String); 8] {
    let text = |count: usize| count.to_string();
    let created = match pods {
        Some(pods) => format!("{} of {pods}", counts.created),
        None => text(counts.created),
    };
    [
        ("created", created),
        ("rejected", text(counts.rejected)),
        ("re-created", text(counts.recreated)),
        ("ran once", text(counts.ran_once)),
        ("exhausted", text(counts.exhausted)),
        ("started twice", text(counts.twice)),
        ("start awaited", text(counts.waiting)),
        ("re-creation awaited", text(counts.missing)),
    ]
}

fn table(counts: &Counts, pods: Option<usize>) -> String {
    let mut table = String::new();
    for (name, count) in cells(counts, pods) {
        // Writing to a String cannot fail.
        let _ = write!(table, "\n  {name:<20}{count:>16}");
    }
    table
}

fn line(counts: &Counts, pods: Option<usize>) -> String {
    let cells = cells(counts, pods).map(|(name, count)| format!("{name} {count}"));
    cells.join(", ")
}
