//! Results of live reads: the fields of each kind that a diagnosis needs.

use belayer_core::object::Resource;

use crate::details::Condition;

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
    /// Namespace and name of the PVC it is bound to.
    pub pvc: Option<(String, String)>,
    /// `Bound`, `Released`, ...
    pub phase: String,
    /// What its status reports: why the disk could not be deleted, for example. It may be empty.
    pub message: String,
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
    /// Groups, resources and operations; `*` is any.
    pub rules: Vec<(Vec<String>, Vec<String>, Vec<String>)>,
    /// Whether selectors or conditions may exclude objects.
    pub may_leave_out: bool,
}

impl DeadWebhook {
    /// Whether it intercepts this operation on objects of this kind, unless it excludes them.
    pub(crate) fn intercepts(&self, operation: &str, kind: &Resource) -> bool {
        // No webhook intercepts the configuration of admission itself.
        if &*kind.group == "admissionregistration.k8s.io" {
            return false;
        }
        let any = |list: &[String], wanted: &str| {
            list.iter()
                .any(|item| item == "*" || item == "*/*" || item == wanted)
        };
        self.rules.iter().any(|(groups, resources, operations)| {
            any(groups, &kind.group) && any(resources, &kind.plural) && any(operations, operation)
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::any_kind("apps", "deployments", true)]
    #[case::the_configuration_of_webhooks(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        false
    )]
    fn a_webhook_for_all_kinds_intercepts(
        #[case] group: &str,
        #[case] plural: &str,
        #[case] expected: bool,
    ) {
        let any = || vec!["*".to_owned()];
        let webhook = DeadWebhook {
            resource: "validatingwebhookconfigurations",
            configuration: "guard".to_owned(),
            name: "guard.example.com".to_owned(),
            service: ("default".to_owned(), "guard".to_owned()),
            rules: vec![(any(), any(), any())],
            may_leave_out: false,
        };
        let kind = Resource::new(group, "v1", "Any", plural);
        assert_eq!(webhook.intercepts("UPDATE", &kind), expected);
    }
}
