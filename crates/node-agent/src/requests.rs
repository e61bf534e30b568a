//! The agent's requests for single objects, and its only write: the reports in the `NodeWipe` of its node.

use std::collections::BTreeMap;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, JSON, PatchKind, Request, RequestError};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder, Reading};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::rng;
use belayer_core::slim::{DecodeContext, Pod};
use belayer_core::workqueue::Backoff;
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::node_wipe::{self, NodeWipe, Report};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::decide::{WipeRequest, asks, is_starting};
use crate::world::request;

/// Reports that wait, by UID of their pod.
type Reports = BTreeMap<Uid, Report>;

/// Most reports of one write.
const MOST_REPORTS: usize = 100;

/// Attempts of a report, conflicts included.
const TRIES: u32 = 10;

/// Why a read or a report failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The response cannot be decoded.
    #[error("cannot decode the object in the response: {0}")]
    Decode(String),
}

impl ApiError {
    /// Delay before the next attempt.
    pub(crate) fn backoff(&self) -> Backoff {
        let Self::Request(error) = self else {
            return Backoff::CONFLICT;
        };
        match error.class() {
            ErrorClass::Forbidden | ErrorClass::Invalid => Backoff::DENIED,
            _ => Backoff::ERROR.at_least(error.retry_after().unwrap_or_default()),
        }
    }
}

/// Reads the list of this node and single pods, and reports results.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) executor: Executor,
    pub(crate) pod_decoders: Decoders<Pod>,
    pods: Resource,
    wipes: Resource,
    list: ObjectKey,
    /// The reports that wait for the next write.
    waiting: Mutex<Reports>,
    /// One write at a time: the API server repeats patches of one object that meet, at a growing cost.
    turn: tokio::sync::Mutex<()>,
}

impl Api {
    pub(crate) fn new(executor: Executor, pod_decoders: Decoders<Pod>, node: &str) -> Self {
        Self {
            executor,
            pod_decoders,
            pods: Resource::pods(),
            wipes: node_wipe::resource(),
            list: ObjectKey::cluster(node),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether a live read shows that the pod exists, asks for wipes and has neither ended nor started a container.
    pub(crate) async fn is_starting(&self, key: &ObjectKey, uid: &Uid) -> Result<bool, ApiError> {
        let accept = self.pod_decoders.accept(Reading::Object);
        let Some(answer) = self.executor.find(&self.pods, key, accept).await? else {
            return Ok(false);
        };
        let pod = self.pod_decoders.read(&answer);
        let pod = pod.map_err(|error| ApiError::Decode(error.to_string()))?;
        Ok(pod.meta.uid == *uid && asks(&pod) && is_starting(&pod))
    }

    /// Live read of what is requested for a pod of this node: nothing if the list does not exist.
    pub(crate) async fn wipe_request(&self, uid: &Uid) -> Result<WipeRequest, ApiError> {
        let found = self.executor.find(&self.wipes, &self.list, JSON).await?;
        let Some(answer) = found else {
            return Ok(WipeRequest::None);
        };
        let decoder: JsonDecoder<NodeWipe> = JsonDecoder::new(DecodeContext::default());
        let list = decoder.decode_object(&answer.body);
        let list = list.map_err(|error| ApiError::Decode(error.to_string()))?;
        Ok(request(&list, uid))
    }

    /// Writes the report about a pod, with the others that wait, and removes those of `forgotten` pods, which have no entry
    /// any more. Does nothing if the list does not exist.
    pub(crate) async fn report(
        &self,
        uid: &Uid,
        report: &Report,
        forgotten: &[Uid],
    ) -> Result<(), ApiError> {
        self.waiting.lock().insert(uid.clone(), report.clone());
        let _turn = self.turn.lock().await;
        let reports = next_reports(&self.waiting.lock(), uid);
        if reports.is_empty() {
            // The last write contained it.
            return Ok(());
        }
        let written = self.write(&reports, forgotten).await;
        let mut waiting = self.waiting.lock();
        match &written {
            Ok(()) => waiting.retain(|uid, report| reports.get(uid) != Some(report)),
            // The others that wait try again themselves.
            Err(_) => drop(waiting.remove(uid)),
        }
        written
    }

    /// The server itself answers 409 after some conflicts of concurrent patches: the wipe and its hooks must not be repeated
    /// for that.
    async fn write(&self, reports: &Reports, forgotten: &[Uid]) -> Result<(), ApiError> {
        let path = self.wipes.subresource_path(&self.list, "status");
        let body = patch(reports, forgotten).to_string();
        let request =
            Request::patch(path, PatchKind::Merge, body).query("fieldManager", FIELD_MANAGER);
        let mut ceiling = None;
        for _ in 1..TRIES {
            match self.executor.write(&request, Class::Write).await {
                Err(error) if error.class() == ErrorClass::Conflict => {
                    let next = Backoff::CONFLICT.ceiling_after(ceiling);
                    ceiling = Some(next);
                    tokio::time::sleep(Backoff::CONFLICT.delay(next, rng::unit())).await;
                }
                written => return self.settle(written.map(drop)),
            }
        }
        let written = self.executor.write(&request, Class::Write).await;
        self.settle(written.map(drop))
    }

    fn settle(&self, written: Result<(), RequestError>) -> Result<(), ApiError> {
        match written {
            Err(error) if !error.is_gone(&self.wipes, &self.list) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The reports of one write, with that about `uid`; none if that was written.
fn next_reports(waiting: &Reports, uid: &Uid) -> Reports {
    let Some(own) = waiting.get(uid) else {
        return Reports::new();
    };
    let others = waiting.iter().filter(|(other, _)| *other != uid);
    let all = std::iter::once((uid, own)).chain(others.take(MOST_REPORTS - 1));
    all.map(|(uid, report)| (uid.clone(), report.clone()))
        .collect()
}

/// A merge patch of single keys, which conflicts with no other write.
fn patch(reports: &Reports, forgotten: &[Uid]) -> Value {
    let mut wipes: Map<String, Value> = forgotten
        .iter()
        .map(|uid| (uid.to_string(), Value::Null))
        .collect();
    wipes.extend(
        reports
            .iter()
            .map(|(uid, report)| (uid.to_string(), json!(report))),
    );
    json!({ "status": { "wipes": wipes } })
}

#[cfg(test)]
mod tests {
    use belayer_holds::node_wipe::WipeState;

    use super::*;

    fn busy() -> Report {
        Report {
            state: WipeState::NotWiped,
            reason: "NotComplete".into(),
            message: "/ws/u-1/mnt is a mount in use".into(),
            paths: vec!["/ws/u-1".into()],
        }
    }

    #[test]
    fn one_write_has_the_reports_of_all_that_wait() {
        let uid = |number: usize| Uid::new(format!("u-{number:03}"));
        let waiting: Reports = (0..150).map(|number| (uid(number), busy())).collect();
        let next = next_reports(&waiting, &uid(149));
        assert_eq!(next.len(), MOST_REPORTS);
        assert!(next.contains_key(&uid(149)) && next.contains_key(&uid(0)));
        assert!(next_reports(&waiting, &uid(150)).is_empty(), "written");
    }

    #[test]
    fn a_report_changes_its_own_key_and_those_without_an_entry() {
        let reports = Reports::from([(Uid::new("u-1"), busy())]);
        let patch = patch(&reports, &[Uid::new("u-0")]);
        let expected = json!({ "status": { "wipes": {
            "u-0": null,
            "u-1": {
                "state": "NotWiped", "reason": "NotComplete", "message": "/ws/u-1/mnt is a mount in use",
                "paths": ["/ws/u-1"],
            },
        } } });
        assert_eq!(patch, expected);
    }
}
