//! What is needed, as data: the binary fills it in from the configuration.

use belayer_core::object::Resource;
use belayer_holds::rights::Right;
use belayer_holds::selection::Namespaces;

/// A component, or an optional half of one.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name, such as `pod-finalizer` or `pod-finalizer capture`.
    pub name: String,
    /// The roles of the manifests that grant its rights, for people to apply.
    pub granted_by: &'static str,
    /// What it has to be allowed.
    pub rights: Vec<Right>,
    /// What the server has to serve.
    pub kinds: Vec<Kind>,
    /// Policies that add its hold at creation.
    pub policies: Vec<Policy>,
    /// Its finalizers, and the kinds they are on: nobody else should set them.
    pub holds: Vec<(Resource, String)>,
    /// How claims are held, where this part holds claims.
    pub claims: Option<Claims>,
    /// What in its configuration may not have the effect that an admin expects, in words.
    pub advice: Vec<String>,
}

impl Part {
    /// A part that needs these permissions and nothing else.
    pub fn new(name: impl Into<String>, granted_by: &'static str, rights: Vec<Right>) -> Self {
        Self {
            name: name.into(),
            granted_by,
            rights,
            kinds: Vec::new(),
            policies: Vec::new(),
            holds: Vec::new(),
            claims: None,
            advice: Vec::new(),
        }
    }
}

/// A kind that a part needs.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Which, at the version it is read at.
    pub resource: Resource,
    /// What does not work while it is not served, as the end of a sentence.
    pub without: &'static str,
    /// How it gets there, as a command or a hint; empty where it is part of Kubernetes.
    pub fix: &'static str,
    /// Whether the part waits for it quietly, as for a system that may not be installed.
    pub optional: bool,
}

impl Kind {
    /// A kind that may not be installed, of a system that is not Belayer's.
    pub fn optional(resource: Resource) -> Self {
        Self {
            resource,
            without: "the component waits for it and starts when it appears; the others work",
            fix: "",
            optional: true,
        }
    }
}

/// A mutating admission policy that adds a hold at creation.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Name of the policy and of its binding.
    pub name: &'static str,
    /// The kind whose creation it has to match.
    pub resource: Resource,
    /// The finalizer that it has to add.
    pub finalizer: String,
    /// Label names that the configuration selects by, and that it has to mention.
    pub labels: Vec<String>,
    /// Where each rule of the configuration selects: elsewhere it must not add a hold. Everywhere if
    /// there is no rule.
    pub namespaces: Vec<Namespaces>,
    /// The key of the gate ConfigMap that switches it on.
    pub switch: &'static str,
}

/// How claims are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// Not at all: kube-controller-manager's controller protects them, and Belayer only reports.
    Advised,
    /// Beside kube-controller-manager's controller, by a name of our own.
    Beside,
    /// In its place, by its name.
    Replacing,
}
