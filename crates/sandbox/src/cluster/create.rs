//! Create.

use std::sync::Arc;

use serde_json::{Value, json};

use super::write::{Entry, check_size};
use super::written::Written;
use super::{Cluster, State, WriteOptions, definitions, event_view, locate, managed, shape};
use crate::address::{Actor, Gvr, ObjectKey, Subresource};
use crate::error::{ApiError, Cause, Reason};
use crate::fields::Managers;
use crate::kinds::{
    ResourceInfo, Scope, StatusFace, Traits, crd, data, event, lease, namespace, node, pod, volume,
};
use crate::recorder::Verb;
use crate::{meta, validate};

impl Cluster {
    /// Stores a new object and returns it as stored.
    ///
    /// # Errors
    /// As kube-apiserver: 400, 403 in a namespace that is being deleted, 404, 409, 422.
    pub fn create(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let written = self.create_written(actor, gvr, namespace, object, options)?;
        Ok(written.object)
    }

    pub(crate) fn create_written(
        &self,
        actor: &Actor,
        gvr: &Gvr,
        namespace: Option<&str>,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if event_view::shows(gvr) {
            let mut object = event_view::incoming(object);
            check_namespace(&mut object, namespace)?;
            event_view::check_new(&object)?;
            let core = &Gvr::EVENTS;
            let created = self.create_written(actor, core, namespace, object, options);
            return event_view::written(created);
        }
        let entry = Entry {
            actor,
            verb: Verb::Create,
            gvr,
            subresource: "",
            key: ObjectKey::new(namespace, meta::name(&object)),
            body: None,
            dry_run: options.dry_run,
        };
        let options = options.managed_by(actor);
        self.write(entry, |state| {
            self.create_in(state, gvr, namespace, object, None, &options)
        })
    }

    pub(super) fn create_in(
        &self,
        state: &mut State,
        gvr: &Gvr,
        namespace: Option<&str>,
        mut object: Value,
        applied: Option<Managers>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (info, _) = locate(state, gvr, namespace, "")?;
        let namespace = namespace.filter(|_| info.scope == Scope::Namespaced);
        if !info.custom {
            meta::strip_nulls(&mut object);
        }
        let mut dropped = shape::unknown_metadata(&info, &object);
        meta::normalise(&mut object).map_err(|why| undecodable(&info, gvr, &why))?;
        let sent = managed::take_sent(&mut object);
        check_type(&info, gvr, &mut object)?;
        let pruned = shape::custom(&info, gvr, &mut object);
        dropped.extend(pruned.map_err(|why| undecodable(&info, gvr, &why))?);
        let mut warnings = shape::judge(&info, gvr, shape::unknown(dropped), options)?;
        check_namespace(&mut object, namespace)?;
        namespace_lifecycle(state, &info, namespace, &object)?;
        if !meta::field(&object, "resourceVersion").is_empty() {
            return Err(ApiError::new(
                500,
                Reason::Unknown,
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let space = namespace.unwrap_or_default();
        let mut own = None;
        if state.has_mutating(&info) {
            let mut seen = object.clone();
            drop(prepare(&info, &mut seen));
            let changed = state.mutated((&info, gvr), space, &seen, None, options.dry_run)?;
            // What policies change has no owner.
            own = changed.map(|changed| {
                object = changed;
                seen
            });
        }
        self.name_it(state, &info, namespace, &mut object);
        self.fill_system_fields(&info, &gvr.version, &mut object);
        State::identify(&mut object);
        let admitted = managed::admitted(&info, &object);
        let mut causes = prepare(&info, &mut object);
        if meta::name(&object).is_empty() {
            causes = vec![Cause::required(
                "metadata.name",
                "name or generateName is required",
            )];
        } else {
            causes.extend(validate::generate_name(&info, &object));
            causes.extend(validate::metadata(&info, &object));
            causes.extend(shape::misfits(&info, gvr, &object, None).causes);
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid(
                &info.group,
                &info.kind,
                meta::name(&object),
                causes,
            ));
        }
        if let Some(forbidden) = &options.create_forbidden {
            return Err(forbidden.clone());
        }
        let key = ObjectKey::new(namespace, meta::name(&object));
        let asked = state.validated(
            (&info, gvr),
            space,
            &key.name,
            &object,
            None,
            options.dry_run,
        );
        warnings.extend(asked?);
        if state.get(&info, &key).is_some() {
            return Err(ApiError::already_exists(
                &info.group,
                &info.resource,
                &key.name,
            ));
        }
        warnings.extend(shape::dedup_owners(&mut object));
        if let Some(managers) = applied {
            managed::set(&mut object, managers);
        } else {
            let mut request = self.request(&info, gvr, Subresource::None, options);
            request.admitted = admitted;
            let mut managers = sent.or(&[], &info, Subresource::None);
            request.writer(|writer| {
                managers.update(&json!({}), own.as_ref().unwrap_or(&object), writer);
            });
            managed::set(&mut object, managers);
        }
        if info.custom {
            shape::store(&info, &mut object);
        }
        let is_definition = info.is(&Gvr::CUSTOMRESOURCEDEFINITIONS);
        if is_definition {
            warnings.extend(crd::warnings(&object));
        }
        if options.dry_run {
            return Ok(Written::created(Arc::new(object)).warn(warnings));
        }
        check_size(&object)?;
        let stored = state.put(&info, &key, object);
        if is_definition {
            definitions::accept(self, state, &info, &key);
        }
        Ok(Written::created(stored).warn(warnings))
    }

    fn name_it(
        &self,
        state: &State,
        info: &ResourceInfo,
        namespace: Option<&str>,
        object: &mut Value,
    ) {
        let base = meta::field(object, "generateName").to_owned();
        if !meta::name(object).is_empty() || base.is_empty() {
            return;
        }
        // The real generator keeps 63 characters minus the five of the suffix.
        let base: String = base.chars().take(58).collect();
        loop {
            let name = format!("{base}{}", self.rng().name_suffix());
            if state.get(info, &ObjectKey::new(namespace, &name)).is_none() {
                return meta::set(object, "name", json!(name));
            }
        }
    }

    fn fill_system_fields(&self, info: &ResourceInfo, version: &str, object: &mut Value) {
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            meta::unset(object, field);
        }
        meta::set(object, "uid", json!(self.rng().uuid()));
        meta::set(
            object,
            "creationTimestamp",
            json!(self.clock().now_rfc3339()),
        );
        if info.has(Traits::GENERATION) {
            meta::set(object, "generation", json!(1));
        }
        let keeps =
            info.has(Traits::STATUS_ON_CREATE) || info.status_face(version) == StatusFace::None;
        if !keeps && let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
    }
}

/// Kind-specific defaults and checks of a new object.
fn prepare(info: &ResourceInfo, object: &mut Value) -> Vec<Cause> {
    if info.custom {
        return Vec::new();
    }
    match (info.group.as_str(), info.resource.as_str()) {
        ("", "pods") => pod::prepare_create(object),
        ("", "namespaces") => {
            namespace::prepare_create(object);
            Vec::new()
        }
        ("", "persistentvolumeclaims" | "persistentvolumes") => volume::prepare_create(object),
        ("", "configmaps" | "secrets") => data::prepare_create(&info.resource, object),
        ("", "nodes") => node::prepare_create(object),
        ("", "events") => event::check(object, "reportingComponent"),
        ("coordination.k8s.io", "leases") => lease::check(object),
        ("apiextensions.k8s.io", _) => crd::prepare_create(object),
        _ => Vec::new(),
    }
}

/// 400 of a body whose fields have wrong types.
pub(super) fn undecodable(info: &ResourceInfo, gvr: &Gvr, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}",
        kind = info.kind,
        version = gvr.version
    ))
}

/// The body must be of the resource's kind. Built-in kinds may omit apiVersion and kind.
pub(super) fn check_type(
    info: &ResourceInfo,
    gvr: &Gvr,
    object: &mut Value,
) -> Result<(), ApiError> {
    let wanted = gvr.api_version();
    let kind = meta::text(object, &["kind"]).to_owned();
    let api_version = meta::text(object, &["apiVersion"]).to_owned();
    if info.custom {
        for (field, text) in [("Kind", &kind), ("apiVersion", &api_version)] {
            if text.is_empty() {
                let body = serde_json::to_string(object).unwrap_or_default();
                return Err(ApiError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{body}' ({body})",
                    info.kind
                )));
            }
        }
    }
    if info.custom && kind != info.kind && api_version == wanted {
        let cause = Cause::invalid(
            "kind",
            &format!("{kind:?}"),
            &format!("must be {}", info.kind),
        );
        return Err(ApiError::invalid(
            &info.group,
            &kind,
            meta::name(object),
            vec![cause],
        ));
    }
    if !kind.is_empty() && kind != info.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: converting ({version}.{kind}) to ({wanted}): unknown conversion",
            version = api_version.rsplit('/').next().unwrap_or_default(),
            wanted = info.kind
        )));
    }
    if !api_version.is_empty() && api_version != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        )));
    }
    object["kind"] = json!(info.kind);
    object["apiVersion"] = json!(wanted);
    Ok(())
}

pub(super) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    let given = meta::name(object);
    if given == name {
        return Ok(());
    }
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({name})"
    )))
}

pub(super) fn check_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
    let Some(namespace) = namespace else {
        meta::unset(object, "namespace");
        return Ok(());
    };
    let given = meta::field(object, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set(object, "namespace", json!(namespace));
    Ok(())
}

/// Nothing is created in a namespace that does not exist or is being deleted.
fn namespace_lifecycle(
    state: &State,
    info: &ResourceInfo,
    namespace: Option<&str>,
    object: &Value,
) -> Result<(), ApiError> {
    let Some(name) = namespace else {
        return definitions::refuse_terminating(state, info, meta::name(object));
    };
    let found = state
        .kinds
        .find(&Gvr::NAMESPACES)
        .and_then(|namespaces| state.get(namespaces, &ObjectKey::new(None, name)));
    let Some(found) = found else {
        return Err(ApiError::not_found("", "namespaces", name));
    };
    if meta::is_deleting(found) {
        let cause = Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        };
        let why = format!(
            "unable to create new content in namespace {name} because it is being terminated"
        );
        return Err(
            ApiError::forbidden(&info.group, &info.resource, meta::name(object), &why)
                .with_causes(vec![cause]),
        );
    }
    definitions::refuse_terminating(state, info, meta::name(object))
}

/// Whether the kind has that subresource for writes.
pub(super) fn check_subresource(
    info: &ResourceInfo,
    gvr: &Gvr,
    subresource: Subresource,
) -> Result<(), ApiError> {
    if info.serves(&gvr.version, subresource) {
        Ok(())
    } else {
        Err(ApiError::not_served())
    }
}
