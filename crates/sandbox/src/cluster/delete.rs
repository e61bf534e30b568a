//! Delete: preconditions, finalizers, grace periods, propagation.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::write::Entry;
use super::written::{Effect, Written};
use super::{
    Cluster, DeleteOptions, Deleted, ListOptions, Preconditions, Propagation, State, definitions,
    event_view, locate,
};
use crate::address::{Actor, Gvr, ObjectKey};
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::kinds::{ResourceInfo, Traits, namespace, pod};
use crate::meta;
use crate::recorder::Verb;

const PRESERVED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// The effect of the grace period of a delete request.
enum Graceful {
    /// The kind has none, or it has run out.
    No,
    /// The object gets this deadline and grace period.
    Set { at: Timestamp, seconds: i64 },
    /// An earlier delete already set a grace period that is not longer.
    Pending,
}

impl Cluster {
    /// Deletes an object, or marks it to be deleted.
    ///
    /// # Errors
    /// As kube-apiserver: 403 for protected namespaces, 404, 409 on a precondition.
    pub fn delete(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let written = self.delete_written(actor, gvr, namespace, name, options)?;
        Ok(match written.effect {
            Effect::Removed => Deleted::Gone(written.object),
            _ => Deleted::Terminating(written.object),
        })
    }

    pub(crate) fn delete_written(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Written, ApiError> {
        if event_view::shows(gvr) {
            let deleted = self.delete_written(actor, &Gvr::EVENTS, namespace, name, options);
            return event_view::written(deleted);
        }
        let entry = Entry {
            actor,
            verb: Verb::Delete,
            gvr,
            subresource: "",
            key: ObjectKey::new(namespace, name),
            body: Some(Arc::new(options.to_json())),
            dry_run: options.dry_run,
        };
        self.write(entry, |state| {
            let deleted = self.delete_in(state, gvr, namespace, name, options)?;
            let asked = options.propagation_policy.is_some();
            let orphans = state
                .kinds
                .find(gvr)
                .is_some_and(|i| i.has(Traits::ORPHANS_BY_DEFAULT));
            Ok(if orphans && !asked {
                deleted.warn(vec![PRESERVED.to_owned()])
            } else {
                deleted
            })
        })
    }

    /// Deletes everything that a list would return; returns the objects as they were before.
    ///
    /// # Errors
    /// The first refusal; what was deleted before it stays deleted.
    pub fn delete_collection(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        options: &DeleteOptions,
        list: &ListOptions,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        if event_view::shows(gvr) {
            let list = event_view::list_options(list);
            let deleted = self.delete_collection(actor, &Gvr::EVENTS, namespace, options, &list)?;
            let shown = deleted
                .iter()
                .map(|event| Arc::new(event_view::outgoing(event)));
            return Ok(shown.collect());
        }
        let page = self.list(gvr, namespace, list)?;
        for object in &page.items {
            let home = meta::field(object, "namespace").to_owned();
            let name = meta::name(object);
            let entry = Entry {
                actor,
                verb: Verb::DeleteCollection,
                gvr,
                subresource: "",
                key: ObjectKey::new(Some(&home), name),
                body: Some(Arc::new(options.to_json())),
                dry_run: options.dry_run,
            };
            let done = self.write(entry, |state| {
                self.delete_in(state, gvr, Some(&home), name, options)
            });
            match done {
                // Deleted by another client in the meantime.
                Err(error) if error.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(page.items)
    }

    pub(crate) fn delete_in(
        &self,
        state: &mut State,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Written, ApiError> {
        let (info, key) = locate(state, gvr, namespace, name)?;
        self.delete_known(state, &info, &key, options)
    }

    pub(crate) fn delete_known(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Written, ApiError> {
        let name: &str = &key.name;
        let Some(old) = state.get(info, key).cloned() else {
            return Err(ApiError::not_found(&info.group, &info.resource, name));
        };
        if info.is(&Gvr::NAMESPACES) && super::FIRST_NAMESPACES.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden("", "namespaces", name, why));
        }
        if info.is(&Gvr::NAMESPACES) {
            check_namespace_uid(&old, name, &options.preconditions)?;
        }
        check_preconditions(info, &old, name, &options.preconditions)?;
        let is_waiting = info.is(&Gvr::NAMESPACES)
            && meta::is_deleting(&old)
            && !namespace::spec_finalizers(&old).is_empty();
        if is_waiting || matches!(self.grace(info, &old, options), Graceful::Pending) {
            return Ok(Written::unchanged(old));
        }
        let warnings = state.deletable(info, key, &old, options.dry_run)?;
        let special = info.is(&Gvr::NAMESPACES) || info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS);
        if special && !meta::is_deleting(&old) {
            let started = self.start_special_delete(state, info, key, &old, options);
            return Ok(started.warn(warnings));
        }
        let deleted = self.delete_object(state, info, key, &old, options);
        Ok(deleted.warn(warnings))
    }

    fn delete_object(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Written {
        let graceful = self.grace(info, old, options);
        let mut new = Value::clone(old);
        let finalizers = finalizers_after(info, old, options);
        let waits = !finalizers.is_empty();
        meta::set_finalizers(&mut new, finalizers);
        let mut grace_left = 0;
        match graceful {
            Graceful::Set { at, seconds } => {
                if !meta::is_deleting(old) {
                    bump_generation(&mut new);
                }
                meta::set(&mut new, "deletionTimestamp", json!(rfc3339(at)));
                meta::set(&mut new, "deletionGracePeriodSeconds", json!(seconds));
                grace_left = seconds;
            }
            _ if waits => self.mark_deleting(&mut new),
            _ => {
                return self.gone(state, info, key, old, options);
            }
        }
        let stored = self.store(state, info, key, old, new, options);
        if waits || grace_left > 0 {
            return stored;
        }
        let last = Arc::clone(&stored.object);
        self.gone(state, info, key, &last, options)
    }

    fn gone(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        last: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Written {
        if options.dry_run {
            return Written::removed(Arc::clone(last));
        }
        let before = state.rv;
        let Some(removed) = self.remove_in(state, info, key) else {
            return Written::removed(Arc::clone(last));
        };
        let mut answer = Value::clone(&removed);
        let version = before.saturating_add(1).to_string();
        meta::set(&mut answer, "resourceVersion", json!(version));
        Written::removed(Arc::new(answer))
    }

    fn store(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        old: &Arc<Value>,
        new: Value,
        options: &DeleteOptions,
    ) -> Written {
        if new == **old {
            return Written::unchanged(Arc::clone(old));
        }
        if options.dry_run {
            return Written::changed(Arc::new(new));
        }
        Written::changed(state.put(info, key, new))
    }

    /// Marks an object that has finalizers and no grace period of its own as deleted.
    fn mark_deleting(&self, object: &mut Value) {
        if meta::grace(object).is_none() {
            bump_generation(object);
        }
        let now = self.clock().now();
        let later = meta::field(object, "deletionTimestamp")
            .parse::<Timestamp>()
            .is_ok_and(|at| at > now);
        if !meta::is_deleting(object) || later {
            meta::set(object, "deletionTimestamp", json!(rfc3339(now)));
        }
        meta::set(object, "deletionGracePeriodSeconds", json!(0));
    }

    fn grace(&self, info: &ResourceInfo, old: &Value, options: &DeleteOptions) -> Graceful {
        if !info.is(&Gvr::PODS) {
            return Graceful::No;
        }
        if !meta::is_deleting(old) {
            let seconds = pod::grace(old, options.grace_period_seconds);
            let at = after(self.clock().now(), seconds);
            return Graceful::Set { at, seconds };
        }
        let Some(had) = meta::grace(old).filter(|had| *had != 0) else {
            return Graceful::No;
        };
        let Some(wanted) = options.grace_period_seconds.filter(|wanted| *wanted < had) else {
            return Graceful::Pending;
        };
        let deadline = meta::field(old, "deletionTimestamp").parse::<Timestamp>();
        let deadline = deadline.unwrap_or_else(|_| self.clock().now());
        Graceful::Set {
            at: after(deadline, wanted.saturating_sub(had)),
            seconds: wanted,
        }
    }

    /// Namespaces and CRDs stay until their content is gone.
    fn start_special_delete(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Written {
        let mut new = Value::clone(old);
        meta::set_finalizers(&mut new, finalizers_after(info, old, options));
        meta::set(
            &mut new,
            "deletionTimestamp",
            json!(self.clock().now_rfc3339()),
        );
        let is_crd = info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS);
        if is_crd {
            definitions::mark_terminating(self, &mut new);
        } else {
            namespace::mark_terminating(&mut new);
        }
        let stored = self.store(state, info, key, old, new, options);
        if is_crd && !options.dry_run {
            definitions::changed(state, &stored.object);
            definitions::delete_instances(self, state, &stored.object);
        }
        stored
    }
}

fn bump_generation(object: &mut Value) {
    let generation = meta::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|g| *g > 0) {
        meta::set(object, "generation", json!(generation.saturating_add(1)));
    }
}

/// `at + seconds`, limited to the range of a timestamp.
fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(at)
}

/// Namespaces have their own message.
fn check_namespace_uid(old: &Value, name: &str, wanted: &Preconditions) -> Result<(), ApiError> {
    let found = meta::uid(old);
    let Some(wanted) = wanted.uid.as_deref().filter(|wanted| *wanted != found) else {
        return Ok(());
    };
    let why =
        format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    Err(ApiError::conflict("", "namespaces", name, &why))
}

pub(super) fn check_preconditions(
    info: &ResourceInfo,
    old: &Value,
    name: &str,
    wanted: &Preconditions,
) -> Result<(), ApiError> {
    let checks = [
        (
            "UID",
            wanted.uid.as_deref(),
            meta::uid(old),
            "deleted and then recreated",
        ),
        (
            "ResourceVersion",
            wanted.resource_version.as_deref(),
            meta::field(old, "resourceVersion"),
            "modified",
        ),
    ];
    for (what, wanted, found, guess) in checks {
        let Some(wanted) = wanted.filter(|wanted| *wanted != found) else {
            continue;
        };
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {guess}"
        );
        return Err(ApiError::conflict(&info.group, &info.kind, name, &why));
    }
    Ok(())
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The finalizers of an object after the delete's propagation policy is applied.
fn finalizers_after(info: &ResourceInfo, old: &Value, options: &DeleteOptions) -> Vec<Value> {
    let had = meta::finalizers(old);
    if info.has(Traits::NO_GARBAGE_COLLECTION) {
        return had.to_vec();
    }
    let by_default = if info.has(Traits::ORPHANS_BY_DEFAULT) {
        Propagation::Orphan
    } else {
        Propagation::Background
    };
    let policy = options.propagation_policy.unwrap_or_else(|| {
        let asked = had.iter().filter_map(Value::as_str).find_map(|f| match f {
            ORPHAN => Some(Propagation::Orphan),
            FOREGROUND => Some(Propagation::Foreground),
            _ => None,
        });
        asked.unwrap_or(by_default)
    });
    let wanted = match policy {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    if let Some(wanted) = wanted
        && had.iter().any(|f| f == wanted)
        && !had
            .iter()
            .any(|f| (f == ORPHAN || f == FOREGROUND) && f != wanted)
    {
        return had.to_vec();
    }
    let mut finalizers: Vec<Value> = had
        .iter()
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .cloned()
        .collect();
    finalizers.extend(wanted.map(|f| json!(f)));
    finalizers
}

impl DeleteOptions {
    /// The options as a client sends them.
    pub fn to_json(&self) -> Value {
        let mut out = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(seconds) = self.grace_period_seconds {
            out["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(policy) = self.propagation_policy {
            out["propagationPolicy"] = json!(policy.as_str());
        }
        if let Some(uid) = &self.preconditions.uid {
            out["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.preconditions.resource_version {
            out["preconditions"]["resourceVersion"] = json!(version);
        }
        if self.dry_run {
            out["dryRun"] = json!(["All"]);
        }
        out
    }
}
