//! Patch.

use std::sync::Arc;

use serde_json::Value;

use super::create::{check_name, check_namespace, check_subresource};
use super::write::Entry;
use super::written::Written;
use super::{
    Cluster, FieldValidation, Patch, State, WriteOptions, at_version, event_view, locate, shape,
};
use crate::address::{Actor, Gvr, ObjectKey, Subresource};
use crate::error::{ApiError, Cause, Reason};
use crate::kinds::{ResourceInfo, types};
use crate::meta;
use crate::recorder::Verb;
use crate::strategic;

/// Maximum number of operations of one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

impl Cluster {
    /// Patches an object and returns it as stored.
    ///
    /// # Errors
    /// As kube-apiserver: 400, 404, 409, 415 (strategic on a custom resource), 422.
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
        if event_view::shows(gvr) {
            let (core, patch) = (&Gvr::EVENTS, event_view::patch(patch));
            let patched =
                self.patch_written(actor, core, namespace, name, patch, subresource, options);
            return event_view::written(patched);
        }
        let (patch, body) = match patch {
            Patch::Merge(body) => (Patch::Merge(Value::Null), Arc::new(body)),
            Patch::Json(body) => (Patch::Json(Value::Null), Arc::new(body)),
            Patch::Strategic(body) => (Patch::Strategic(Value::Null), Arc::new(body)),
            Patch::Apply(body) => (Patch::Apply(Value::Null), Arc::new(body)),
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
        let options = options.managed_by(actor);
        self.write(entry, |state| {
            self.patch_in(
                state,
                gvr,
                namespace,
                name,
                (&patch, &body),
                subresource,
                &options,
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
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (info, key) = locate(state, gvr, namespace, name)?;
        check_subresource(&info, gvr, subresource)?;
        if let (Patch::Apply(_), config) = patch {
            return self.apply_in(
                state,
                (&info, gvr, &key),
                namespace,
                config,
                subresource,
                options,
            );
        }
        let Some(stored) = state.get(&info, &key).cloned() else {
            return Err(ApiError::not_found(&info.group, &info.resource, name));
        };
        let old = at_version(&info, &gvr.version, Arc::clone(&stored));
        let mut new = patched(&info, gvr, &old, patch)?;
        let mut warnings = Vec::new();
        match read_patched(&info, gvr, &mut new) {
            Ok(unknown) if unknown.is_empty() => {}
            Ok(unknown) => {
                let unknown = shape::unknown(unknown);
                match options.field_validation {
                    FieldValidation::Ignore => {}
                    FieldValidation::Warn => warnings = unknown,
                    FieldValidation::Strict => {
                        let mut shown = patched(&info, gvr, &old, patch)?;
                        meta::unset(&mut shown, "managedFields");
                        return Err(unfit(&shown, &shape::strict(&unknown)));
                    }
                }
            }
            Err(why) => return Err(unfit(&new, &why)),
        }
        check_kind(&info, gvr, &new)?;
        check_name(&new, name)?;
        check_namespace(&mut new, namespace)?;
        let applied = self.apply(
            state,
            &info,
            gvr,
            &key,
            (&stored, &old),
            new,
            None,
            subresource,
            options,
        )?;
        Ok(applied.warn(warnings))
    }
}

/// Decodes the patched object like a request body; returns the unknown fields.
pub(super) fn read_patched(
    info: &ResourceInfo,
    gvr: &Gvr,
    new: &mut Value,
) -> Result<Vec<String>, String> {
    let mut unknown = match info.type_name(&gvr.version) {
        Some(name) => types::decode(name, new)?,
        None => shape::unknown_metadata(info, new),
    };
    meta::normalise(new)?;
    if info.custom {
        unknown.extend(shape::custom(info, gvr, new)?);
    }
    Ok(unknown)
}

/// 422 of a patch whose result cannot be decoded.
pub(super) fn unfit(new: &Value, why: &str) -> ApiError {
    let shown = meta::in_go_order(new);
    let cause = Cause::invalid("patch", &format!("{shown:?}"), why);
    ApiError::invalid("", "", "", vec![cause])
}

fn patched(
    info: &ResourceInfo,
    gvr: &Gvr,
    old: &Value,
    (kind, body): (&Patch, &Value),
) -> Result<Value, ApiError> {
    // Most patches leave managedFields alone, and the entries are larger than many objects.
    let mut new = match kind {
        Patch::Merge(_) | Patch::Strategic(_)
            if meta::at(body, &["metadata", "managedFields"]).is_none() =>
        {
            meta::without_managers(old)
        }
        _ => old.clone(),
    };
    match kind {
        Patch::Merge(_) => {
            if !body.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: json: cannot unmarshal value into Go value of type map[string]interface {}",
                ));
            }
            json_patch::merge(&mut new, body);
        }
        Patch::Json(_) => apply_json(&mut new, body)?,
        // Applied elsewhere.
        Patch::Apply(_) => {}
        Patch::Strategic(_) if info.custom => return Err(unsupported_strategic()),
        Patch::Strategic(_) => {
            let applied = strategic::apply(&mut new, body, info.type_name(&gvr.version));
            applied.map_err(|refusal| match refusal {
                strategic::Refusal::Bad(why) => ApiError::bad_request(why),
                strategic::Refusal::Broken(why) => ApiError::new(500, Reason::Unknown, why),
            })?;
        }
    }
    Ok(new)
}

/// Patches something that is not stored, such as the `Scale` of an object.
pub(crate) fn patch_any(target: &mut Value, patch: &Patch) -> Result<(), ApiError> {
    match patch {
        Patch::Json(body) => apply_json(target, body),
        Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply(body) => {
            json_patch::merge(target, body);
            Ok(())
        }
    }
}

fn apply_json(new: &mut Value, body: &Value) -> Result<(), ApiError> {
    let read = serde_json::from_value(body.clone());
    let operations: json_patch::Patch = read.map_err(|e| match body {
        // Any list of objects is accepted; its operations are checked only when they are applied.
        Value::Array(list) if list.iter().all(Value::is_object) => rejected(),
        _ => ApiError::bad_request(format!("error decoding patch: {e}")),
    })?;
    if operations.0.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            Reason::RequestEntityTooLarge,
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.0.len()
            ),
        ));
    }
    for operation in operations.0 {
        if is_absence_test(&operation) && is_absent(new, operation.path().as_str()) {
            continue;
        }
        // Without rollback: the copy is dropped after a failure, and the rollback of a failed `move`
        // panics.
        json_patch::patch_unsafe(new, &[operation]).map_err(|_| rejected())?;
    }
    Ok(())
}

/// A `test` for `null` checks that the member is absent. kube-rs and others use it to detect a
/// concurrent write.
fn is_absence_test(operation: &json_patch::PatchOperation) -> bool {
    matches!(operation, json_patch::PatchOperation::Test(test) if test.value.is_null())
}

/// Whether a member is missing in an object that is there.
fn is_absent(document: &Value, path: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else {
        return false;
    };
    document.pointer(path).is_none() && document.pointer(parent).is_some_and(Value::is_object)
}

fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(422, Reason::Invalid, message).with_causes(Vec::new())
}

pub(crate) fn unsupported_strategic() -> ApiError {
    ApiError::new(
        415,
        Reason::UnsupportedMediaType,
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
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
    Err(unfit(new, &why))
}
