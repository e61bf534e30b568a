//! Options of writes, from the query or the body.

use std::sync::Arc;

use serde_json::Value;

use super::Call;
use super::negotiate::content_type;
use crate::cluster::{DeleteOptions, FieldValidation, Preconditions, Propagation, WriteOptions};
use crate::error::{ApiError, Cause};
use crate::meta;

/// Maximum length of a manager in `metadata.managedFields`, in bytes.
const LONGEST_MANAGER: usize = 128;

/// The media type of server-side apply.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// The product of a user agent.
fn agent(headers: &http::HeaderMap) -> Option<&str> {
    let agent = headers.get(http::header::USER_AGENT)?.to_str().ok()?;
    let product = agent.split('/').next()?;
    let end = product
        .char_indices()
        .nth(LONGEST_MANAGER)
        .map_or(product.len(), |(at, _)| at);
    Some(&product[..end]).filter(|product| !product.is_empty())
}

/// Options of create, update and patch.
pub(super) fn of_write(call: &Call) -> Result<WriteOptions, ApiError> {
    let kind = match call.parts.method.as_str() {
        "PUT" => "UpdateOptions",
        "PATCH" => "PatchOptions",
        _ => "CreateOptions",
    };
    let query = &call.query;
    let is_apply = content_type(&call.parts.headers) == APPLY;
    let invalid = |cause| ApiError::invalid("meta.k8s.io", kind, "", vec![cause]);
    let field_validation = match query.get("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let known = ["", "Ignore", "Strict", "Warn"];
            return Err(invalid(Cause::not_supported(
                "fieldValidation",
                other,
                &known,
            )));
        }
    };
    let manager = query.get("fieldManager");
    let force = query.get("force");
    if is_apply {
        if manager.is_empty() {
            let why = "is required for apply patch";
            return Err(invalid(Cause::required("fieldManager", why)));
        }
    } else if kind == "PatchOptions" && !force.is_empty() {
        let why = "may not be specified for non-apply patch";
        return Err(invalid(Cause::forbidden("force", why)));
    }
    if manager.len() > LONGEST_MANAGER {
        return Err(invalid(Cause {
            reason: "FieldValueTooLong".into(),
            message: format!("Too long: may not be more than {LONGEST_MANAGER} bytes"),
            field: "fieldManager".into(),
        }));
    }
    let printable = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| !printable(*c)) {
        let why = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        let value = format!("{manager:?}");
        return Err(invalid(Cause::invalid("fieldManager", &value, &why)));
    }
    let manager = match manager {
        "" => agent(&call.parts.headers),
        manager => Some(manager),
    };
    Ok(WriteOptions {
        dry_run: dry_run(query.get("dryRun"), kind)?,
        field_validation,
        manager: manager.map(Arc::from),
        force: query.flag("force"),
        create_forbidden: None,
    })
}

fn dry_run(text: &str, kind: &str) -> Result<bool, ApiError> {
    match text {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let cause = Cause {
                reason: "FieldValueNotSupported".into(),
                message: format!("Unsupported value: [{other:?}]: supported values: \"All\""),
                field: "dryRun".into(),
            };
            Err(ApiError::invalid("meta.k8s.io", kind, "", vec![cause]))
        }
    }
}

fn options_invalid(cause: Cause) -> ApiError {
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause])
}

fn propagation(text: &str) -> Result<Option<Propagation>, ApiError> {
    Ok(Some(match text {
        "" => return Ok(None),
        "Orphan" => Propagation::Orphan,
        "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        other => {
            return Err(options_invalid(Cause::not_supported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            )));
        }
    }))
}

/// The options of a delete without a body.
pub(super) fn from_query(call: &Call) -> Result<DeleteOptions, ApiError> {
    let query = &call.query;
    let seconds = match query.get("gracePeriodSeconds") {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })?),
    };
    let mut options = DeleteOptions {
        grace_period_seconds: seconds,
        propagation_policy: propagation(query.get("propagationPolicy"))?,
        preconditions: Preconditions::default(),
        dry_run: dry_run(query.get("dryRun"), "DeleteOptions")?,
    };
    if !query.get("orphanDependents").is_empty() {
        set_orphan(&mut options, query.flag("orphanDependents"))?;
    }
    Ok(options)
}

/// The deprecated way to set a propagation policy.
fn set_orphan(options: &mut DeleteOptions, orphan: bool) -> Result<(), ApiError> {
    if options.propagation_policy.is_some() {
        return Err(options_invalid(Cause::invalid(
            "propagationPolicy",
            &format!(
                "{:?}",
                options.propagation_policy.map_or("", Propagation::as_str)
            ),
            "orphanDependents and deletionPropagation cannot be both set",
        )));
    }
    let policy = if orphan {
        Propagation::Orphan
    } else {
        Propagation::Background
    };
    options.propagation_policy = Some(policy);
    Ok(())
}

/// The options in the body of a delete.
pub(super) fn of_delete(body: &Value) -> Result<DeleteOptions, ApiError> {
    let wrong = |field: &str| {
        ApiError::bad_request(format!(
            "json: cannot unmarshal value into Go struct field DeleteOptions.{field}"
        ))
    };
    let kind = meta::text(body, &["kind"]);
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a DeleteOptions"
        )));
    }
    let seconds = match body.get("gracePeriodSeconds") {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
    };
    let text = |field: &'static str, value: Option<&Value>| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(field)),
    };
    let wanted = body.get("preconditions").unwrap_or(&Value::Null);
    let policy = text("propagationPolicy", body.get("propagationPolicy"))?;
    let mut options = DeleteOptions {
        grace_period_seconds: seconds,
        propagation_policy: propagation(policy.as_deref().unwrap_or_default())?,
        preconditions: Preconditions {
            uid: text("preconditions.uid", wanted.get("uid"))?,
            resource_version: text(
                "preconditions.resourceVersion",
                wanted.get("resourceVersion"),
            )?,
        },
        dry_run: false,
    };
    match body.get("dryRun") {
        None | Some(Value::Null) => {}
        Some(Value::Array(stages)) => {
            for stage in stages {
                options.dry_run |= dry_run(stage.as_str().unwrap_or_default(), "DeleteOptions")?;
            }
        }
        Some(_) => return Err(wrong("dryRun")),
    }
    match body.get("orphanDependents") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(orphan)) => set_orphan(&mut options, *orphan)?,
        Some(_) => return Err(wrong("orphanDependents")),
    }
    Ok(options)
}
