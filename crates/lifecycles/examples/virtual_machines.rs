//! A host that runs virtual machines, with a line of output per step: `cargo run --package
//! belayer-lifecycles --example virtual_machines`. No Kubernetes is involved.
//!
//! It shows the difficult cases: a boot that has to be cancelled, a machine that is created again
//! with its old name, a machine that fails to stop, a missed deletion.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::Backoff;
use belayer_lifecycles::{Deadline, End, Identity, Lifecycle, Lifecycles, Options, Pass, Synced};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const TICK: Duration = Duration::from_millis(100);

/// Boots a machine in three ticks and stops it in one, if the hypervisor accepts.
struct Machines {
    began: Instant,
    /// How often stopping will fail.
    refusals: AtomicU32,
}

impl Machines {
    fn print(&self, what: fmt::Arguments<'_>) {
        println!("{:>5} ms  {what}", self.began.elapsed().as_millis());
    }
}

impl Lifecycle for Machines {
    /// The image of a machine.
    type Snapshot = &'static str;
    type Error = io::Error;

    async fn sync(
        &self,
        machine: &Identity,
        image: &&'static str,
        cancel: &CancellationToken,
    ) -> io::Result<Synced> {
        self.print(format_args!("{machine}  boots {image}"));
        if cancel.run_until_cancelled(sleep(TICK * 3)).await.is_none() {
            self.print(format_args!("{machine}  cancels the boot"));
            return Ok(Synced::Settled);
        }
        self.print(format_args!("{machine}  runs"));
        Ok(Synced::Settled)
    }

    async fn terminate(
        &self,
        machine: &Identity,
        _: &&'static str,
        deadline: Deadline,
        _: &CancellationToken,
    ) -> io::Result<()> {
        let limit = match deadline.remaining() {
            Some(left) => format!("within {} ms", left.as_millis()),
            None => "without a deadline".to_owned(),
        };
        self.print(format_args!("{machine}  stops, {limit}"));
        sleep(TICK).await;
        let refusals = self
            .refusals
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        match refusals {
            Ok(_) => Err(io::Error::from(io::ErrorKind::ResourceBusy)),
            Err(_) => Ok(()),
        }
    }

    async fn terminated(
        &self,
        machine: &Identity,
        _: &&'static str,
        _: &CancellationToken,
    ) -> io::Result<()> {
        self.print(format_args!("{machine}  is stopped; removing its disk"));
        Ok(())
    }

    fn backoff(&self, error: &io::Error) -> Backoff {
        println!("          ({error}: retrying)");
        Backoff::new(TICK, TICK * 4).at_least(TICK)
    }

    fn finished(&self, machine: &Identity, end: End) {
        self.print(format_args!("{machine}  is finished: {end:?}"));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let machines = Machines {
        began: Instant::now(),
        refusals: AtomicU32::new(2),
    };
    let machines = Lifecycles::new(machines, Options::new("machines"));
    let database = |uid: &str| Identity::new(ObjectKey::new("tenant-a", "database"), Uid::new(uid));

    println!("# A machine is created and deleted while it boots, then created twice again.");
    println!("# Its successors wait until it is stopped.");
    machines.created(&database("u-1"), "image 1");
    sleep(TICK).await;
    machines.deleted(&database("u-1"));
    machines.created(&database("u-2"), "image 2");
    machines.deleted(&database("u-2"));
    machines.created(&database("u-3"), "image 3");
    machines.finished(&database("u-1")).await;
    machines.settled().await;

    println!(
        "\n# Its deletion is missed. The next comparison with the whole store does not find it."
    );
    machines.reconcile(Pass::begin());
    machines.settled().await;

    println!(
        "\n# A machine has a minute to stop, then only a second. Later updates change nothing."
    );
    machines.terminating(&database("u-4"), "image 4", Deadline::within(TICK * 600));
    machines.kill(&database("u-4"), Deadline::within(TICK * 10));
    machines.finished(&database("u-4")).await;
    machines.updated(&database("u-4"), "image 5");
    machines.settled().await;
    for (key, view) in machines.all() {
        println!("          kept: {key} ({}) {:?}", view.uid, view.phase);
    }
    machines.deleted(&database("u-4"));
    println!(
        "          kept after its deletion: {}",
        machines.all().len()
    );
    machines.shutdown().await;
}
