//! Which requests a policy or a binding is about.

use serde_json::Value;

use super::Attempt;
use crate::kinds::Scope;
use crate::meta;
use crate::selector::LabelSelector;

/// `matchConstraints` of a policy, or `matchResources` of a binding.
#[derive(Debug, Default)]
pub(super) struct Constraints {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

/// One of its rules.
#[derive(Debug)]
pub(super) struct Rule {
    groups: Vec<String>,
    versions: Vec<String>,
    operations: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

pub(super) fn list<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    let list = meta::at(object, path).and_then(Value::as_array);
    list.into_iter().flatten()
}

pub(super) fn texts(object: &Value, field: &str) -> Vec<String> {
    list(object, &[field])
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn selector(object: &Value, field: &str) -> LabelSelector {
    let selector = object.get(field).and_then(LabelSelector::of);
    selector.unwrap_or_default()
}

impl Constraints {
    pub(super) fn of(object: Option<&Value>) -> Self {
        let Some(object) = object else {
            return Constraints::default();
        };
        Constraints {
            rules: list(object, &["resourceRules"]).map(Rule::of).collect(),
            excluded: list(object, &["excludeResourceRules"])
                .map(Rule::of)
                .collect(),
            namespaces: selector(object, "namespaceSelector"),
            objects: selector(object, "objectSelector"),
        }
    }

    /// Whether a request is meant; `namespace` is the namespace of the object.
    pub(super) fn matches(&self, attempt: &Attempt<'_>, namespace: Option<&Value>) -> bool {
        let any = |rules: &[Rule]| rules.iter().any(|rule| rule.matches(attempt));
        if any(&self.excluded) || !(self.rules.is_empty() || any(&self.rules)) {
            return false;
        }
        let labelled = |object: Option<&Value>| object.is_some_and(|o| self.objects.matches(o));
        let object = self.objects.is_empty() || labelled(attempt.object) || labelled(attempt.old);
        object && namespace.is_none_or(|namespace| self.namespaces.matches(namespace))
    }
}

impl Rule {
    pub(super) fn of(rule: &Value) -> Self {
        Rule {
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            operations: texts(rule, "operations"),
            resources: texts(rule, "resources"),
            names: texts(rule, "resourceNames"),
            scope: meta::text(rule, &["scope"]).to_owned(),
        }
    }

    fn matches(&self, attempt: &Attempt<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == "*" || one == text);
        let resource = |resource: &String| {
            let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
            (name == "*" || name == attempt.info.resource)
                && (sub == "*" || sub == attempt.subresource)
        };
        let scope = match self.scope.as_str() {
            "Cluster" => attempt.info.scope == Scope::Cluster,
            "Namespaced" => attempt.info.scope == Scope::Namespaced,
            _ => true,
        };
        scope
            && has(&self.groups, &attempt.gvr.group)
            && has(&self.versions, &attempt.gvr.version)
            && has(&self.operations, attempt.operation.as_str())
            && self.resources.iter().any(resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attempt.name))
    }
}
