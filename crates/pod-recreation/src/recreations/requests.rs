//! Single requests of a step: paths, bodies, and what their answers hold.

use belayer_core::executor::{Class, Sent, version_of};
use belayer_core::http::{Answer, ErrorClass, PatchKind, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_holds::conflict::OnConflict;
use belayer_holds::names::{FIELD_MANAGER, RECREATION_ENDED_ANNOTATION};
use belayer_holds::runner::Stepped;
use serde_json::{Value, json};

use super::Taking;
use crate::api::{self, Status};
use crate::record::Record;

impl Taking<'_> {
    /// An object as the server has it; `None` if the server says that it does not exist.
    pub(super) async fn live(
        &self,
        kind: &Resource,
        key: &ObjectKey,
    ) -> Result<Option<Answer>, RequestError> {
        let request = Request::get(kind.object_path(key));
        let read = self.context.executor.read(&request, Class::Evidence);
        match read.await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_gone(kind, key) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a status if nobody wrote the record since.
    pub(super) async fn put_status(
        &self,
        record: &Record,
        next: &Status,
    ) -> Result<(), RequestError> {
        let request = status_patch(record, next);
        let written = self.context.executor.write(&request, Class::Write);
        if let Sent::Applied(answer) = written.await?
            && let Some(version) = version_of(&answer)
        {
            self.context.wrote(version);
        }
        Ok(())
    }

    /// By UID: another pod that has the name by now is out of reach.
    pub(super) async fn delete_pod(&self, key: &ObjectKey, uid: &Uid) -> Result<(), RequestError> {
        let pods = &self.it.pods;
        let deleted = self.context.executor.delete(pods, key, uid).await;
        OnConflict::Done.settle(deleted, (pods, key)).map(drop)
    }

    pub(super) async fn delete_record(&self, record: &Record) -> Result<Stepped, RequestError> {
        let key = &record.meta.key;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {
                "uid": record.meta.uid.as_str(),
                "resourceVersion": record.meta.resource_version.to_string(),
            },
        });
        let records = &self.it.records;
        let request = Request::delete(records.object_path(key), options.to_string());
        match self.context.executor.write(&request, Class::Write).await {
            Err(error) if !error.is_gone(records, key) => Err(error),
            _ => Ok(Stepped::Done),
        }
    }

    /// Writes on a pod why it is left alone, if nobody changed it since.
    pub(super) async fn mark_pod(
        &self,
        key: &ObjectKey,
        live: &Value,
        text: &str,
    ) -> Result<(), RequestError> {
        let body = json!({
            "metadata": {
                "uid": live["metadata"]["uid"],
                "resourceVersion": live["metadata"]["resourceVersion"],
                "annotations": { RECREATION_ENDED_ANNOTATION: text },
            },
        });
        let path = self.it.pods.object_path(key);
        let request = Request::patch(path, PatchKind::Merge, body.to_string())
            .query("fieldManager", FIELD_MANAGER);
        let written = self.context.executor.write(&request, Class::Write);
        written.await.map(drop)
    }

    pub(super) async fn create(
        &self,
        kind: &Resource,
        key: &ObjectKey,
        object: &Value,
        trial: Trial,
    ) -> Result<Sent, RequestError> {
        let request = Request::post(kind.path(key.namespace()), object.to_string())
            .query("fieldManager", FIELD_MANAGER);
        let request = match trial {
            Trial::Real => request,
            Trial::Rehearsal => request.query("dryRun", "All"),
        };
        self.context.executor.write(&request, Class::Write).await
    }
}

/// Whether a create is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// It is.
    Real,
    /// The server only says whether it would work.
    Rehearsal,
}

/// The request that writes a status, unless the record has changed since.
pub fn status_patch(record: &Record, next: &Status) -> Request {
    let path = api::resource().subresource_path(&record.meta.key, "status");
    let body = json!({
        "metadata": {
            "uid": record.meta.uid.as_str(),
            "resourceVersion": record.meta.resource_version.to_string(),
        },
        "status": merged(next),
    });
    Request::patch(path, PatchKind::Merge, body.to_string()).query("fieldManager", FIELD_MANAGER)
}

/// A merge patch removes only what it names: fields that are to be absent are `null`.
fn merged(status: &Status) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for optional in [
            "podDeletionTime",
            "rejectedUID",
            "podUID",
            "nodeName",
            "avoidNodes",
            "reason",
            "message",
            "finishedAt",
        ] {
            fields.entry(optional).or_insert(Value::Null);
        }
    }
    value
}

/// Whether a refusal of a create stands until somebody changes something: quota, policy, webhook.
pub(super) fn is_denied(error: &RequestError) -> bool {
    matches!(error.class(), ErrorClass::Forbidden | ErrorClass::Invalid)
}

/// Whether the server cannot store an object of this size: it says so itself, or passes on what etcd
/// says, as an error of its own.
pub(super) fn is_too_large(error: &RequestError) -> bool {
    error
        .api()
        .is_some_and(|api| api.code == 413 || api.message.contains("request is too large"))
}

/// Whether a create was refused because the namespace is being deleted.
pub(super) fn is_namespace_terminating(error: &RequestError) -> bool {
    error.api().is_some_and(|api| {
        let causes = api.details.iter().flat_map(|details| &details.causes);
        causes
            .into_iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_went_is_removed_by_the_patch() {
        let patch = merged(&Status::default());
        assert_eq!(patch["rejectedUID"], Value::Null);
        assert!(patch.as_object().unwrap().contains_key("rejectedUID"));
        assert_eq!(patch["attempts"], 0);
    }
}
