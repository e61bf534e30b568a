//! What was executed: metrics and logs here, the live demo elsewhere.

use std::sync::Arc;
use std::time::Duration;

use super::component::By;
use belayer_core::duration;
use belayer_core::object::{ObjectKey, Uid};

/// Something the runner did about an object. [`Observer::executed`] receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed<'a> {
    /// The component and rule of the decision.
    pub by: By,
    /// The object.
    pub key: &'a ObjectKey,
    /// Its identity.
    pub uid: &'a Uid,
    /// What was done.
    pub what: What<'a>,
}

/// What was done about an object. Part of [`Executed`], which an [`Observer`] receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<'a> {
    /// A hold was added.
    Held,
    /// A hold was removed.
    Released {
        /// Name of the evidence.
        evidence: &'static str,
        /// Time from when this process first had the evidence to the server's answer.
        took: Duration,
    },
    /// Finalizers of other systems, configured by the admin, were removed together with the hold.
    Adopted {
        /// The finalizers.
        finalizers: &'a [Arc<str>],
        /// Name of the evidence.
        evidence: &'static str,
    },
    /// The component's record of the object is settled.
    Recorded,
    /// The object was deleted.
    Deleted {
        /// Name of the evidence.
        evidence: &'static str,
    },
    /// The server does not allow the write: RBAC, a policy or a webhook.
    Denied {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: &'a str,
    },
    /// Nothing was sent because of `--dry-run`; this would have been.
    Pretended {
        /// Name of the evidence; `None` if a hold would have been added or a record written.
        evidence: Option<&'static str>,
    },
}

/// Receives what a runner executed and decided. Called by the workers: must not block.
///
/// ```
/// use belayer_holds::runner::{Executed, Observer};
///
/// struct Printed;
///
/// impl Observer for Printed {
///     fn executed(&self, executed: &Executed<'_>) {
///         println!("{}: rule {}: {:?}", executed.key, executed.by.row, executed.what);
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Something was done.
    fn executed(&self, executed: &Executed<'_>);

    /// A component decided about an object, also if nothing follows from it.
    fn decided(&self, _by: By) {}
}

/// Ignores everything.
impl Observer for () {
    fn executed(&self, _: &Executed<'_>) {}
}

/// The evidence label for removed finalizers of other systems, which are counted separately from Belayer's holds.
pub const ADOPTED: &str = "Adopted";

/// The label of a pod that stays held because it is unknown whether its deletion ended it.
pub const UNDECIDED: &str = "Undecided";

/// Counts a pod whose result was not read, by evidence, mode (`enforce` or `observe`) and
/// namespace. An [`Observer`] calls it.
pub fn count_unread(evidence: &'static str, mode: &'static str, pod: &ObjectKey) {
    let namespace = belayer_metrics::bound_namespace(pod.namespace().unwrap_or_default());
    metrics::counter!(
        belayer_metrics::UNREAD_PODS,
        "judgement" => evidence, "mode" => mode, "pod_namespace" => namespace
    )
    .increment(1);
}

/// Counts, logs and forwards.
pub(super) fn report(observer: &dyn Observer, executed: &Executed<'_>) {
    let Executed {
        by: By { component, row },
        key,
        uid,
        what,
    } = executed;
    match what {
        What::Held => {
            metrics::counter!(belayer_metrics::HOLDS_ADDED, "controller" => *component)
                .increment(1);
            tracing::info!(controller = component, rule = row.name, object = %key, %uid, "hold added");
        }
        What::Released { evidence, took } => {
            metrics::counter!(belayer_metrics::RELEASES, "controller" => *component, "evidence" => *evidence)
                .increment(1);
            metrics::histogram!(belayer_metrics::RELEASE_DURATION, "controller" => *component)
                .record(took.as_secs_f64());
            tracing::info!(controller = component, rule = row.name, object = %key, %uid, evidence, took = duration::format(*took), "released");
        }
        What::Adopted {
            finalizers,
            evidence,
        } => {
            metrics::counter!(belayer_metrics::RELEASES, "controller" => *component, "evidence" => ADOPTED)
                .increment(finalizers.len() as u64);
            tracing::info!(controller = component, rule = row.name, object = %key, %uid, evidence, finalizers = finalizers.join(","), "removed finalizers of other controllers, as configured");
        }
        What::Recorded => {
            tracing::debug!(controller = component, rule = row.name, object = %key, %uid, "record settled");
        }
        What::Deleted { evidence } => {
            metrics::counter!(belayer_metrics::CLEANUPS, "controller" => *component).increment(1);
            tracing::info!(controller = component, rule = row.name, object = %key, %uid, evidence, "deleted");
        }
        What::Denied { code, message } => {
            metrics::counter!(belayer_metrics::RELEASE_DENIED, "controller" => *component, "code" => belayer_metrics::bound_code(Some(*code)))
                .increment(1);
            tracing::warn!(controller = component, rule = row.name, object = %key, %uid, code, message, "the API server rejected the write");
        }
        What::Pretended { evidence } => {
            tracing::info!(controller = component, rule = row.name, object = %key, %uid, evidence, "dry run: not sent");
        }
    }
    observer.executed(executed);
}
