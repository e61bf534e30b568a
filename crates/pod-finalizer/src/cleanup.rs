//! When a released pod is deleted, by the annotation that Argo Workflows adds to it.
//!
//! Argo's own deletion depends on its controller, and misses pods whose workflow is gone. There a late delete request
//! once deleted a re-created pod of the same name (argo-workflows#8022); Belayer's requests always name the UID.

use std::time::Duration;

/// Annotation: when to delete the pod, as `STRATEGY/DELAY`.
pub(crate) const POD_GC_STRATEGY: &str = "workflows.argoproj.io/pod-gc-strategy";

/// Argo's default delay, for an annotation with a negative one. Argo from 3.6.5 on writes the delay of its controller instead.
pub(crate) const DEFAULT_DELAY: Duration = Duration::from_secs(5);

/// When a pod is to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodGc {
    /// The condition.
    pub strategy: Strategy,
    /// The delay after the condition is met.
    pub delay: Duration,
}

/// The condition on which a pod is deleted. In every case the pod must have ended.
#[allow(clippy::enum_variant_names, reason = "Argo's own names")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The pod has ended.
    OnPodCompletion,
    /// The pod has succeeded.
    OnPodSuccess,
    /// Its workflow has ended.
    OnWorkflowCompletion,
    /// Its workflow has succeeded.
    OnWorkflowSuccess,
}

/// How a pod's workflow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowEnd {
    /// Its state is unknown.
    Unknown,
    /// It runs.
    NotYet,
    /// It has ended without success.
    Completed,
    /// It has succeeded.
    Succeeded,
    /// It is gone, or the pod was orphaned: how it ended stays unknown.
    Gone,
}

/// How a pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodEnd {
    /// It has not ended.
    NotYet,
    /// It has ended without success.
    Failed,
    /// It has succeeded.
    Succeeded,
}

impl PodGc {
    /// Parses the annotation; `None` if it requires no deletion or is invalid.
    pub fn parse(annotation: &str) -> Option<Self> {
        let (strategy, delay) = annotation.split_once('/')?;
        let strategy = match strategy {
            "OnPodCompletion" => Strategy::OnPodCompletion,
            "OnPodSuccess" => Strategy::OnPodSuccess,
            "OnWorkflowCompletion" => Strategy::OnWorkflowCompletion,
            "OnWorkflowSuccess" => Strategy::OnWorkflowSuccess,
            _ => return None,
        };
        let delay = match delay.strip_prefix('-') {
            Some(rest) => go_duration(rest).map(|_| DEFAULT_DELAY)?,
            None => go_duration(delay)?,
        };
        Some(Self { strategy, delay })
    }

    /// Whether the condition is met, regardless of the delay. If the workflow is gone, the result of the pod itself
    /// decides.
    pub fn is_due(self, pod: PodEnd, workflow: WorkflowEnd) -> bool {
        if pod == PodEnd::NotYet {
            return false;
        }
        match self.strategy {
            Strategy::OnPodCompletion => true,
            Strategy::OnPodSuccess => pod == PodEnd::Succeeded,
            Strategy::OnWorkflowCompletion => {
                !matches!(workflow, WorkflowEnd::Unknown | WorkflowEnd::NotYet)
            }
            Strategy::OnWorkflowSuccess => match workflow {
                WorkflowEnd::Succeeded => true,
                WorkflowEnd::Gone => pod == PodEnd::Succeeded,
                WorkflowEnd::Unknown | WorkflowEnd::NotYet | WorkflowEnd::Completed => false,
            },
        }
    }
}

/// A duration as Go prints it: `1m30s`, `1.5s`, `100ms`, `0s`, without a sign.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * unit;
        rest = tail;
    }
    if text.is_empty() {
        return None;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[rstest]
    #[case("OnPodCompletion/5s", Some((Strategy::OnPodCompletion, SECOND * 5)))]
    #[case("OnPodSuccess/1m30s", Some((Strategy::OnPodSuccess, SECOND * 90)))]
    #[case("OnWorkflowCompletion/1.5s", Some((Strategy::OnWorkflowCompletion, Duration::from_millis(1500))))]
    #[case("OnWorkflowSuccess/0s", Some((Strategy::OnWorkflowSuccess, Duration::ZERO)))]
    #[case::no_delay_named("OnPodCompletion/-1ns", Some((Strategy::OnPodCompletion, DEFAULT_DELAY)))]
    #[case::hours("OnPodCompletion/2h0m0s", Some((Strategy::OnPodCompletion, SECOND * 7200)))]
    #[case::empty("", None)]
    #[case::no_strategy("/-1ns", None)]
    #[case::no_slash("OnPodCompletion", None)]
    #[case::an_empty_delay("OnPodCompletion/", None)]
    #[case::an_unknown_strategy("OnTuesday/5s", None)]
    #[case::no_duration("OnPodCompletion/soon", None)]
    #[case::no_unit("OnPodCompletion/5", None)]
    #[case::too_many_slashes("OnPodCompletion/5s/x", None)]
    #[case::endless("OnPodCompletion/99999999999999999999999999999h", None)]
    fn all_forms_of_the_annotation(
        #[case] annotation: &str,
        #[case] expected: Option<(Strategy, Duration)>,
    ) {
        let gc = PodGc::parse(annotation).map(|gc| (gc.strategy, gc.delay));
        assert_eq!(gc, expected);
    }

    #[rstest]
    #[case(
        Strategy::OnPodCompletion,
        PodEnd::NotYet,
        WorkflowEnd::Succeeded,
        false
    )]
    #[case(Strategy::OnPodCompletion, PodEnd::Failed, WorkflowEnd::NotYet, true)]
    #[case(Strategy::OnPodSuccess, PodEnd::Failed, WorkflowEnd::NotYet, false)]
    #[case(Strategy::OnPodSuccess, PodEnd::Succeeded, WorkflowEnd::NotYet, true)]
    #[case(
        Strategy::OnWorkflowCompletion,
        PodEnd::Failed,
        WorkflowEnd::NotYet,
        false
    )]
    #[case(
        Strategy::OnWorkflowCompletion,
        PodEnd::Failed,
        WorkflowEnd::Completed,
        true
    )]
    #[case(
        Strategy::OnWorkflowCompletion,
        PodEnd::NotYet,
        WorkflowEnd::Completed,
        false
    )]
    #[case(
        Strategy::OnWorkflowSuccess,
        PodEnd::Failed,
        WorkflowEnd::Completed,
        false
    )]
    #[case(
        Strategy::OnWorkflowSuccess,
        PodEnd::Failed,
        WorkflowEnd::Succeeded,
        true
    )]
    #[case::an_orphan(
        Strategy::OnWorkflowCompletion,
        PodEnd::Failed,
        WorkflowEnd::Gone,
        true
    )]
    #[case::a_failed_orphan(Strategy::OnWorkflowSuccess, PodEnd::Failed, WorkflowEnd::Gone, false)]
    #[case::a_good_orphan(
        Strategy::OnWorkflowSuccess,
        PodEnd::Succeeded,
        WorkflowEnd::Gone,
        true
    )]
    fn strategies(
        #[case] strategy: Strategy,
        #[case] pod: PodEnd,
        #[case] workflow: WorkflowEnd,
        #[case] due: bool,
    ) {
        let gc = PodGc {
            strategy,
            delay: Duration::ZERO,
        };
        assert_eq!(gc.is_due(pod, workflow), due);
    }
}
