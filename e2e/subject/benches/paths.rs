//! Time and allocations of the hot paths, one step each: decoding, the store, an index, the
//! queue, the decision of each controller.
//!
//! `cargo bench --package belayer-subject --bench paths [-- NAME]`. These are the paths whose
//! instructions `cargo xtask bench instructions` compares with their bounds; this output is for
//! reading. One step of `heartbeat` and `update` is one event from the bytes of a watch to the
//! handlers, including the wake-up of the informer and of the waiting task.
#![allow(
    clippy::expect_used,
    reason = "a path that cannot be run has no figures"
)]

use belayer_subject::paths::{Path, Walk};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use tokio::runtime;

/// Counts allocations, which the table shows for each step.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = Path::ALL)]
fn paths(bencher: Bencher<'_, '_>, path: Path) {
    // Everything runs on this thread, whose allocations are counted.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut walk = runtime.block_on(path.ready()).expect("the path is ready");
    let bencher = bencher.counter(ItemsCount::new(1_usize));
    match &mut walk {
        Walk::Step(step) => bencher.bench_local(step),
        Walk::Watch(watch) => bencher.bench_local(|| {
            let come = runtime.block_on(watch.events(1));
            come.expect("the event comes");
        }),
    }
}
