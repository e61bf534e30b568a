//! Replace, and the rules for every change of an existing object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::{check_name, check_namespace, check_subresource, check_type, undecodable};
use super::write::{Entry, check_size};
use super::written::Written;
use super::{
    Cluster, State, WriteOptions, at_version, definitions, event_view, locate, managed, shape,
};
use crate::address::{Actor, Gvr, ObjectKey, Subresource};
use crate::error::{ApiError, Cause, Reason};
use crate::fields::Managers;
use crate::kinds::{
    ResourceInfo, StatusFace, Traits, crd, data, lease, namespace, node, pod, volume,
};
use crate::recorder::Verb;
use crate::{meta, validate};

/// The message of a version conflict.
const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Cluster {
    /// Replaces an object and returns it as stored.
    ///
    /// # Errors
    /// As kube-apiserver: 400, 404, 409, 422.
    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    pub fn update(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        object: Value,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let written =
            self.update_written(actor, gvr, namespace, name, object, subresource, options)?;
        Ok(written.object)
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    pub(crate) fn update_written(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        object: Value,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if event_view::shows(gvr) {
            let (core, object) = (&Gvr::EVENTS, event_view::incoming(object));
            let updated =
                self.update_written(actor, core, namespace, name, object, subresource, options);
            return event_view::written(updated);
        }
        let entry = Entry {
            actor,
            verb: Verb::Update,
            gvr,
            subresource: subresource.as_str(),
            key: ObjectKey::new(namespace, name),
            body: None,
            dry_run: options.dry_run,
        };
        let options = options.managed_by(actor);
        self.write(entry, |state| {
            self.update_in(state, gvr, namespace, name, object, subresource, &options)
        })
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    fn update_in(
        &self,
        state: &mut State,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        mut object: Value,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (info, key) = locate(state, gvr, namespace, name)?;
        check_subresource(&info, gvr, subresource)?;
        if !info.custom {
            meta::strip_nulls(&mut object);
        }
        let mut dropped = shape::unknown_metadata(&info, &object);
        meta::normalise(&mut object).map_err(|why| undecodable(&info, gvr, &why))?;
        check_type(&info, gvr, &mut object)?;
        let pruned = shape::custom(&info, gvr, &mut object);
        dropped.extend(pruned.map_err(|why| undecodable(&info, gvr, &why))?);
        let warnings = shape::judge(&info, gvr, shape::unknown(dropped), options)?;
        check_name(&object, name)?;
        check_namespace(&mut object, namespace)?;
        let Some(stored) = state.get(&info, &key).cloned() else {
            if info.has(Traits::CREATE_ON_UPDATE) && subresource == Subresource::None {
                meta::set(&mut object, "name", json!(name));
                meta::unset(&mut object, "resourceVersion");
                return self.create_in(state, gvr, namespace, object, None, options);
            }
            return Err(ApiError::not_found(&info.group, &info.resource, name));
        };
        let old = at_version(&info, &gvr.version, Arc::clone(&stored));
        let uid = meta::uid(&object);
        if !uid.is_empty() && uid != meta::uid(&old) {
            let path = info.storage_path(&key.namespace, &key.name);
            let (group, resource) = (&info.group, &info.resource);
            return Err(ApiError::wrong_uid(
                group,
                resource,
                name,
                &path,
                uid,
                meta::uid(&old),
            ));
        }
        let applied = self.apply(
            state,
            &info,
            gvr,
            &key,
            (&stored, &old),
            object,
            None,
            subresource,
            options,
        )?;
        Ok(applied.warn(warnings))
    }

    /// Checks a proposed state against the stored one, which the request's version shows as `old`, and stores it, or removes
    /// the object when the proposal removes its last finalizer. `applied` is who owns what after a server-side apply.
    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    pub(super) fn apply(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        gvr: &Gvr,
        key: &ObjectKey,
        (stored, old): (&Arc<Value>, &Arc<Value>),
        mut new: Value,
        applied: Option<Managers>,
        subresource: Subresource,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        check_version(info, key, old, &mut new)?;
        let sent = managed::take_sent(&mut new);
        carry_metadata(old, &mut new);
        new["apiVersion"] = json!(info.api_version(&info.storage_version));
        new["kind"] = json!(info.kind);
        if info.is(&Gvr::NAMESPACES) {
            namespace::canonicalise(&mut new);
        }
        let (space, prior) = (&*key.namespace, Some((old, subresource)));
        let changed = state.mutated((info, gvr), space, &new, prior, options.dry_run)?;
        // What policies change has no owner.
        let own = changed.map(|changed| {
            let mut own = std::mem::replace(&mut new, changed);
            isolate(info, gvr, old, &mut own, subresource);
            meta::unset(&mut own, managed::FIELD);
            settle(info, &mut own);
            own
        });
        isolate(info, gvr, old, &mut new, subresource);
        new["apiVersion"] = json!(info.api_version(&info.storage_version));
        meta::unset(&mut new, managed::FIELD);
        if info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS) && subresource == Subresource::None {
            crd::prepare_update(&mut new);
        }
        let twice = shape::dedup_owners(&mut new);
        settle(info, &mut new);
        count_generation(info, gvr, old, &mut new);
        let mut causes = check_change(info, old, &mut new, subresource);
        let misfits = shape::misfits(info, gvr, &new, Some(old));
        causes.extend(misfits.causes);
        if !causes.is_empty() {
            return Err(ApiError::invalid(
                &info.group,
                &info.kind,
                &key.name,
                causes,
            ));
        }
        let asked = state.validated((info, gvr), space, &key.name, &new, prior, options.dry_run)?;
        let request = self.request(info, gvr, subresource, options);
        let written = own.as_ref().unwrap_or(&new);
        let managers = applied.unwrap_or_else(|| request.updated(sent, old, written));
        if info.custom {
            shape::store(info, &mut new);
        }
        if managed::is_same(stored, &new) && managers.same_but_times(managed::of(stored)) {
            return Ok(Written::unchanged(Arc::clone(stored)));
        }
        managed::set(&mut new, managers);
        if goes_away(info, old, &new) {
            if !options.dry_run {
                self.remove_in(state, info, key);
            }
            return Ok(Written::removed(Arc::new(new)));
        }
        let warnings: Vec<String> = (asked.into_iter().chain(twice))
            .chain(misfits.warnings)
            .collect();
        if options.dry_run {
            return Ok(Written::changed(Arc::new(new)).warn(warnings));
        }
        check_size(&new)?;
        let stored = state.put(info, key, new);
        if info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS) {
            definitions::changed(state, &stored);
        }
        Ok(Written::changed(stored).warn(warnings))
    }

    /// Removes an object from the store, with its consequences.
    pub(crate) fn remove_in(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
    ) -> Option<Arc<Value>> {
        let last = state.remove(info, key)?;
        if info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS) {
            definitions::removed(state, &last);
        }
        if info.custom {
            definitions::instance_removed(self, state, info);
        }
        Some(last)
    }
}

fn check_version(
    info: &ResourceInfo,
    key: &ObjectKey,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let current = meta::field(old, "resourceVersion");
    let given = meta::field(new, "resourceVersion");
    if given == current {
        return Ok(());
    }
    if given.is_empty() || given == "0" {
        if info.has(Traits::UNCONDITIONAL_UPDATE) {
            let current = current.to_owned();
            meta::set(new, "resourceVersion", json!(current));
            return Ok(());
        }
        let cause = Cause::invalid(
            "metadata.resourceVersion",
            "0",
            "must be specified for an update",
        );
        // The only error that names the resource where others name the kind.
        return Err(ApiError::invalid(
            &info.group,
            &info.resource,
            &key.name,
            vec![cause],
        ));
    }
    if given.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
        return Err(ApiError::new(500, Reason::Unknown, message));
    }
    Err(ApiError::conflict(
        &info.group,
        &info.resource,
        &key.name,
        MODIFIED,
    ))
}

/// Restores fields that an update may omit, or that it cannot change but may send.
fn carry_metadata(old: &Value, new: &mut Value) {
    let Some(had) = old.get("metadata").and_then(Value::as_object) else {
        return;
    };
    let Some(metadata) = meta::metadata_mut(new) else {
        return;
    };
    for field in ["creationTimestamp", "generation"] {
        match had.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    if let Some(at) = had.get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".into(), at.clone());
    }
    for field in ["uid", "deletionGracePeriodSeconds", "namespace"] {
        if let Some(value) = had.get(field)
            && !metadata.contains_key(field)
        {
            metadata.insert(field.into(), value.clone());
        }
    }
}

fn carry(old: &Value, new: &mut Value, field: &str) {
    let Some(map) = new.as_object_mut() else {
        return;
    };
    match old.get(field) {
        Some(value) => {
            // Mostly equal: comparing is cheaper than cloning a whole status.
            if map.get(field) != Some(value) {
                map.insert(field.to_owned(), value.clone());
            }
        }
        None => {
            map.remove(field);
        }
    }
}

/// Restricts a write to its side of the status subresource.
fn isolate(info: &ResourceInfo, gvr: &Gvr, old: &Value, new: &mut Value, subresource: Subresource) {
    let face = info.status_face(&gvr.version);
    match subresource {
        Subresource::None | Subresource::Scale => {
            if face != StatusFace::None {
                carry(old, new, "status");
            }
            if info.is(&Gvr::NAMESPACES) {
                namespace::keep_spec_finalizers(old, new);
            }
        }
        Subresource::Finalize => carry(old, new, "status"),
        Subresource::Status => {
            let mut kept = json!({});
            if let Some(map) = new.as_object_mut() {
                for field in ["status", "metadata"] {
                    if let Some(value) = map.remove(field) {
                        kept[field] = value;
                    }
                }
            }
            let version = kept["metadata"].get("resourceVersion").cloned();
            if face == StatusFace::StatusOnly {
                kept["metadata"] = old["metadata"].clone();
            } else if info.is(&Gvr::PODS) {
                // Old kubelets sent broken owner references here, so the server ignores them.
                let owners = meta::at(old, &["metadata", "ownerReferences"]).cloned();
                match owners {
                    Some(owners) => meta::set(&mut kept, "ownerReferences", owners),
                    None => meta::unset(&mut kept, "ownerReferences"),
                }
            }
            if let Some(version) = version {
                meta::set(&mut kept, "resourceVersion", version);
            }
            if let (Some(map), Some(had)) = (kept.as_object_mut(), old.as_object()) {
                for (field, value) in had {
                    if field != "status" && field != "metadata" {
                        map.insert(field.clone(), value.clone());
                    }
                }
            }
            *new = kept;
        }
    }
}

fn count_generation(info: &ResourceInfo, gvr: &Gvr, old: &Value, new: &mut Value) {
    if !info.has(Traits::GENERATION) {
        return;
    }
    let counts = |field: &str| match field {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => info.status_face(&gvr.version) == StatusFace::None,
        _ => info.custom || field != "status",
    };
    let counted = |object: &Value| {
        object
            .as_object()
            .map_or(0, |m| m.keys().filter(|k| counts(k)).count())
    };
    let same = counted(old) == counted(new)
        && old.as_object().is_none_or(|m| {
            m.iter()
                .filter(|(k, _)| counts(k))
                .all(|(k, v)| new.get(k) == Some(v))
        });
    if same {
        return;
    }
    let generation = meta::at(old, &["metadata", "generation"]).and_then(Value::as_i64);
    meta::set(
        new,
        "generation",
        json!(generation.unwrap_or(0).saturating_add(1)),
    );
}

/// Kind-specific defaults of a changed object, before it is checked.
fn settle(info: &ResourceInfo, new: &mut Value) {
    if info.custom || !info.group.is_empty() {
        return;
    }
    match info.resource.as_str() {
        "pods" => pod::settle(new),
        "nodes" => node::settle(new),
        "secrets" => data::settle_secret(new),
        _ => {}
    }
}

/// All errors in changing `old` into `new`.
fn check_change(
    info: &ResourceInfo,
    old: &Value,
    new: &mut Value,
    subresource: Subresource,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (had, has) = (&old["metadata"], &new["metadata"]);
    for field in ["name", "namespace", "uid", "deletionTimestamp"] {
        if had.get(field) != has.get(field) {
            let value = has.get(field).cloned().unwrap_or_else(|| json!(""));
            let path = format!("metadata.{field}");
            causes.push(Cause::invalid(
                &path,
                &value.to_string(),
                "field is immutable",
            ));
        }
    }
    let field = "deletionGracePeriodSeconds";
    if had.get(field) != has.get(field) {
        let value = has.get(field).cloned().unwrap_or(Value::Null);
        let path = format!("metadata.{field}");
        causes.push(Cause::invalid(
            &path,
            &value.to_string(),
            "field is immutable",
        ));
    }
    if meta::is_deleting(old) {
        let before = meta::finalizers(old);
        let mut added: Vec<&str> = meta::finalizers(new)
            .iter()
            .filter(|f| !before.contains(f))
            .filter_map(Value::as_str)
            .collect();
        added.sort_unstable();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    // The real server validates metadata twice, and reports every error twice.
    causes.extend_from_within(..);
    if !meta::same_without(had, has, managed::FIELD) {
        let found = validate::metadata(info, new);
        if !info.custom {
            // Errors in labels and annotations even three or four times.
            let more = if info.group.is_empty() { 2 } else { 1 };
            causes.extend(found.clone());
            causes.extend((0..more).flat_map(|_| validate::texts_of(new)));
        }
        causes.extend(found);
    }
    if info.is(&Gvr::PODS) && subresource == Subresource::None {
        causes.extend(pod::check_update(old, new));
    }
    if info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS) && subresource == Subresource::None {
        causes.extend(crd::check_update(old, new));
    }
    if !info.custom && info.group.is_empty() && subresource == Subresource::None {
        causes.extend(match info.resource.as_str() {
            "configmaps" | "secrets" => data::check_update(&info.resource, old, new),
            "persistentvolumeclaims" => volume::check_pvc_update(old, new),
            "persistentvolumes" => volume::check_update(old, new),
            // Twice, as metadata.
            "nodes" => [node::check(new), node::check(new)].concat(),
            _ => Vec::new(),
        });
    }
    if info.is(&Gvr::LEASES) {
        causes.extend(lease::check(new));
    }
    if info.is(&Gvr::NAMESPACES) && subresource == Subresource::Status {
        causes.extend(namespace::check_status(new));
    }
    causes
}

/// True when `new` removes the last finalizer of an object whose grace period has ended.
fn goes_away(info: &ResourceInfo, old: &Value, new: &Value) -> bool {
    if !meta::is_deleting(old) || !meta::finalizers(new).is_empty() {
        return false;
    }
    if info.is(&Gvr::NAMESPACES) {
        return namespace::spec_finalizers(new).is_empty();
    }
    meta::grace(old).is_none_or(|seconds| seconds == 0)
}
