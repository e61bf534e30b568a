//! Results of live reads: the fields of each kind that a diagnosis needs.

use crate::details::{BoundPvc, Condition, Rule};
use crate::kinds::Kind;
use crate::report::Unseen;

/// A namespace being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamespaceState {
    /// `spec.finalizers`.
    pub finalizers: Vec<String>,
    /// Conditions that are true.
    pub conditions: Vec<Condition>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodState {
    /// Its name.
    pub name: String,
    /// Its node; empty before it is bound.
    pub node: String,
    /// Its phase.
    pub phase: String,
    /// PVCs it refers to.
    pub pvcs: Vec<String>,
}

impl PodState {
    /// Whether it uses this PVC of its namespace: it is bound to a node and refers to it.
    pub(crate) fn uses(&self, pvc: &str) -> bool {
        !self.node.is_empty() && self.pvcs.iter().any(|name| name == pvc)
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// Its condition `Ready`.
    pub ready: Option<Condition>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeState {
    /// The PVC it is bound to, or was.
    pub pvc: Option<BoundPvc>,
    /// `Bound`, `Released`, ...
    pub phase: String,
    /// What its status reports: why the disk could not be deleted, for example. It may be empty.
    pub message: String,
    /// Its CSI driver; empty if it has none.
    pub driver: String,
}

impl VolumeState {
    /// The PVC that it is bound to, as its status says.
    pub(crate) fn bound_pvc(&self) -> Option<&BoundPvc> {
        self.pvc.as_ref().filter(|_| self.phase == "Bound")
    }
}

/// An attachment of a volume to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachmentState {
    /// Its name.
    pub name: String,
    /// The volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// The CSI driver.
    pub attacher: String,
    /// Whether the driver reports it as attached.
    pub attached: bool,
    /// Why it could not be detached.
    pub error: Option<String>,
}

/// An APIService that is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadApiService {
    /// `v1.metrics.example.com`.
    pub name: String,
    /// `metrics.example.com/v1`.
    pub group_version: String,
    /// The service behind it.
    pub service: Option<(String, String)>,
    /// Its condition `Available`.
    pub condition: Condition,
}

/// The webhooks that reject what they intercept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Webhooks {
    /// They have `failurePolicy: Fail` and no ready endpoint.
    pub dead: Vec<DeadWebhook>,
    /// What could not be read: there may be more of them.
    pub unseen: Vec<Unseen>,
}

/// A webhook with `failurePolicy: Fail` whose service has no ready endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadWebhook {
    /// `validatingwebhookconfigurations` or `mutatingwebhookconfigurations`.
    pub resource: &'static str,
    /// The configuration.
    pub configuration: String,
    /// The webhook in it.
    pub name: String,
    /// Namespace and name of the service.
    pub service: (String, String),
    /// What it intercepts.
    pub rules: Vec<Rule>,
    /// Whether only the versions of its rules count (`matchPolicy: Exact`).
    pub exact: bool,
    /// Whether selectors or conditions may exclude objects.
    pub may_leave_out: bool,
}

/// Whether a webhook intercepts an operation, unless it excludes the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Intercepts {
    /// It does not.
    No,
    /// If a version that its rules list is served for the same objects: then the API server converts them for it.
    InAnotherVersion,
    /// It does.
    Yes,
}

impl DeadWebhook {
    /// Whether it intercepts this operation on objects of this kind, or on a subresource of them that is not empty, unless
    /// it excludes them.
    pub(crate) fn intercepts(&self, operation: &str, kind: &Kind, subresource: &str) -> Intercepts {
        // No webhook intercepts the configuration of admission itself.
        if &*kind.resource.group == "admissionregistration.k8s.io" {
            return Intercepts::No;
        }
        let of_rule = |rule: &Rule| match () {
            () if !matches(rule, operation, kind, subresource) => Intercepts::No,
            () if lists(&rule.api_versions, &kind.resource.version) => Intercepts::Yes,
            () if self.exact => Intercepts::No,
            () => Intercepts::InAnotherVersion,
        };
        let all = self.rules.iter().map(of_rule);
        all.max().unwrap_or(Intercepts::No)
    }
}

/// Whether a rule matches in any version, as the API server evaluates it.
fn matches(rule: &Rule, operation: &str, kind: &Kind, subresource: &str) -> bool {
    let scope = match rule.scope.as_deref() {
        None | Some("*") => true,
        Some("Namespaced") => kind.namespaced,
        Some("Cluster") => !kind.namespaced,
        Some(_) => false,
    };
    // `pods/*` matches pods and all of their subresources.
    let resource = rule.resources.iter().any(|item| {
        let (plural, its) = item.split_once('/').unwrap_or((item, ""));
        let is_kind = plural == "*" || plural == &*kind.resource.plural;
        is_kind && (its == "*" || its == subresource)
    });
    scope
        && resource
        && lists(&rule.operations, operation)
        && lists(&rule.api_groups, &kind.resource.group)
}

fn lists(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == "*" || item == wanted)
}

#[cfg(test)]
mod tests {
    use belayer_core::object::Resource;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// As the API server's own matcher, for an update of `v1` pods or of another kind.
    #[rstest]
    #[case::the_resource(json!({}), "pods", Intercepts::Yes)]
    #[case::another_resource(json!({}), "nodes", Intercepts::No)]
    #[case::another_operation(json!({ "operations": ["CREATE"] }), "pods", Intercepts::No)]
    #[case::another_group(json!({ "apiGroups": ["apps"] }), "pods", Intercepts::No)]
    #[case::all(json!({ "resources": ["*"] }), "pods", Intercepts::Yes)]
    #[case::all_with_subresources(json!({ "resources": ["*/*"] }), "pods", Intercepts::Yes)]
    #[case::with_its_subresources(json!({ "resources": ["pods/*"] }), "pods", Intercepts::Yes)]
    #[case::a_subresource(json!({ "resources": ["pods/status"] }), "pods", Intercepts::No)]
    #[case::of_all(json!({ "resources": ["*/status"] }), "pods", Intercepts::No)]
    #[case::any_scope(json!({ "scope": "*" }), "pods", Intercepts::Yes)]
    #[case::namespaced(json!({ "scope": "Namespaced" }), "pods", Intercepts::Yes)]
    #[case::cluster_scoped(json!({ "scope": "Cluster" }), "pods", Intercepts::No)]
    #[case::namespaces(json!({ "resources": ["*"], "scope": "Namespaced" }), "namespaces", Intercepts::No)]
    #[case::namespaces_themselves(json!({ "resources": ["*"], "scope": "Cluster" }), "namespaces", Intercepts::Yes)]
    #[case::any_version(json!({ "apiVersions": ["*"] }), "pods", Intercepts::Yes)]
    #[case::another_version(json!({ "apiVersions": ["v2"] }), "pods", Intercepts::InAnotherVersion)]
    #[case::only_another_version(json!({ "apiVersions": ["v2"], "exact": true }), "pods", Intercepts::No)]
    #[case::only_this_version(json!({ "exact": true }), "pods", Intercepts::Yes)]
    fn a_rule_matches_as_in_the_api_server(
        #[case] changes: Value,
        #[case] plural: &str,
        #[case] expected: Intercepts,
    ) {
        let mut rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"],
        });
        let exact = changes["exact"] == true;
        let changes = changes.as_object().unwrap().clone();
        rule.as_object_mut().unwrap().extend(changes);
        let webhook = webhook(serde_json::from_value(rule).unwrap(), exact);
        let kind = kind("", plural, plural == "pods");
        assert_eq!(webhook.intercepts("UPDATE", &kind, ""), expected);
    }

    #[rstest]
    #[case::the_subresource("pods/finalize", Intercepts::Yes)]
    #[case::another_one("pods/status", Intercepts::No)]
    #[case::only_the_resource("pods", Intercepts::No)]
    #[case::all_resources("*", Intercepts::No)]
    #[case::all_subresources("*/*", Intercepts::Yes)]
    fn a_rule_matches_a_subresource(#[case] resource: &str, #[case] expected: Intercepts) {
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource],
        });
        let webhook = webhook(serde_json::from_value(rule).unwrap(), false);
        let kind = kind("", "pods", true);
        assert_eq!(webhook.intercepts("UPDATE", &kind, "finalize"), expected);
    }

    #[rstest]
    #[case::any_kind("apps", "deployments", Intercepts::Yes)]
    #[case::the_configuration_of_webhooks(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        Intercepts::No
    )]
    fn a_webhook_for_all_kinds_intercepts(
        #[case] group: &str,
        #[case] plural: &str,
        #[case] expected: Intercepts,
    ) {
        let any = || vec!["*".to_owned()];
        let rule = Rule {
            api_groups: any(),
            api_versions: any(),
            resources: any(),
            operations: any(),
            scope: None,
        };
        let kind = kind(group, plural, true);
        let webhook = webhook(rule, false);
        assert_eq!(webhook.intercepts("UPDATE", &kind, ""), expected);
    }

    fn webhook(rule: Rule, exact: bool) -> DeadWebhook {
        DeadWebhook {
            resource: "validatingwebhookconfigurations",
            configuration: "guard".to_owned(),
            name: "guard.example.com".to_owned(),
            service: ("default".to_owned(), "guard".to_owned()),
            rules: vec![rule],
            exact,
            may_leave_out: false,
        }
    }

    fn kind(group: &str, plural: &str, namespaced: bool) -> Kind {
        Kind {
            resource: Resource::new(group, "v1", "Any", plural),
            namespaced,
            singular: String::new(),
            short_names: Vec::new(),
            deletable: true,
            versions: Vec::new(),
        }
    }
}
