//! The requests of the steps.

use belayer_core::clock;
use belayer_core::executor::{Class, Sent, version_of};
use belayer_core::http::{Answer, ErrorClass, JSON, PatchKind, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_holds::conflict::OnConflict;
use belayer_holds::names::{FIELD_MANAGER, RECREATION_ENDED_ANNOTATION};
use belayer_holds::runner::Stepped;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Execution;
use crate::api::{self, Status};
use crate::component::pod_key;
use crate::decide::{RECHECK, needs_record};
use crate::record::Record;
use crate::snapshot::end_annotation;

impl Execution<'_> {
    /// Reads an object; `None` if it does not exist.
    pub(super) async fn live(
        &self,
        kind: &Resource,
        key: &ObjectKey,
    ) -> Result<Option<Answer>, RequestError> {
        self.context.executor.find(kind, key, JSON).await
    }

    /// Writes a status if the record has not changed.
    pub(super) async fn put_status(
        &self,
        record: &Record,
        next: &Status,
    ) -> Result<(), RequestError> {
        let request = status_patch(record, next, clock::now());
        if let Sent::Applied(answer) = self.send(&request).await?
            && let Some(version) = version_of(&answer)
        {
            self.context.wrote(version);
        }
        Ok(())
    }

    /// Deletes by UID, so that another pod with the same name is never deleted.
    pub(super) async fn delete_pod(&self, key: &ObjectKey, uid: &Uid) -> Result<(), RequestError> {
        let pods = &self.it.pods;
        let deleted = self.context.executor.delete(pods, key, uid).await;
        let deleted = OnConflict::Done.settle(deleted, (pods, key))?;
        if matches!(deleted, Some(Sent::DryRun)) {
            self.pretended();
        }
        Ok(())
    }

    pub(super) async fn delete_record(&self, record: &Record) -> Result<Stepped, RequestError> {
        let key = &record.meta.key;
        // The cache may be behind. It queues the record once it sees the pod.
        if let Some((_, pod)) = self.read_pod(&pod_key(record)).await?
            && needs_record(record, &pod)
        {
            return Ok(Stepped::Later(RECHECK));
        }
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {
                "uid": record.meta.uid.as_str(),
                "resourceVersion": record.meta.resource_version.to_string(),
            },
        });
        let records = &self.it.records;
        let request = Request::delete(records.object_path(key), options.to_string());
        match self.send(&request).await {
            Err(error) if !error.is_gone(records, key) => Err(error),
            _ => Ok(Stepped::Done),
        }
    }

    /// Annotates a pod with the reason why it is not re-created, if it has not changed.
    pub(super) async fn annotate_pod(
        &self,
        key: &ObjectKey,
        live: &Value,
        pod: &Uid,
        text: &str,
    ) -> Result<(), RequestError> {
        let body = json!({
            "metadata": {
                "uid": pod.as_str(),
                "resourceVersion": live["metadata"]["resourceVersion"],
                "annotations": { RECREATION_ENDED_ANNOTATION: end_annotation(pod, text) },
            },
        });
        let path = self.it.pods.object_path(key);
        let request = Request::patch(path, PatchKind::Merge, body.to_string())
            .query("fieldManager", FIELD_MANAGER);
        self.send(&request).await.map(drop)
    }

    pub(super) async fn create(
        &self,
        kind: &Resource,
        key: &ObjectKey,
        object: &Value,
        mode: CreateMode,
    ) -> Result<Sent, RequestError> {
        let request = Request::post(kind.path(key.namespace()), object.to_string())
            .query("fieldManager", FIELD_MANAGER);
        match mode {
            CreateMode::Persisted => self.send(&request).await,
            CreateMode::DryRun => {
                let request = request.query("dryRun", "All");
                self.context.executor.write(&request, Class::Write).await
            }
        }
    }

    /// Sends a write of this step.
    pub(super) async fn send(&self, request: &Request) -> Result<Sent, RequestError> {
        let sent = self.context.executor.write(request, Class::Write).await?;
        if matches!(sent, Sent::DryRun) {
            self.pretended();
        }
        Ok(sent)
    }

    fn pretended(&self) {
        let record = self.snapshot.record.as_deref();
        let pod = record.map(pod_key).or_else(|| self.candidate());
        let pod = pod.as_ref().map(ObjectKey::name);
        tracing::info!(controller = crate::NAME, record = %self.context.key, pod, step = self.what, "dry run: not sent");
    }
}

/// Whether a create is persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateMode {
    /// The object is created.
    Persisted,
    /// A server-side dry run.
    DryRun,
}

/// The request that writes a status if the record has not changed. The records are named as in the
/// [crate's example](crate).
pub fn status_patch(record: &Record, next: &Status, now: Timestamp) -> Request {
    let mut next = next.clone();
    next.summarize(now);
    let path = api::resource().subresource_path(&record.meta.key, "status");
    let body = json!({
        "metadata": {
            "uid": record.meta.uid.as_str(),
            "resourceVersion": record.meta.resource_version.to_string(),
        },
        "status": merge_patch(&record.status, &next),
    });
    Request::patch(path, PatchKind::Merge, body.to_string()).query("fieldManager", FIELD_MANAGER)
}

/// The status as a merge patch, in which a field to remove must be `null`.
fn merge_patch(before: &Status, next: &Status) -> Value {
    let value = |status: &Status| serde_json::to_value(status).unwrap_or_default();
    let mut patch = value(next);
    set_removed(&value(before), &mut patch);
    patch
}

/// Sets what only `before` has to `null`.
fn set_removed(before: &Value, patch: &mut Value) {
    let (Some(before), Some(patch)) = (before.as_object(), patch.as_object_mut()) else {
        return;
    };
    for (name, old) in before {
        set_removed(old, patch.entry(name.as_str()).or_insert(Value::Null));
    }
}

/// What the error of an object contains that is too large for etcd, or for the API server's client of etcd.
const TOO_LARGE: [&str; 2] = ["request is too large", "message larger than max"];

/// Whether the API server denies a request until its configuration or the object changes, for example by a quota, a policy or
/// a webhook. They choose the code, also one that means something else if the API server itself answers. An object that is too large is also refused by etcd, and above 2 MiB by the API server's client of etcd. The API
/// server passes their errors on.
pub(super) fn is_denied(error: &RequestError) -> bool {
    let Some(api) = error.api() else {
        return false;
    };
    if is_denied_by_admission(error) {
        return true;
    }
    match api.code {
        401 | 408 | 409 | 429 => false,
        // Otherwise a proxy answers, the kind is not served, or the namespace does not exist.
        404 => api.has_status && error.class() == ErrorClass::NotServed,
        400..=499 => true,
        _ => TOO_LARGE.iter().any(|text| api.message.contains(text)),
    }
}

/// Whether a policy or a webhook denies a request, by what the API server writes into the message.
pub(super) fn is_denied_by_admission(error: &RequestError) -> bool {
    let marks = [
        ("admission webhook \"", "\" denied the request"),
        ("ValidatingAdmissionPolicy '", " denied request"),
    ];
    let message = error.api().map_or("", |api| &api.message);
    let has = |(begin, end)| {
        message
            .split_once(begin)
            .is_some_and(|(_, rest)| rest.contains(end))
    };
    marks.into_iter().any(has)
}

/// Whether a create was refused only because the name is in use.
pub(super) fn is_name_in_use(error: &RequestError) -> bool {
    let is_taken = error.api().is_some_and(|api| api.reason == "AlreadyExists");
    is_taken && !is_denied_by_admission(error)
}

/// The answer to a create; `None` if the name is in use, so that the object has to be read.
pub(super) fn looked_up(
    created: Result<Sent, RequestError>,
    about: (&Resource, &ObjectKey),
) -> Result<Option<Sent>, RequestError> {
    match created {
        Err(error) if is_denied_by_admission(&error) => Err(error),
        created => OnConflict::LookUp.settle(created, about),
    }
}

/// Whether a create was denied because the namespace is being deleted.
pub(super) fn is_namespace_terminating(error: &RequestError) -> bool {
    let api = error.api();
    api.is_some_and(|api| api.has_cause("NamespaceTerminating"))
}

#[cfg(test)]
mod tests {
    use belayer_core::http::ApiError;
    use rstest::rstest;

    use super::*;

    const POLICY: &str = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'size' with binding 'size' denied request: no";
    const WEBHOOK: &str = "admission webhook \"a.b\" denied the request: no";

    #[rstest]
    #[case::by_a_policy(401, POLICY, true)]
    #[case::by_a_webhook(409, WEBHOOK, true)]
    #[case::by_a_webhook_that_is_busy(429, WEBHOOK, true)]
    #[case::by_a_webhook_that_failed(500, WEBHOOK, true)]
    #[case::without_explanation(
        401,
        r#"admission webhook "a.b" denied the request without explanation"#,
        true
    )]
    #[case::the_webhook_did_not_answer(500, r#"failed calling webhook "a.b""#, false)]
    #[case::no_credentials(401, "Unauthorized", false)]
    #[case::the_name_is_in_use(409, r#"pods "web" already exists"#, false)]
    #[case::too_many_requests(429, "the server has received too many requests", false)]
    fn r3_a_denial_by_admission_has_any_code(
        #[case] code: u16,
        #[case] message: &str,
        #[case] expected: bool,
    ) {
        let mut error = ApiError::from_code(code);
        error.message = message.to_owned();
        error.reason = "AlreadyExists".to_owned();
        let error = RequestError::from(error);
        assert_eq!(is_denied(&error), expected);
        assert_eq!(is_name_in_use(&error), !expected);
    }

    #[test]
    fn the_patch_removes_unset_fields() {
        let metadata = |labels| Some(json!({ "labels": labels }));
        let before = Status {
            rejected_uid: Some("u".into()),
            pod_metadata: metadata(json!({ "a": "1", "b": "2" })),
            ..Status::default()
        };
        let next = Status {
            pod_metadata: metadata(json!({ "b": "3" })),
            ..Status::default()
        };
        let patch = merge_patch(&before, &next);
        assert_eq!(patch["rejectedUID"], Value::Null);
        assert!(patch.as_object().unwrap().contains_key("rejectedUID"));
        assert_eq!(patch["attempts"], 0);
        assert_eq!(
            patch["podMetadata"]["labels"],
            json!({ "a": null, "b": "3" })
        );
    }
}
