//! Rights: what a component has to be allowed, as data. Each component lists its own once; the
//! manifests, the pre-flight check and its test are all compared with that list.

use std::fmt;
use std::sync::Arc;

use crate::names;
use belayer_core::object::Resource;

/// Where a right is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In every namespace, or of a kind that has none: a ClusterRole.
    Cluster,
    /// In Belayer's own namespace: a Role.
    OwnNamespace,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// Where.
    pub place: Place,
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural of the resource, such as `pods`.
    pub resource: Arc<str>,
    /// `status`, or empty for the resource itself.
    pub subresource: &'static str,
    /// The one object that it is about; `None` for all.
    pub name: Option<&'static str>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// What does not work without it, as the end of a sentence that begins with "without it".
    pub without: &'static str,
}

impl Right {
    /// `verb` on a resource, in every namespace.
    pub fn new(group: &str, resource: &str, verb: &'static str, without: &'static str) -> Self {
        Self {
            place: Place::Cluster,
            group: group.into(),
            resource: resource.into(),
            subresource: "",
            name: None,
            verb,
            without,
        }
    }

    /// Several verbs on one kind, for one purpose.
    pub fn on(
        kind: &Resource,
        verbs: &'static [&'static str],
        without: &'static str,
    ) -> impl Iterator<Item = Self> {
        verbs
            .iter()
            .map(move |verb| Self::new(&kind.group, &kind.plural, verb, without))
    }

    /// The same on one object in Belayer's own namespace.
    #[must_use]
    pub fn own(self, name: Option<&'static str>) -> Self {
        Self {
            place: Place::OwnNamespace,
            name,
            ..self
        }
    }

    /// The same on a subresource.
    #[must_use]
    pub fn subresource(self, subresource: &'static str) -> Self {
        Self {
            subresource,
            ..self
        }
    }
}

/// `patch pods`, `patch configmaps belayer-gate`, as `kubectl auth can-i` takes it.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

/// To read and follow a kind.
pub const FOLLOW: &[&str] = &["get", "list", "watch"];

/// What every component stands on, whichever run.
pub fn ground() -> Vec<Right> {
    const BLIND: &str =
        "nothing starts: no rule can tell which namespaces are being deleted or left out";
    const MUTE: &str = "objects carry no Event that says why they wait";
    const SWITCH: &str = "the gate does not close while too much waits, and draining is not seen";
    let gate = || Right::new("", "configmaps", "get", SWITCH).own(Some(names::GATE_CONFIG_MAP));
    let namespaces = Resource::namespaces();
    let mut rights: Vec<Right> = Right::on(&namespaces, FOLLOW, BLIND).collect();
    rights.extend([
        Right::new("", "events", "create", MUTE),
        Right::new("", "events", "patch", MUTE),
        Right::new(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "get",
            "what is held for owners of a kind that was deleted is held until the kind is back",
        ),
    ]);
    rights.extend(["get", "list", "watch", "update", "patch"].map(|verb| Right { verb, ..gate() }));
    rights.push(Right::new("", "configmaps", "create", SWITCH).own(None));
    rights
}

/// To be elected: where several replicas run, one of them writes.
pub fn election() -> Vec<Right> {
    const NOBODY: &str = "no replica is ever elected: nothing is held and nothing is released";
    let lease = |verb| Right::new("coordination.k8s.io", "leases", verb, NOBODY);
    vec![
        lease("get").own(Some(names::FIELD_MANAGER)),
        lease("patch").own(Some(names::FIELD_MANAGER)),
        lease("create").own(None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_reads_as_kubectl_takes_it() {
        let pods = Right::new("", "pods", "patch", "x");
        assert_eq!(pods.to_string(), "patch pods");
        assert_eq!(pods.subresource("status").to_string(), "patch pods/status");
        let gate = Right::new("", "configmaps", "get", "x").own(Some("belayer-gate"));
        assert_eq!(gate.to_string(), "get configmaps belayer-gate");
        let workflows = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
        let follow: Vec<String> = Right::on(&workflows, FOLLOW, "x")
            .map(|r| r.to_string())
            .collect();
        assert_eq!(
            follow,
            [
                "get workflows.argoproj.io",
                "list workflows.argoproj.io",
                "watch workflows.argoproj.io"
            ]
        );
    }
}
