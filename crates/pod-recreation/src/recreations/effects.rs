//! Executes the steps.

use std::sync::Arc;

use belayer_core::clock;
use belayer_core::events::Regarding;
use belayer_core::executor::{Sent, Writes};
use belayer_core::http::RequestError;
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::workqueue::{Backoff, Priority};
use belayer_holds::decision::Notice;
use belayer_holds::names::IGNORE_LABEL;
use belayer_holds::runner::{Component as _, Stepped};
use serde_json::{Value, json};

use super::requests::{CreateMode, is_denied, is_namespace_terminating, looked_up};
use super::wipe::Requested;
use super::{Execution, SOON};
use crate::api::{KIND, Phase, Policy, Spec, Wipe};
use crate::component::pod_key;
use crate::decide::{
    Effect, Precondition, RECHECK, StatusWrite, is_of_record, is_undecided, name_taken_step,
};
use crate::rate_limit::Opened;
use crate::reason;
use crate::record::Record;
use crate::replacement_pod::{
    Chain, dry_run_pod, has_resources_of, is_bound_by_user, is_creator_known, owner_references,
    pod_to_create, with_listed_defaults,
};
use crate::snapshot::{ObservedPod, PodView};
use crate::transitions::{State, is_declared};

impl Execution<'_> {
    /// Executes one step. If the API server denies it, that is reported.
    pub(super) async fn execute(self, effect: Effect) -> Result<Stepped, RequestError> {
        let is_dry_run = self.context.executor.writes() == Writes::DryRun;
        match self.requests(effect).await {
            Err(error) if is_denied(&error) && !is_namespace_terminating(&error) => {
                let what = self.what;
                tracing::warn!(record = %self.context.key, %error, "the API server denies {what}; Belayer tries again");
                let message = format!("the API server denies {what}; Belayer tries again: {error}");
                let notice = Notice::warning("RecreationDenied", message);
                self.record_event(&notice);
                Ok(Stepped::Retry(Backoff::DENIED))
            }
            // No cache shows a change that was not made.
            Ok(Stepped::Later(after)) if is_dry_run => Ok(Stepped::Later(after.max(RECHECK))),
            stepped => stepped,
        }
    }

    async fn requests(&self, effect: Effect) -> Result<Stepped, RequestError> {
        match (effect, self.snapshot.record.as_deref()) {
            (Effect::CreateRecord { pod, wipe }, _) => self.create_record(&pod, wipe).await,
            (Effect::AnnotatePod { pod, text }, record) => {
                match record.map(pod_key).or_else(|| self.candidate()) {
                    Some(key) => self.annotate(&key, &pod, &text).await,
                    None => Ok(Stepped::Done),
                }
            }
            (_, None) => Ok(Stepped::Done),
            (Effect::Status(step), Some(record)) => self.status(record, &step).await,
            (Effect::Intend { pod, step }, Some(record)) => self.intend(record, &pod, &step).await,
            (Effect::Reserve { step, node }, Some(record)) => {
                self.reserve(record, &step, node.as_deref()).await
            }
            (Effect::DeletePod { pod }, Some(record)) => self.remove(record, &pod).await,
            (Effect::CreatePod { attempt }, Some(record)) => self.create_pod(record, attempt).await,
            (Effect::ReadNode { node, step }, Some(record)) => {
                self.read_node(record, &node, &step).await
            }
            (Effect::RequestWipe { node, pod }, Some(record)) => {
                let requested = self.request_wipe(record, &node, &pod).await;
                if restarts_wait(&requested) {
                    let component = &self.it.parts.component;
                    component.restart_wait(&record.meta.uid);
                }
                requested.map(Stepped::from)
            }
            (Effect::DeleteRecord, Some(record)) => self.delete_record(record).await,
        }
    }

    /// Step 1. The record is built from the live pod, which must still match the cached one.
    async fn create_record(&self, pod: &Uid, wipe: Wipe) -> Result<Stepped, RequestError> {
        let key = self.context.key;
        let Some(pod_key) = self.candidate() else {
            return Ok(Stepped::Done);
        };
        self.read_clock().await?;
        let Some((live, view)) = self.read_pod(&pod_key).await? else {
            return Ok(Stepped::Done);
        };
        if view.uid != *pod || !view.is_candidate() {
            // By the clock of the node it may have run: then its hold is released and that is reported.
            let pods = &self.it.parts.component.parts.pods_queue;
            pods.add(pod_key, Priority::Normal);
            return Ok(Stepped::Later(SOON));
        }
        let policy = Policy {
            wipe,
            ..self.it.parts.component.settings().policy
        };
        let spec = Spec {
            pod_name: pod_key.name().to_owned(),
            first_uid: pod.to_string(),
            policy,
            pod: self.pod_to_record(&live, &pod_key, pod).await?,
        };
        let records = &self.it.records;
        let object = json!({
            "apiVersion": records.api_version(),
            "kind": KIND,
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                // So that the record is deleted with the owners.
                "ownerReferences": owner_references(&live),
            },
            "spec": spec,
        });
        let created = self
            .create(records, key, &object, CreateMode::Persisted)
            .await;
        let regarding = || Regarding {
            resource: self.it.pods.clone(),
            key: pod_key.clone(),
            uid: pod.clone(),
        };
        match looked_up(created, (records, key)) {
            Ok(Some(_)) => {
                for notice in first_notices(&live, policy.avoid_rejected_node) {
                    self.it.parts.events.record(&regarding(), &notice);
                }
                Ok(Stepped::Done)
            }
            // The response to an earlier try was lost: the record exists, or will appear in the cache.
            Ok(None) => Ok(Stepped::Later(SOON)),
            Err(error) if is_namespace_terminating(&error) => Err(error),
            Err(error) if is_denied(&error) => {
                tracing::warn!(pod = %pod_key, %error, "could not record a rejected pod; Belayer tries again");
                let notice = Notice::warning(
                    "RecreationDenied",
                    format!(
                        "not re-created yet, because its record could not be written; Belayer tries again: {error}"
                    ),
                );
                self.it.parts.events.record(&regarding(), &notice);
                Ok(Stepped::Retry(Backoff::DENIED))
            }
            Err(error) => Err(error),
        }
    }

    /// The pod to create, for its record. Its list of a LimitRange's defaults may come from a manifest that was copied from
    /// another pod. Then they are its user's, and admission does not add them again, which a dry run shows.
    async fn pod_to_record(
        &self,
        live: &Value,
        key: &ObjectKey,
        uid: &Uid,
    ) -> Result<Value, RequestError> {
        let pod = pod_to_create(live, &self.it.parts.component.settings().carry);
        let Some(whole) = with_listed_defaults(&pod, live) else {
            return Ok(pod);
        };
        let chain = Chain {
            namespace: key.namespace().unwrap_or_default(),
            pod_name: key.name(),
            record: self.context.key.name(),
            record_uid: uid.as_str(),
            attempt: 0,
            avoid_nodes: &[],
        };
        let object = dry_run_pod(&pod, chain);
        let pods = &self.it.pods;
        match self.create(pods, key, &object, CreateMode::DryRun).await {
            Ok(Sent::Applied(answer)) if has_resources_of(&answer.json()?, &whole) => Ok(pod),
            Ok(Sent::DryRun) => Ok(pod),
            Err(error) if !is_denied(&error) => Err(error),
            _ => Ok(whole),
        }
    }

    pub(super) fn candidate(&self) -> Option<ObjectKey> {
        self.it.parts.component.candidate(self.context.key)
    }

    /// The live pod, as JSON and as the rules read it.
    pub(super) async fn read_pod(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<(Value, PodView)>, RequestError> {
        let Some(answer) = self.live(&self.it.pods, key).await? else {
            return Ok(None);
        };
        let live: Value = answer.json()?;
        let parts = &self.it.parts;
        let pod = parts.pod_decoders.read(&answer);
        let pod = pod.map_err(|error| RequestError::Decode(error.to_string()))?;
        Ok(Some((live, parts.component.view(&pod))))
    }

    /// Writes a status, after the live read that it requires.
    async fn status(&self, record: &Record, step: &StatusWrite) -> Result<Stepped, RequestError> {
        let is_met = match &step.precondition {
            Precondition::None => true,
            Precondition::NameTaken => {
                return self.name_in_use(record, &pod_key(record)).await;
            }
            Precondition::Gone(pod) => match self.read_pod(&pod_key(record)).await? {
                None => true,
                Some((_, found)) => {
                    let is_of_record = is_of_record(record, &found);
                    let is_gone = found.uid != *pod;
                    if is_gone && !is_of_record && step.next.phase == Some(Phase::Waiting) {
                        return self.name_taken_by(record, &found).await;
                    }
                    // If an attempt is reserved, its pod was created, and the response was lost.
                    is_gone && !(is_of_record && record.status.phase == Some(Phase::Creating))
                }
            },
            Precondition::Unchanged => self.is_pod_unchanged(record).await?,
            Precondition::Ignored => {
                self.is_pod_unchanged(record).await? && self.is_namespace_ignored(record).await?
            }
        };
        if !is_met {
            return Ok(Stepped::Later(SOON));
        }
        let is_rejected = |phase| phase == Some(Phase::Rejected);
        if is_rejected(step.next.phase)
            && !is_rejected(record.status.phase)
            && (self.read_clock().await? || self.has_state_changed())
        {
            return Ok(Stepped::Settled);
        }
        self.write(record, step).await
    }

    /// Whether the pod, by a live read, is as the decision saw it.
    async fn is_pod_unchanged(&self, record: &Record) -> Result<bool, RequestError> {
        let ObservedPod::Present(seen) = &self.snapshot.pod else {
            return Ok(false);
        };
        let live = self.read_pod(&pod_key(record)).await?;
        Ok(live.is_some_and(|(_, live)| live == **seen))
    }

    /// Whether the record's namespace is ignored, by a live read: the cache may still have a deleted one of that name.
    async fn is_namespace_ignored(&self, record: &Record) -> Result<bool, RequestError> {
        let namespace = ObjectKey::cluster(Arc::clone(record.meta.key.shared_namespace()));
        let Some(answer) = self.live(&Resource::namespaces(), &namespace).await? else {
            return Ok(false);
        };
        let live: Value = answer.json()?;
        Ok(live["metadata"]["labels"][IGNORE_LABEL] == "true")
    }

    /// Ends the record, unless Belayer is about to delete this pod: a live read has shown that it has the name.
    pub(super) async fn name_taken_by(
        &self,
        record: &Record,
        pod: &PodView,
    ) -> Result<Stepped, RequestError> {
        if is_undecided(record, pod) {
            return Ok(Stepped::Later(SOON));
        }
        let end = name_taken_step(record, clock::now());
        self.write(record, &end).await
    }

    pub(super) fn record_event(&self, notice: &Notice) {
        if let Some(regarding) = self.it.regarding(self.snapshot) {
            self.it.parts.events.record(&regarding, notice);
        }
    }

    /// Writes a status, increments its counter and records its Event.
    pub(super) async fn write(
        &self,
        record: &Record,
        step: &StatusWrite,
    ) -> Result<Stepped, RequestError> {
        let (next, outcome) = (&*step.next, step.outcome);
        let (from, to) = (State::of(&record.status), State::of(next));
        debug_assert!(is_declared(from, to), "{from:?} to {to:?} is not declared");
        self.put_status(record, next).await?;
        if let Some(notice) = &step.notice {
            self.record_event(notice);
        }
        if self.context.executor.writes() == Writes::DryRun {
            return Ok(Stepped::Done);
        }
        tracing::info!(record = %record.meta.key, phase = next.phase.map(Phase::as_str), attempts = next.attempts, "recorded");
        if let Some(outcome) = outcome {
            let why = next.reason.as_deref().unwrap_or_default();
            let label = reason::label(why);
            metrics::counter!(belayer_metrics::RECREATIONS, "reason" => label, "outcome" => outcome)
                .increment(1);
            if outcome == "exhausted" {
                metrics::counter!(belayer_metrics::RECREATION_BUDGET_EXHAUSTED).increment(1);
            }
            if outcome == "rejected"
                && let Some(node) = &next.node_name
            {
                let namespace = record.meta.key.namespace().unwrap_or_default();
                match self.it.rate_limiter.count_rejection(node, namespace) {
                    None => {}
                    Some(Opened::Namespace) => tracing::warn!(
                        node,
                        namespace,
                        "a circuit breaker is open: the node rejected many pods of the namespace, and they are re-created later"
                    ),
                    Some(Opened::Node) => tracing::warn!(
                        node,
                        "the circuit breaker of the node is open: it rejected many pods, and they are re-created later"
                    ),
                }
                self.it.report_breakers();
            }
        }
        Ok(Stepped::Done)
    }

    /// Step 3: a node that does not exist counts as wiped.
    async fn read_node(
        &self,
        record: &Record,
        node: &str,
        step: &StatusWrite,
    ) -> Result<Stepped, RequestError> {
        match self.uid_of_node(node).await? {
            Some(_) => Ok(Stepped::Done),
            None => self.write(record, step).await,
        }
    }

    async fn annotate(
        &self,
        key: &ObjectKey,
        pod: &Uid,
        text: &str,
    ) -> Result<Stepped, RequestError> {
        let Some((live, view)) = self.read_pod(key).await? else {
            return Ok(Stepped::Later(SOON));
        };
        if view.uid == *pod && !view.recreation_ended {
            self.annotate_pod(key, &live, pod, text).await?;
        }
        Ok(Stepped::Later(SOON))
    }
}

/// Whether the time for which a request of a wipe may be refused begins anew: it was accepted, or there is an outage. While
/// another record writes the entry, neither is known.
fn restarts_wait(requested: &Result<Requested, RequestError>) -> bool {
    match requested {
        Ok(Requested::Listed | Requested::Recorded(_)) => true,
        Ok(Requested::ByAnotherRecord | Requested::Refused) => false,
        Err(error) => !is_denied(error),
    }
}

/// What the user should know about the replacement of a pod, at its first rejection. A pod that must not return to the node of its
/// user's choice is not re-created, which is another Event.
fn first_notices(pod: &Value, avoids_node: bool) -> Vec<Notice> {
    let mut notices = Vec::new();
    let node = pod["spec"]["nodeName"].as_str();
    if let Some(node) = node.filter(|_| is_bound_by_user(pod) && !avoids_node) {
        let message = format!(
            "its user bound it to node {node} (spec.nodeName): it is re-created on that node, which may reject it again"
        );
        notices.push(Notice::normal("BoundByUser", message));
    }
    if !is_creator_known(pod) {
        let message = "its managedFields do not show who created it: the re-created pod has all its annotations, except \
                       those that podRecreation.carry.drop or Belayer lists";
        notices.push(Notice::normal("CreatorUnknown", message));
    }
    notices
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belayer_core::http::ApiError;
    use rstest::rstest;

    use super::*;

    fn api(code: u16, reason: &str) -> RequestError {
        RequestError::Api(Box::new(ApiError {
            code,
            reason: reason.to_owned(),
            message: String::new(),
            details: None,
            retry_after: None,
            has_status: true,
        }))
    }

    /// Neither an outage nor a write that another record sends is a refusal, and only an answer shows that there is none.
    #[rstest]
    #[case::accepted(Ok(Requested::Listed), true)]
    #[case::not_needed(Ok(Requested::Recorded(Stepped::Done)), true)]
    #[case::another_record_writes_it(Ok(Requested::ByAnotherRecord), false)]
    #[case::refused(Ok(Requested::Refused), false)]
    #[case::denied(Err(api(403, "Forbidden")), false)]
    #[case::too_large(Err(api(413, "RequestEntityTooLarge")), false)]
    #[case::the_server_is_overloaded(Err(api(503, "ServiceUnavailable")), true)]
    #[case::no_response(Err(RequestError::Timeout(Duration::ZERO)), true)]
    fn r6_only_refusals_count(
        #[case] requested: Result<Requested, RequestError>,
        #[case] expected: bool,
    ) {
        assert_eq!(restarts_wait(&requested), expected);
    }
}
