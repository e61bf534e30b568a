//! An agent that keeps a session open for every pod, told as it happens:
//! `cargo run --package belayer-core --example lifecycles`.
//!
//! It shows what is hard to get right by hand: an opening that has to be given up, a pod that comes
//! back under its old name, a session that will not close, a deletion that nobody saw.

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

/// Opens sessions in three ticks and closes them in one, if the other side lets go.
struct Sessions {
    began: Instant,
    /// How often closing will fail.
    stubborn: AtomicU32,
}

impl Sessions {
    fn say(&self, what: fmt::Arguments<'_>) {
        println!("{:>5} ms  {what}", self.began.elapsed().as_millis());
    }
}

impl Lifecycle for Sessions {
    /// The address that a pod's session goes to.
    type Snapshot = &'static str;
    type Error = io::Error;

    async fn sync(
        &self,
        pod: &Identity,
        address: &&'static str,
        cancel: &CancellationToken,
    ) -> io::Result<Synced> {
        self.say(format_args!("{pod}  opens a session to {address}"));
        if cancel.run_until_cancelled(sleep(TICK * 3)).await.is_none() {
            self.say(format_args!("{pod}  gives the opening up"));
            return Ok(Synced::Settled);
        }
        self.say(format_args!("{pod}  is in session"));
        Ok(Synced::Settled)
    }

    async fn terminate(
        &self,
        pod: &Identity,
        _: &&'static str,
        deadline: Deadline,
        _: &CancellationToken,
    ) -> io::Result<()> {
        let patience = match deadline.remaining() {
            Some(left) => format!("within {} ms", left.as_millis()),
            None => "taking its time".to_owned(),
        };
        self.say(format_args!("{pod}  closes its session, {patience}"));
        sleep(TICK).await;
        let stubborn = self
            .stubborn
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        match stubborn {
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
        self.say(format_args!("{pod}  has no session; its files go"));
        Ok(())
    }

    fn backoff(&self, error: &io::Error) -> Backoff {
        println!("          ({error}: tried again)");
        Backoff::new(TICK, TICK * 4).at_least(TICK)
    }

    fn finished(&self, pod: &Identity, end: End) {
        self.say(format_args!("{pod}  is finished: {end:?}"));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = Sessions {
        began: Instant::now(),
        stubborn: AtomicU32::new(2),
    };
    let sessions = Lifecycles::new(sessions, Options::new("sessions"));
    let web = |uid: &str| Identity::new(ObjectKey::new("shop", "web-0"), Uid::new(uid));

    println!(
        "# A pod comes and goes while its session is still being opened, and comes back twice."
    );
    println!("# Nothing is done for its successors until its own session is closed.");
    sessions.created(&web("u-1"), "10.0.0.1");
    sleep(TICK).await;
    sessions.deleted(&web("u-1"));
    sessions.created(&web("u-2"), "10.0.0.2");
    sessions.deleted(&web("u-2"));
    sessions.created(&web("u-3"), "10.0.0.3");
    sessions.finished(&web("u-1")).await;
    sessions.settled().await;

    println!(
        "\n# It is deleted and nobody sees it. The next look at the whole store does not find it."
    );
    sessions.reconcile(Pass::begin());
    sessions.settled().await;

    println!(
        "\n# A pod has a minute to end, then only a second. What comes later changes nothing."
    );
    sessions.terminating(&web("u-4"), "10.0.0.4", Deadline::within(TICK * 600));
    sessions.kill(&web("u-4"), Deadline::within(TICK * 10));
    sessions.finished(&web("u-4")).await;
    sessions.updated(&web("u-4"), "10.0.0.5");
    sessions.settled().await;
    for (key, view) in sessions.all() {
        println!(
            "          remembered: {key} ({}) {:?}",
            view.uid, view.phase
        );
    }
    sessions.deleted(&web("u-4"));
    println!(
        "          remembered after its deletion: {}",
        sessions.all().len()
    );
    sessions.shutdown().await;
}
