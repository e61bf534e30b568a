//! Removes the holds of controllers that are switched off, unless `--on-disable=keep`.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use belayer_controller::Configured;
use belayer_core::executor::{Executor, Writes};
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::passes::Outcome;
use belayer_drain::progress::Silent;
use belayer_drain::report::Report;
use belayer_drain::run::{Drain, DrainParts, Kinds};
use belayer_drain::selection::NoSelection;
use belayer_inspect::reader::Reader;

use super::{PVC_CONTROLLER, kept_for_kubernetes, replaces_kubernetes};

/// Time limit of one attempt.
const WITHIN: Duration = Duration::from_secs(600);

/// Delay of the next attempt if a hold must stay for now (a PVC in use).
const LEFT_AGAIN: Duration = Duration::from_secs(300);

/// Delay of the next attempt if no hold is left: the policy of the controller may be on until the gate can be written, and
/// whoever may write an object can add the finalizer to it. It doubles each time, because an attempt lists all objects of
/// the kind. It ends earlier if an informer sees an object that waits for this attempt.
const CLEAN_AGAIN: Duration = Duration::from_secs(30);

/// The longest of these delays.
const CLEAN_AGAIN_AT_MOST: Duration = Duration::from_secs(6 * 60 * 60);

/// The longest of these delays if no informer sees the objects of a kind.
const UNWATCHED_AGAIN_AT_MOST: Duration = Duration::from_secs(600);

/// A delay is at least so many times as long as the attempt before it: a tenant that adds the finalizer again and again
/// has Belayer list objects for at most a tenth of the time.
const REST: u32 = 10;

/// Delay of the next attempt after an error.
const ERROR_AGAIN: Duration = Duration::from_secs(30);

/// Delay of the next attempt after a denial: an admin must grant a permission.
const REFUSED_AGAIN: Duration = Duration::from_secs(600);

/// What happens to the holds of a controller that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnDisable {
    /// Remove their finalizers
    #[default]
    Drain,
    /// Keep their finalizers, for another Belayer that runs the controller, or for
    /// later
    Keep,
}

/// A controller that is switched off.
pub(crate) struct SwitchedOff {
    pub(crate) configured: Arc<dyn Configured>,
    /// Notified when an informer sees an object that is being deleted and has the controller's finalizer.
    pub(crate) deleting: Arc<Notify>,
    /// Whether all kinds with the finalizer have such an informer.
    pub(crate) is_watched: bool,
}

/// Removes the holds of controllers that are switched off, until `stop` is cancelled.
pub(crate) async fn release_switched_off(
    off: Vec<SwitchedOff>,
    executor: Arc<Executor>,
    reader: Reader,
    namespace: String,
    stop: CancellationToken,
) {
    let each = off.into_iter().map(|off| {
        let configured = &off.configured;
        let kinds = configured.holds().into_iter().map(|hold| hold.kind);
        // Not the finalizer of Kubernetes, which the controller may have used: that one is handed over.
        let finalizers = vec![configured.controller().finalizer];
        let drain = Drain::new(DrainParts {
            executor: Arc::clone(&executor),
            reader: reader.clone(),
            namespace: namespace.clone(),
            purpose: Purpose::SwitchedOff(Order::of_the_admin(), finalizers),
            kinds: Kinds::These(kinds.collect()),
            selection: Box::new(NoSelection),
            timeout: WITHIN,
            except_namespaces: Vec::new(),
        });
        let dry = executor.writes() == Writes::DryRun;
        // One that adds none may run, and only report.
        let state = if configured.adds_holds() {
            "controller is switched off"
        } else {
            "controller adds no finalizers"
        };
        async move { one(&off, state, &drain, dry).await }
    });
    let all = futures::future::join_all(each);
    stop.run_until_cancelled(all).await;
}

async fn one(off: &SwitchedOff, state: &'static str, drain: &Drain, dry: bool) {
    let controller = off.configured.controller().name;
    let at_most = if off.is_watched {
        CLEAN_AGAIN_AT_MOST
    } else {
        UNWATCHED_AGAIN_AT_MOST
    };
    let hands_over = replaces_kubernetes(&*off.configured);
    let mut is_warned = false;
    let mut clean_again = Duration::ZERO;
    loop {
        let begun = Instant::now();
        // This attempt lists what was seen before it.
        let _ = off.deleting.notified().now_or_never();
        // It runs without discovery, so it fails only in its report.
        let report = match drain.run(&Silent).await {
            Ok(report) => report,
            Err(error) => {
                tracing::info!(controller, %error, "{state}, but its finalizers could not be read; retrying");
                sleep(ERROR_AGAIN).await;
                continue;
            }
        };
        count(controller, &report);
        let (released, left) = (report.taken.objects, report.left.len());
        if hands_over && !is_warned {
            is_warned = true;
            tracing::warn!(
                controller,
                "{state}, and {}: without {PVC_CONTROLLER}, every deleted PVC stays in Terminating",
                kept_for_kubernetes(&report)
            );
        }
        let pause = match report.outcome {
            Outcome::Clean => {
                if released > 0 || clean_again.is_zero() {
                    tracing::info!(
                        controller,
                        released,
                        "{state}, and no object has its finalizer {} any more",
                        off.configured.controller().finalizer
                    );
                    clean_again = CLEAN_AGAIN;
                } else {
                    clean_again = (clean_again * 2).min(at_most);
                }
                clean_again
            }
            Outcome::LeftOver => {
                tracing::warn!(
                    controller,
                    released,
                    left,
                    what = %report.left.first().map_or_else(String::new, |left| {
                        format!("{} {}/{}: {}", left.resource, left.namespace, left.name, left.why)
                    }),
                    "{state}, but some of its finalizers must stay: a PVC in use that nothing else protects keeps its \
                     finalizer, and a pod that exists only in its PodRecreation is created once pod-recreation is on again"
                );
                LEFT_AGAIN
            }
            Outcome::NewHolds => {
                let namespaces = report.new_holds.namespaces.keys();
                let namespaces = namespaces.map(String::as_str).collect::<Vec<_>>();
                tracing::warn!(
                    controller,
                    released,
                    namespaces = namespaces.join(", "),
                    "{state}, but another client keeps adding its finalizer in these namespaces"
                );
                LEFT_AGAIN
            }
            // Not even a permission is known to be missing, and new credentials may be read at any time.
            Outcome::Refused if report.unseen.iter().any(|unseen| unseen.unauthenticated) => {
                tracing::warn!(
                    controller,
                    "could not look for remaining finalizers of the controller: the API server does not accept \
                     Belayer's credentials; trying again"
                );
                ERROR_AGAIN
            }
            Outcome::Refused => {
                let why = report.refused.iter().map(|refused| &refused.why);
                let why = why
                    .chain(report.unseen.iter().map(|unseen| &unseen.why))
                    .next();
                tracing::warn!(
                    controller,
                    why,
                    "{state}, but Belayer may not remove its remaining finalizers: keep its RBAC \
                     permissions until they are gone, or run `belayer drain`"
                );
                REFUSED_AGAIN
            }
            Outcome::Error => {
                let why = report.failed.iter().map(|failed| &failed.why);
                let unseen = report.unseen.iter().map(|unseen| &unseen.why);
                let why = why.chain(unseen).chain(&report.notes).next();
                tracing::info!(
                    controller,
                    released,
                    why,
                    "{state}, but some of its finalizers could not be read or removed; retrying"
                );
                ERROR_AGAIN
            }
        };
        if dry {
            return;
        }
        let rest = begun.elapsed() * REST;
        if report.outcome == Outcome::Clean {
            let seen = async {
                sleep(rest.max(CLEAN_AGAIN)).await;
                off.deleting.notified().await;
            };
            let _ = timeout(rest.max(pause), seen).await;
        } else {
            sleep(pause).await;
        }
    }
}

/// Counts the releases in the metrics of all releases.
fn count(controller: &'static str, report: &Report) {
    if report.taken.dry_run {
        return;
    }
    for (evidence, number) in report.taken.holds.values().flatten() {
        metrics::counter!(
            belayer_metrics::RELEASES,
            "controller" => controller,
            "evidence" => *evidence
        )
        .increment(*number);
    }
}
