//! ValidatingAdmissionPolicies, MutatingAdmissionPolicies, and webhooks.

mod authorizer;
pub(crate) mod conversation;
mod expression;
mod matching;
mod mutate;
mod policy;
mod stored;
#[cfg(test)]
mod tests;
mod validate;
mod webhook;

use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};

use self::authorizer::RolesSnapshot;
use self::expression::{Scope, of_json, with_scope};
use self::policy::{Binding, Policy};
use crate::access::{Access, User};
use crate::address::{Gvr, ObjectKey};
use crate::attempt::Attempt;
use crate::kinds::{Registry, ResourceInfo};
use crate::meta;

pub(crate) use conversation::{Conversation, Question};
pub(crate) use stored::Policies;

impl Attempt<'_> {
    /// `request` in expressions.
    fn request(&self, user: &User) -> Value {
        let (api_version, kind) = self.kind;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = json!({"group": group, "version": version, "kind": kind});
        let resource = json!({"group": self.gvr.group, "version": self.gvr.version,
            "resource": self.gvr.resource});
        let mut request = json!({
            "uid": "",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "operation": self.operation.as_str(),
            "userInfo": user.to_json(),
            "dryRun": self.dry_run,
        });
        let texts = [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ];
        for (field, text) in texts {
            if !text.is_empty() {
                request[field] = json!(text);
            }
        }
        request
    }

    fn access(&self) -> Access {
        Access {
            group: self.gvr.group.to_string(),
            resource: self.gvr.resource.to_string(),
            subresource: self.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            ..Access::default()
        }
    }
}

/// The parts of the store that admission needs.
pub(crate) trait Store {
    fn kinds(&self) -> &Registry;
    fn object(&self, info: &ResourceInfo, key: &ObjectKey) -> Option<Arc<Value>>;
    fn objects(&self, info: &ResourceInfo) -> Vec<Arc<Value>>;
    /// Applies a JSON patch.
    fn patch(&self, object: &mut Value, patch: Value) -> Result<(), String>;
}

/// The policies, and who writes.
pub(crate) struct Admission<'a> {
    state: &'a dyn Store,
    policies: &'a Policies,
    user: User,
}

/// Why a policy cannot be applied.
struct Misconfigured(String);

impl<'a> Admission<'a> {
    pub(crate) fn new(state: &'a dyn Store, policies: &'a Policies, user: User) -> Self {
        Admission {
            state,
            policies,
            user,
        }
    }

    /// The namespace of a write, or the namespace that it writes.
    fn namespace(&self, attempt: &Attempt<'_>) -> Option<Arc<Value>> {
        let own = attempt.info.is(&Gvr::NAMESPACES);
        let name = if own { attempt.name } else { attempt.namespace };
        if own && let Some(object) = attempt.object {
            return Some(Arc::new(object.clone()));
        }
        let namespaces = self.state.kinds().find(&Gvr::NAMESPACES)?;
        let key = ObjectKey::new(None, name);
        self.state.object(namespaces, &key)
    }

    /// The bindings of a policy that are about a write.
    fn bindings<'p>(
        &self,
        policy: &'p Policy,
        attempt: &Attempt<'_>,
        namespace: Option<&Value>,
    ) -> Vec<&'p Binding> {
        if !policy.constraints.matches(attempt, namespace) {
            return Vec::new();
        }
        let all = policy.bindings.iter();
        all.filter(|binding| binding.constraints.matches(attempt, namespace))
            .collect()
    }

    /// The parameters of a policy; a policy without any runs once, with null.
    fn params(
        &self,
        policy: &Policy,
        binding: &Binding,
        attempt: &Attempt<'_>,
    ) -> Result<Vec<Arc<Value>>, Misconfigured> {
        let Some((api_version, kind)) = &policy.param_kind else {
            return Ok(vec![Arc::new(Value::Null)]);
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut kinds = self.state.kinds().all();
        let found = kinds.find(|info| {
            info.group == group && info.kind == *kind && info.version(version).is_some()
        });
        let Some(info) = found else {
            let shown = match group {
                "" => format!("/{version}, Kind={kind}"),
                group => format!("{group}/{version}, Kind={kind}"),
            };
            return Err(Misconfigured(format!("paramKind kind `{shown}` not known")));
        };
        let Some(wanted) = &binding.params else {
            return Ok(vec![Arc::new(Value::Null)]);
        };
        let namespace = match (info.namespaced(), wanted.namespace.as_str()) {
            (false, "") => "",
            (false, _) => {
                let why =
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
                return Err(Misconfigured(why.to_owned()));
            }
            (true, "") if attempt.namespace.is_empty() => {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(Misconfigured(why.to_owned()));
            }
            (true, "") => attempt.namespace,
            (true, namespace) => namespace,
        };
        let fits = |object: &Value| match &wanted.selector {
            Some(selector) => selector.matches(object),
            None => meta::name(object) == wanted.name,
        };
        let mut objects = self.state.objects(info);
        objects.retain(|object| meta::field(object, "namespace") == namespace && fits(object));
        if objects.is_empty() && wanted.required {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Err(Misconfigured(why.to_owned()));
        }
        Ok(objects)
    }

    /// The roles that a policy asks about.
    fn roles(&self, policy: &Policy) -> RolesSnapshot {
        let mut snapshot = RolesSnapshot::default();
        if policy.authorizes {
            let resources = [
                "roles",
                "rolebindings",
                "clusterroles",
                "clusterrolebindings",
            ];
            for resource in resources {
                let gvr = Gvr::new("rbac.authorization.k8s.io", "v1", resource);
                let info = self.state.kinds().find(&gvr);
                let objects = info.map(|info| self.state.objects(info));
                let objects = objects.into_iter().flatten();
                snapshot.0.extend(objects.map(|object| (resource, object)));
            }
        }
        snapshot
    }

    /// Calls a function with everything that the expressions of a policy can name.
    fn evaluate<T>(
        &self,
        policy: &Policy,
        params: &Value,
        attempt: &Attempt<'_>,
        namespace: Option<&Value>,
        call: impl FnOnce(&mut Scope<'_>) -> T,
    ) -> T {
        let of = |value: Option<&Value>| value.map_or(Cel::Null, of_json);
        let namespace = namespace.filter(|_| !attempt.info.is(&Gvr::NAMESPACES));
        let mut values = vec![
            ("object", of(attempt.object)),
            ("oldObject", of(attempt.old)),
            ("request", of_json(&attempt.request(&self.user))),
            ("params", of_json(params)),
            ("namespaceObject", of(namespace)),
        ];
        if policy.authorizes {
            let roles = Arc::new(self.roles(policy));
            let own = |access| authorizer::value(&roles, &self.user, access);
            values.push(("authorizer", own(Access::default())));
            values.push(("authorizer.requestResource", own(attempt.access())));
        }
        with_scope(values, &policy.variables, call)
    }
}

/// Whether the conditions of a policy hold.
///
/// # Errors
/// Unless one of them does not hold, the errors of the others.
fn meets(policy: &Policy, scope: &mut Scope<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in &policy.conditions {
        match scope.value(condition) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => return Ok(false),
            Err(why) => errors.push(why),
        }
    }
    match errors.len() {
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}
