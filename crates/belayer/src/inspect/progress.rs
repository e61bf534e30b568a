//! Progress of a scan: a bar on a terminal, otherwise a line at intervals.

use belayer_inspect::kinds::Kind;
use belayer_inspect::scan::Progress;

use crate::progress::Meter;

/// The bar of a scan.
pub(super) fn on_stderr() -> Meter {
    Meter::on_stderr("{bar:24} {pos}/{len} kinds  {wide_msg}")
}

impl Progress for Meter {
    fn kinds(&self, count: usize) {
        self.bar
            .set_length(u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn listed(&self, kind: &Kind, objects: u64) {
        self.bar
            .set_message(format!("{objects} objects  {}", kind.name()));
        self.advance(|listed, kinds| {
            format!("listed {listed} of {kinds} kinds, {objects} objects")
        });
    }
}
