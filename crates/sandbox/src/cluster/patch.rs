//! Patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::{check_namespace, check_subresource};
use super::update::check_name;
use super::write::{Entry, Written};
use super::{Actor, Cluster, Gvr, ObjectKey, Patch, State, Subresource, WriteOptions, locate};
use crate::error::{ApiError, Cause, Reason};
use crate::kinds::ResourceInfo;
use crate::meta;
use crate::patch::{merge, strategic};
use crate::recorder::Verb;

/// Operations of one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

impl Cluster {
    /// Changes an object and answers it as stored.
    ///
    /// # Errors
    /// What kube-apiserver answers: 400, 404, 409, 415 (strategic on a custom resource), 422.
    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    pub fn patch(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        patch: Patch,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let written =
            self.patch_written(actor, gvr, namespace, name, patch, subresource, options)?;
        Ok(written.object)
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    pub(crate) fn patch_written(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        patch: Patch,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (patch, body) = match patch {
            Patch::Merge(body) => (Patch::Merge(Value::Null), Arc::new(body)),
            Patch::Json(body) => (Patch::Json(Value::Null), Arc::new(body)),
            Patch::Strategic(body) => (Patch::Strategic(Value::Null), Arc::new(body)),
        };
        let entry = Entry {
            actor,
            verb: Verb::Patch,
            gvr,
            subresource: subresource.as_str(),
            key: ObjectKey::new(namespace, name),
            body: Some(Arc::clone(&body)),
            dry_run: options.dry_run,
        };
        self.write(entry, |state| {
            self.patch_in(
                state,
                gvr,
                namespace,
                name,
                (&patch, &body),
                subresource,
                *options,
            )
        })
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    fn patch_in(
        &self,
        state: &mut State,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        patch: (&Patch, &Value),
        subresource: Subresource,
        options: WriteOptions,
    ) -> Result<Written, ApiError> {
        let (info, key) = locate(state, gvr, namespace, name)?;
        check_subresource(&info, gvr, subresource)?;
        let Some(old) = state.get(&info, &key).cloned() else {
            return Err(ApiError::not_found(&info.group, &info.resource, name));
        };
        let mut new = patched(&info, gvr, &old, patch)?;
        if let Err(why) = meta::normalise(&mut new) {
            let shown = serde_json::to_string(&new).unwrap_or_default();
            let cause = Cause::invalid("patch", &format!("{shown:?}"), &why);
            return Err(ApiError::invalid("", "", "", vec![cause]));
        }
        check_kind(&info, gvr, &new)?;
        check_name(&new, name)?;
        check_namespace(&mut new, namespace)?;
        self.apply(state, &info, gvr, &key, &old, new, subresource, options)
    }
}

fn patched(
    info: &ResourceInfo,
    gvr: &Gvr,
    old: &Value,
    (kind, body): (&Patch, &Value),
) -> Result<Value, ApiError> {
    let mut new = old.clone();
    if gvr.version != info.storage_version {
        new["apiVersion"] = json!(gvr.api_version());
    }
    match kind {
        Patch::Merge(_) => {
            if !body.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: json: cannot unmarshal value into Go value of type map[string]interface {}",
                ));
            }
            merge::apply(&mut new, body);
        }
        Patch::Json(_) => apply_json(&mut new, body)?,
        Patch::Strategic(_) if info.custom => return Err(unsupported_strategic()),
        Patch::Strategic(_) => {
            strategic::apply(&mut new, body).map_err(ApiError::bad_request)?;
        }
    }
    Ok(new)
}

fn apply_json(new: &mut Value, body: &Value) -> Result<(), ApiError> {
    let operations: json_patch::Patch = serde_json::from_value(body.clone())
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    if operations.0.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            Reason::RequestEntityTooLarge,
            format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.0.len()
            ),
        ));
    }
    // Without undoing: what failed halfway is dropped, and undoing a `move` that failed halfway panics.
    json_patch::patch_unsafe(new, &operations).map_err(|_| {
        ApiError::new(
            422,
            Reason::Invalid,
            "the server rejected our request due to an error in our request",
        )
        .with_causes(Vec::new())
    })
}

pub(crate) fn unsupported_strategic() -> ApiError {
    ApiError::new(
        415,
        Reason::UnsupportedMediaType,
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
    )
}

/// A patch must not turn the object into something else.
fn check_kind(info: &ResourceInfo, gvr: &Gvr, new: &Value) -> Result<(), ApiError> {
    let (kind, api_version) = (meta::text(new, &["kind"]), meta::text(new, &["apiVersion"]));
    let why = if kind != info.kind {
        format!("{kind} cannot be handled as a {}", info.kind)
    } else if api_version != gvr.api_version() {
        format!("no kind {kind:?} is registered for version {api_version:?}")
    } else {
        return Ok(());
    };
    let shown = serde_json::to_string(new).unwrap_or_default();
    let cause = Cause::invalid("patch", &format!("{shown:?}"), &why);
    Err(ApiError::invalid("", "", "", vec![cause]))
}
