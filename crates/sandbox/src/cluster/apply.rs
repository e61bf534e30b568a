//! Server-side apply.

use std::sync::Arc;

use serde_json::Value;

use super::create::{check_name, check_namespace};
use super::patch::read_patched;
use super::written::Written;
use super::{Cluster, State, WriteOptions, at_version, managed, shape};
use crate::address::{Gvr, ObjectKey, Subresource};
use crate::error::{ApiError, Cause, Reason};
use crate::fields::{ApplyError, Conflict, Conflicts, Managers};
use crate::kinds::ResourceInfo;
use crate::meta;

impl Cluster {
    /// Merges a configuration into an object, or creates the object.
    pub(super) fn apply_in(
        &self,
        state: &mut State,
        (info, gvr, key): (&Arc<ResourceInfo>, &Gvr, &ObjectKey),
        namespace: Option<&str>,
        config: &Value,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let stored = state.get(info, key).cloned();
        let old = stored
            .as_ref()
            .map(|stored| at_version(info, &gvr.version, Arc::clone(stored)));
        if old.is_none() && subresource != Subresource::None {
            return Err(ApiError::not_found(&info.group, &info.resource, &key.name));
        }
        check_config(info, gvr, config)?;
        let live = old
            .as_deref()
            .map_or_else(|| Value::Object(Default::default()), meta::without_managers);
        let mut managers = Managers::new(old.as_deref().map_or(&[][..], managed::of).to_vec());
        let conflicts = if options.force {
            Conflicts::Force
        } else {
            Conflicts::Refuse
        };
        let request = self.request(info, gvr, subresource, options);
        let applied = request.writer(|writer| managers.apply(&live, config, writer, conflicts));
        let mut new = applied.map_err(|error| refusal(gvr, info, subresource, config, error))?;
        if old.is_none() && !meta::uid(&new).is_empty() {
            return Err(absent(info, key, meta::uid(&new)));
        }
        let unknown = read_patched(info, gvr, &mut new)
            .map_err(|why| undecodable(gvr, info, config, &why))?;
        let warnings = shape::judge(info, gvr, shape::unknown(unknown), options)?;
        check_namespace(&mut new, namespace)?;
        check_name(&new, &key.name)?;
        let (Some(stored), Some(old)) = (stored, old) else {
            meta::unset(&mut new, "resourceVersion");
            let written = self.create_in(state, gvr, namespace, new, Some(managers), options)?;
            return Ok(written.warn(warnings));
        };
        let written = self.apply(
            state,
            info,
            gvr,
            key,
            (&stored, &old),
            new,
            Some(managers),
            subresource,
            options,
        )?;
        Ok(written.warn(warnings))
    }
}

/// `group/version, Kind=kind`, as in messages.
fn type_of(config: &Value) -> String {
    let api_version = meta::text(config, &["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", meta::text(config, &["kind"]))
}

fn check_config(info: &ResourceInfo, gvr: &Gvr, config: &Value) -> Result<(), ApiError> {
    let kind = meta::text(config, &["kind"]);
    if kind != info.kind || meta::text(config, &["apiVersion"]) != gvr.api_version() {
        let why = format!("invalid object type: {}", type_of(config));
        return Err(ApiError::bad_request(why));
    }
    let entries = meta::at(config, &["metadata", managed::FIELD]);
    if entries.is_some_and(Value::is_array) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn absent(info: &ResourceInfo, key: &ObjectKey, uid: &str) -> ApiError {
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    ApiError::conflict(&info.group, &info.resource, &key.name, &why)
}

/// 500 of a merged object that cannot be decoded.
fn undecodable(gvr: &Gvr, info: &ResourceInfo, config: &Value, why: &str) -> ApiError {
    let (group, version, kind) = (&gvr.group, &gvr.version, &info.kind);
    let message = format!(
        "failed to convert new object ({}/{}; {group}/{version}, Kind={kind}) to proper version: unable to convert unstructured object to {group}/{version}, Kind={kind}: {why}",
        meta::field(config, "namespace"),
        meta::name(config),
    );
    ApiError::new(500, Reason::Unknown, message)
}

fn refusal(
    gvr: &Gvr,
    info: &ResourceInfo,
    subresource: Subresource,
    config: &Value,
    error: ApplyError,
) -> ApiError {
    match error {
        ApplyError::Conflicts(mut conflicts) => {
            if subresource == Subresource::Scale {
                // The real server compares `Scale` objects here.
                let own = format!(" using {}", gvr.api_version());
                for conflict in &mut conflicts {
                    conflict.manager = conflict.manager.replace(&own, " using autoscaling/v1");
                }
            }
            conflict(&conflicts)
        }
        ApplyError::Unfit(why) => {
            let message = format!(
                "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
                meta::field(config, "namespace"),
                meta::name(config),
                gvr.group,
                gvr.version,
                info.kind,
            );
            ApiError::new(500, Reason::Unknown, message)
        }
    }
}

fn conflict(conflicts: &[Conflict]) -> ApiError {
    let cause = |conflict: &Conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager),
        field: conflict.path.clone(),
    };
    let message = match conflicts {
        [only] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.path
        ),
        all => {
            let mut lines = Vec::new();
            let mut managers: Vec<&str> = all.iter().map(|c| c.manager.as_str()).collect();
            managers.sort_unstable();
            managers.dedup();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                let theirs = all.iter().filter(|conflict| conflict.manager == manager);
                lines.extend(theirs.map(|conflict| format!("- {}", conflict.path)));
            }
            format!(
                "Apply failed with {} conflicts: {}",
                all.len(),
                lines.join("\n")
            )
        }
    };
    let causes = conflicts.iter().map(cause).collect();
    ApiError::new(409, Reason::Conflict, message).with_causes(causes)
}
