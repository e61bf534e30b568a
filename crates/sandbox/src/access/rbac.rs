//! Role-based access control over the stored roles and bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use super::attributes::Access;
use crate::meta;
use crate::selector::LabelSelector;
use crate::user::{AUTHENTICATED, MASTERS, User, service_account};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The answer to an access review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// For humans: the binding that allows it.
    pub(crate) reason: String,
}

/// The stored roles and bindings.
pub(crate) trait Roles {
    /// All objects of a resource, in one namespace or in all.
    fn list(&self, resource: &'static str, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// The object of that name.
    fn get(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Value>>;
}

/// Whether a user has a permission.
pub(crate) fn allowed(cluster: &dyn Roles, user: &User, access: &Access) -> Decision {
    if user.groups.iter().any(|group| group == MASTERS) {
        return Decision {
            allowed: true,
            reason: String::new(),
        };
    }
    let mut decision = Decision::default();
    let problems = visit(cluster, user, &access.namespace, &mut |source, rule| {
        decision.allowed = allows(rule, access);
        if decision.allowed {
            decision.reason = format!("RBAC: allowed by {source}");
        }
        !decision.allowed
    });
    if !decision.allowed && !problems.is_empty() {
        decision.reason = match problems.as_slice() {
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
    }
    decision
}

/// All rules of a user in a namespace.
pub(crate) fn rules_for(cluster: &dyn Roles, user: &User, namespace: &str) -> Vec<Value> {
    let mut rules = Vec::new();
    if user.groups.iter().any(|group| group == MASTERS) {
        rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    visit(cluster, user, namespace, &mut |_, rule| {
        rules.push(rule.clone());
        true
    });
    rules
}

/// Calls `each` with every rule of a user and its source, until it returns false. Returns the roles that do not exist.
fn visit(
    cluster: &dyn Roles,
    user: &User,
    namespace: &str,
    each: &mut dyn FnMut(&str, &Value) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    if user.groups.iter().any(|group| group == AUTHENTICATED) {
        for (name, rule) in everybody() {
            let source = format!(
                "ClusterRoleBinding {name:?} of ClusterRole {name:?} to Group {AUTHENTICATED:?}"
            );
            if !each(&source, &rule) {
                return problems;
            }
        }
    }
    let cluster_wide = cluster.list("clusterrolebindings", None);
    let local = match namespace {
        "" => Vec::new(),
        namespace => cluster.list("rolebindings", Some(namespace)),
    };
    for binding in cluster_wide.iter().chain(&local) {
        let own = meta::field(binding, "namespace");
        let Some(subject) = subject_of(binding, user, own) else {
            continue;
        };
        let (kind, role) = (
            meta::text(binding, &["roleRef", "kind"]),
            meta::text(binding, &["roleRef", "name"]),
        );
        let Some(rules) = rules_of(cluster, kind, role, own) else {
            let resource = kind.to_lowercase();
            problems.push(format!("{resource}.{GROUP} {role:?} not found"));
            continue;
        };
        let (kind_of_binding, name) = match own {
            "" => ("ClusterRoleBinding", meta::name(binding).to_owned()),
            own => ("RoleBinding", format!("{}/{own}", meta::name(binding))),
        };
        let source = format!("{kind_of_binding} {name:?} of {kind} {role:?} to {subject}");
        if !rules.iter().all(|rule| each(&source, rule)) {
            return problems;
        }
    }
    problems
}

/// What a new cluster allows to every authenticated user.
fn everybody() -> [(&'static str, Value); 4] {
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    [
        (
            "system:basic-user",
            json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews}),
        ),
        (
            "system:basic-user",
            json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
        ),
        (
            "system:discovery",
            json!({"verbs": ["get"], "nonResourceURLs": paths}),
        ),
        (
            "system:public-info-viewer",
            json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}),
        ),
    ]
}

/// The subject of a binding that a user is, as reasons name it.
fn subject_of(binding: &Value, user: &User, namespace: &str) -> Option<String> {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects.into_iter().flatten().find_map(|subject| {
        let (kind, name) = (
            meta::text(subject, &["kind"]),
            meta::text(subject, &["name"]),
        );
        match kind {
            "User" => (name == user.name).then(|| format!("User {name:?}")),
            "Group" => {
                let member = user.groups.iter().any(|group| group == name);
                member.then(|| format!("Group {name:?}"))
            }
            "ServiceAccount" => {
                let own = meta::text(subject, &["namespace"]);
                let own = if own.is_empty() { namespace } else { own };
                let account = service_account(&user.name) == Some((own, name));
                account.then(|| format!("ServiceAccount {:?}", format!("{name}/{own}")))
            }
            _ => None,
        }
    })
}

/// The rules of a role; `None` if there is no such role.
fn rules_of(cluster: &dyn Roles, kind: &str, name: &str, namespace: &str) -> Option<Vec<Value>> {
    let (resource, namespace) = match kind {
        "Role" => ("roles", Some(namespace)),
        _ => ("clusterroles", None),
    };
    let role = cluster.get(resource, namespace, name)?;
    let rules = |role: &Value| -> Vec<Value> {
        let rules = role.get("rules").and_then(Value::as_array);
        rules.cloned().unwrap_or_default()
    };
    let selectors = meta::at(&role, &["aggregationRule", "clusterRoleSelectors"]);
    let Some(selectors) = selectors.and_then(Value::as_array) else {
        return Some(rules(&role));
    };
    // A controller of the real cluster copies the rules.
    let selectors: Vec<LabelSelector> = selectors.iter().filter_map(LabelSelector::of).collect();
    let others = cluster.list("clusterroles", None);
    let chosen = others
        .iter()
        .filter(|other| selectors.iter().any(|selector| selector.matches(other)));
    Some(chosen.flat_map(|other| rules(other)).collect())
}

fn has(rule: &Value, field: &str, fits: impl Fn(&str) -> bool) -> bool {
    let list = rule.get(field).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .any(fits)
}

fn allows(rule: &Value, access: &Access) -> bool {
    if !has(rule, "verbs", |verb| verb == "*" || verb == access.verb) {
        return false;
    }
    if let Some(path) = &access.path {
        return has(rule, "nonResourceURLs", |url| {
            let prefix = url.ends_with('*').then(|| url.trim_end_matches('*'));
            url == path || prefix.is_some_and(|prefix| path.starts_with(prefix))
        });
    }
    let whole = match access.subresource.as_str() {
        "" => access.resource.clone(),
        subresource => format!("{}/{subresource}", access.resource),
    };
    let resource = |known: &str| {
        let suffix = known
            .strip_prefix("*/")
            .filter(|_| !access.subresource.is_empty());
        known == "*" || known == whole || suffix == Some(&access.subresource)
    };
    let names = rule.get("resourceNames").and_then(Value::as_array);
    has(rule, "apiGroups", |group| {
        group == "*" || group == access.group
    }) && has(rule, "resources", resource)
        && (names.is_none_or(Vec::is_empty)
            || has(rule, "resourceNames", |name| name == access.name))
}
