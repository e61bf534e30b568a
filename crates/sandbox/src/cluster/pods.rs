//! Pod subresources that write: binding and eviction.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::check_preconditions;
use super::write::Entry;
use super::written::Written;
use super::{Cluster, DeleteOptions, Preconditions, State, WriteOptions, locate};
use crate::address::{Actor, Gvr, ObjectKey};
use crate::error::ApiError;
use crate::kinds::ResourceInfo;
use crate::meta;
use crate::recorder::Verb;

impl Cluster {
    /// Binds a pod to a node, as a scheduler does through `pods/binding`.
    ///
    /// # Errors
    /// 404; 409 when the pod has a node already or is being deleted.
    pub fn bind(
        &self,
        actor: &Actor,
        namespace: &str,
        name: &str,
        node: &str,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let entry = Entry {
            actor,
            verb: Verb::Create,
            gvr: &Gvr::PODS,
            subresource: "binding",
            key: ObjectKey::new(Some(namespace), name),
            body: Some(Arc::new(json!({"target": {"kind": "Node", "name": node}}))),
            dry_run: options.dry_run,
        };
        let written = self.write(entry, |state| {
            self.bind_in(state, namespace, name, node, options)
        })?;
        Ok(written.object)
    }

    fn bind_in(
        &self,
        state: &mut State,
        namespace: &str,
        name: &str,
        node: &str,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (info, key) = locate(state, &Gvr::PODS, Some(namespace), name)?;
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"kind": "Node", "name": node},
        });
        let admitted = state.admitted((&info, "binding"), &key, binding, options.dry_run);
        let (binding, warnings) = admitted?;
        let node = meta::text(&binding, &["target", "name"]);
        let Some(old) = state.get(&info, &key).cloned() else {
            return Err(ApiError::not_found("", "pods", name));
        };
        let conflict = |why: &str| Err(ApiError::conflict("", "pods/binding", name, why));
        if meta::is_deleting(&old) {
            return conflict(&format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let taken = meta::text(&old, &["spec", "nodeName"]);
        if !taken.is_empty() {
            return conflict(&format!("pod {name} is already assigned to node {taken:?}"));
        }
        if old["spec"].get("schedulingGates").is_some() {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut new = Value::clone(&old);
        new["spec"]["nodeName"] = json!(node);
        let condition = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": self.clock().now_rfc3339(),
        });
        set_condition(&mut new, condition);
        let written = match options.dry_run {
            true => Arc::new(new),
            false => state.put(&info, &key, new),
        };
        Ok(Written::changed(written).warn(warnings))
    }

    /// Deletes a pod on behalf of a drain. There are no disruption budgets, so none stands in the way.
    ///
    /// # Errors
    /// As [`Cluster::delete`].
    pub fn evict(
        &self,
        actor: &Actor,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let entry = Entry {
            actor,
            verb: Verb::Create,
            gvr: &Gvr::PODS,
            subresource: "eviction",
            key: ObjectKey::new(Some(namespace), name),
            body: Some(Arc::new(options.to_json())),
            dry_run: options.dry_run,
        };
        self.write(entry, |state| {
            // An eviction is admitted as such, and not as a deletion.
            let (info, key) = locate(state, &Gvr::PODS, Some(namespace), name)?;
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options.to_json(),
            });
            let admitted = state.admitted((&info, "eviction"), &key, eviction, options.dry_run);
            let (_, warnings) = admitted?;
            state.author = None;
            let mut options = options.clone();
            if !options.dry_run {
                self.mark_evicted(state, &info, &key, &mut options.preconditions)?;
            }
            let deleted = self.delete_in(state, &Gvr::PODS, Some(namespace), name, &options)?;
            Ok(deleted.warn(warnings))
        })
        .map(drop)
    }

    /// Adds the `DisruptionTarget` condition to a pod that is about to be evicted. The preconditions then are those of the
    /// deletion that follows.
    fn mark_evicted(
        &self,
        state: &mut State,
        info: &Arc<ResourceInfo>,
        key: &ObjectKey,
        preconditions: &mut Preconditions,
    ) -> Result<(), ApiError> {
        let Some(old) = state.get(info, key).cloned() else {
            return Err(ApiError::not_found("", "pods", &key.name));
        };
        check_preconditions(info, &old, &key.name, preconditions)?;
        let mut new = Value::clone(&old);
        set_condition(
            &mut new,
            json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastProbeTime": null,
                "lastTransitionTime": self.clock().now_rfc3339(),
            }),
        );
        if new == *old {
            return Ok(());
        }
        let marked = state.put(info, key, new);
        if preconditions.resource_version.is_some() {
            let version = meta::field(&marked, "resourceVersion");
            preconditions.resource_version = Some(version.to_owned());
        }
        Ok(())
    }
}

/// Sets a condition at its place among the others. Its time stays if only its reason changes.
fn set_condition(pod: &mut Value, mut condition: Value) {
    if !pod.get("status").is_some_and(Value::is_object) {
        pod["status"] = json!({});
    }
    let conditions = pod["status"]
        .get_mut("conditions")
        .and_then(Value::as_array_mut);
    match conditions {
        Some(list) => match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(had) => {
                if had["status"] == condition["status"] {
                    condition["lastTransitionTime"] = had["lastTransitionTime"].clone();
                }
                *had = condition;
            }
            None => list.push(condition),
        },
        None => pod["status"]["conditions"] = json!([condition]),
    }
}
