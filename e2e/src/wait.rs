//! Waits for a condition, with a deadline; errors contain the last state.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

/// Timeout of anything that takes a few requests, a start of replicas or a change of the leader, on a machine so busy that all
/// takes ten times as long.
pub const SOON: Duration = Duration::from_secs(120);

const FIRST_POLL: Duration = Duration::from_millis(20);
const SLOWEST_POLL: Duration = Duration::from_millis(400);

/// Calls `check` until it succeeds. An error of `check` means "not yet" and describes the state.
/// The error contains `what` and the last error.
pub async fn eventually<T, F>(what: &str, deadline: Duration, look: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut pause = FIRST_POLL;
    let mut last = None;
    loop {
        // A check that hangs must not exceed the deadline either.
        let left = deadline.saturating_sub(started.elapsed()).max(FIRST_POLL);
        let seen = match tokio::time::timeout(left, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => seen,
            // It may have been begun shortly before the deadline: the state is what the check before it saw.
            Err(_) => last.unwrap_or_else(|| anyhow!("the check did not return")),
        };
        if started.elapsed() + pause > deadline {
            bail!("not within {deadline:?}: {what}; last seen: {seen:#}");
        }
        last = Some(seen);
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(SLOWEST_POLL);
    }
}

/// Calls `check` repeatedly during the whole `window`; every call must succeed.
/// The error contains `what` and the time since the start.
pub async fn throughout<F>(what: &str, window: Duration, look: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let started = Instant::now();
    loop {
        let elapsed = started.elapsed();
        if let Err(seen) = look().await {
            bail!("{what}: expected for {window:?}, failed after {elapsed:?}: {seen:#}");
        }
        if elapsed >= window {
            return Ok(());
        }
        tokio::time::sleep(SLOWEST_POLL.min(window / 10)).await;
    }
}

/// Repeats a request while the API server is overloaded or cannot be reached, for at most three minutes.
pub(crate) async fn answered<T, F>(request: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    const LIMIT: Duration = Duration::from_secs(180);
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match request().await {
            Err(error) if is_temporary(&error) && started.elapsed() < LIMIT => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn is_temporary(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            // In a new namespace until the ServiceAccount `default` exists.
            status.message.contains("error looking up service account")
        }
        // Another client has changed the object meanwhile.
        kube::Error::Api(status) if status.code == 409 => {
            status.message.contains("the object has been modified")
        }
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Turns a 404 into success.
pub(crate) fn gone(error: kube::Error) -> Result<(), kube::Error> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_condition_that_becomes_true_ends_the_wait() {
        let looks = Cell::new(0);
        let value = eventually("third check", Duration::from_secs(10), async || {
            looks.set(looks.get() + 1);
            if looks.get() < 3 {
                bail!("check {}", looks.get());
            }
            Ok(looks.get())
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_deadline_error_contains_the_last_state() {
        let never: Result<()> =
            eventually("rain", Duration::from_millis(30), async || bail!("sun")).await;
        let reported = never.unwrap_err().to_string();
        assert!(
            reported.contains("rain") && reported.ends_with("last seen: sun"),
            "{reported}"
        );
    }

    #[tokio::test]
    async fn a_check_that_hangs_does_not_exceed_the_deadline() {
        let never: Result<()> = eventually("anything", Duration::from_millis(30), async || {
            std::future::pending().await
        })
        .await;
        assert!(never.unwrap_err().to_string().contains("did not return"));
    }

    #[tokio::test]
    async fn a_check_that_the_deadline_interrupts_hides_no_state() {
        let looks = Cell::new(0);
        let never: Result<()> = eventually("rain", Duration::from_millis(100), async || {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                std::future::pending::<()>().await;
            }
            bail!("sun")
        })
        .await;
        assert!(never.unwrap_err().to_string().ends_with("last seen: sun"));
    }

    #[tokio::test]
    async fn one_failed_check_ends_a_window() {
        let looks = Cell::new(0);
        let broken = throughout("quiet", Duration::from_secs(10), async || {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                bail!("a write");
            }
            Ok(())
        });
        assert!(broken.await.unwrap_err().to_string().ends_with("a write"));
    }
}
