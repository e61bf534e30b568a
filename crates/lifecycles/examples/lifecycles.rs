//! An agent that keeps a session open for every pod, with a line of output per step: `cargo run
//! --package belayer-lifecycles --example lifecycles`.
//!
//! It shows the difficult cases: an opening that has to be cancelled, a pod that is created again
//! with its old name, a session that fails to close, a missed deletion.

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

/// Opens sessions in three ticks and closes them in one, if the server accepts.
struct Sessions {
    began: Instant,
    /// How often closing will fail.
    refusals: AtomicU32,
}

impl Sessions {
    fn print(&self, what: fmt::Arguments<'_>) {
        println!("{:>5} ms  {what}", self.began.elapsed().as_millis());
    }
}

impl Lifecycle for Sessions {
    /// The address of a pod's session.
    type Snapshot = &'static str;
    type Error = io::Error;

    async fn sync(
        &self,
        pod: &Identity,
        address: &&'static str,
        cancel: &CancellationToken,
    ) -> io::Result<Synced> {
        self.print(format_args!("{pod}  opens a session to {address}"));
        if cancel.run_until_cancelled(sleep(TICK * 3)).await.is_none() {
            self.print(format_args!("{pod}  cancels the opening"));
            return Ok(Synced::Settled);
        }
        self.print(format_args!("{pod}  is in session"));
        Ok(Synced::Settled)
    }

    async fn terminate(
        &self,
        pod: &Identity,
        _: &&'static str,
        deadline: Deadline,
        _: &CancellationToken,
    ) -> io::Result<()> {
        let limit = match deadline.remaining() {
            Some(left) => format!("within {} ms", left.as_millis()),
            None => "without a deadline".to_owned(),
        };
        self.print(format_args!("{pod}  closes its session, {limit}"));
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
        pod: &Identity,
        _: &&'static str,
        _: &CancellationToken,
    ) -> io::Result<()> {
        self.print(format_args!("{pod}  has no session; removing its files"));
        Ok(())
    }

    fn backoff(&self, error: &io::Error) -> Backoff {
        println!("          ({error}: retrying)");
        Backoff::new(TICK, TICK * 4).at_least(TICK)
    }

    fn finished(&self, pod: &Identity, end: End) {
        self.print(format_args!("{pod}  is finished: {end:?}"));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = Sessions {
        began: Instant::now(),
        refusals: AtomicU32::new(2),
    };
    let sessions = Lifecycles::new(sessions, Options::new("sessions"));
    let web = |uid: &str| Identity::new(ObjectKey::new("shop", "web-0"), Uid::new(uid));

    println!(
        "# A pod is created and deleted while its session is being opened, then created twice again."
    );
    println!("# Its successors wait until its own session is closed.");
    sessions.created(&web("u-1"), "10.0.0.1");
    sleep(TICK).await;
    sessions.deleted(&web("u-1"));
    sessions.created(&web("u-2"), "10.0.0.2");
    sessions.deleted(&web("u-2"));
    sessions.created(&web("u-3"), "10.0.0.3");
    sessions.finished(&web("u-1")).await;
    sessions.settled().await;

    println!(
        "\n# Its deletion is missed. The next comparison with the whole store does not find it."
    );
    sessions.reconcile(Pass::begin());
    sessions.settled().await;

    println!("\n# A pod has a minute to end, then only a second. Later updates change nothing.");
    sessions.terminating(&web("u-4"), "10.0.0.4", Deadline::within(TICK * 600));
    sessions.kill(&web("u-4"), Deadline::within(TICK * 10));
    sessions.finished(&web("u-4")).await;
    sessions.updated(&web("u-4"), "10.0.0.5");
    sessions.settled().await;
    for (key, view) in sessions.all() {
        println!("          kept: {key} ({}) {:?}", view.uid, view.phase);
    }
    sessions.deleted(&web("u-4"));
    println!(
        "          kept after its deletion: {}",
        sessions.all().len()
    );
    sessions.shutdown().await;
}
