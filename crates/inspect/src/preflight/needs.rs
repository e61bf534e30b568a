//! Requirements as data: the binary builds them from the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use belayer_core::object::Resource;
use belayer_holds::names;
use belayer_holds::permissions::Permission;
use belayer_holds::selection::Namespaces;

/// A component, or an optional half of one. The [module's example](crate::preflight) makes one.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name, such as `pod-finalizer` or `pod-finalizer capture`.
    pub name: String,
    /// The roles of the manifests that grant its permissions.
    pub granted_by: &'static str,
    /// Its permissions.
    pub permissions: Vec<Permission>,
    /// The namespace of the Role that grants them, if that is not Belayer's own.
    pub role_namespace: Option<String>,
    /// The only namespaces in which it writes; empty for all.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Kinds that the server has to serve.
    pub kinds: Vec<Kind>,
    /// Policies that add its hold at creation.
    pub policies: Vec<Policy>,
    /// Policies that limit what its account may do with its permissions.
    pub limits: Vec<Limit>,
    /// Its finalizers and their kinds: no other controller should set them.
    pub holds: Vec<(Resource, String)>,
    /// The finalizers that it removes, those of other programs included, and their kinds: the write policy must allow it.
    pub removes: Vec<(Resource, String)>,
    /// How PVCs are protected, if this part protects PVCs.
    pub pvcs: Option<PvcMode>,
    /// Warnings about its configuration.
    pub advice: Vec<String>,
    /// Whether it holds pods of Argo Workflows, and if so, whether it also removes Argo's own finalizer.
    pub argo: Option<AdoptsArgo>,
}

/// Whether a part removes the finalizer of Argo's workflow controller together with its own. An
/// argument for a [part](crate::preflight).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptsArgo {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Part {
    /// A part that requires these permissions only.
    pub fn new(
        name: impl Into<String>,
        granted_by: &'static str,
        permissions: Vec<Permission>,
    ) -> Self {
        Self {
            name: name.into(),
            granted_by,
            permissions,
            role_namespace: None,
            namespaces: BTreeSet::new(),
            kinds: Vec::new(),
            policies: Vec::new(),
            limits: Vec::new(),
            holds: Vec::new(),
            removes: Vec::new(),
            pvcs: None,
            advice: Vec::new(),
            argo: None,
        }
    }
}

/// The namespaces that these rules list, if every rule lists some: outside of them nothing is
/// selected, and so nothing is written. It limits the namespaces of a
/// [`Part`](crate::preflight::Part).
pub fn only_in<'a>(rules: impl IntoIterator<Item = &'a Namespaces>) -> BTreeSet<Arc<str>> {
    let mut all = BTreeSet::new();
    for rule in rules {
        if rule.include.is_empty() {
            return BTreeSet::new();
        }
        all.extend(rule.include.iter().cloned());
    }
    all
}

/// A kind that a part needs. Included in a [`Part`](crate::preflight::Part).
#[derive(Debug, Clone)]
pub struct Kind {
    /// The kind, in the version that Belayer reads.
    pub resource: Resource,
    /// What does not work while it is not served.
    pub without: &'static str,
    /// How to install it, as a command or a hint; empty if it is part of Kubernetes.
    pub fix: &'static str,
    /// Whether its absence is only a note, as for a system that may not be installed.
    pub optional: bool,
}

impl Kind {
    /// A kind of another system, which may not be installed.
    pub fn optional(resource: Resource) -> Self {
        Self {
            resource,
            without: "objects of this kind are handled once it is served; everything else works",
            fix: "",
            optional: true,
        }
    }
}

/// A mutating admission policy that adds a hold at creation. Included in a
/// [`Part`](crate::preflight::Part).
#[derive(Debug, Clone)]
pub struct Policy {
    /// Name of the policy and of its binding.
    pub name: &'static str,
    /// The kind whose creation it has to match.
    pub resource: Resource,
    /// The finalizer that it has to add.
    pub finalizer: String,
    /// Label names that the configuration selects by; the policy must refer to them.
    pub labels: Vec<String>,
    /// Label names that the configuration selects by, of objects that the policy of the manifests leaves out: without
    /// them, these get their hold later.
    pub later: Vec<String>,
    /// The namespaces that each rule of the configuration selects; the policy must not add a hold in others. Empty
    /// for all namespaces.
    pub namespaces: Vec<Namespaces>,
    /// The key of the gate that switches it on.
    pub switch: &'static str,
}

/// A validating admission policy that denies what RBAC cannot. Included in a [`Part`](crate::preflight::Part).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Name of the policy and of its binding.
    pub name: &'static str,
    /// What it has to name.
    pub names: Named,
    /// What is possible without it.
    pub without: &'static str,
    /// A value that its variables have to contain, because of the configuration.
    pub also: Option<RequiredValue>,
}

/// What a policy has to name to have an effect. Included in a [`Limit`](crate::preflight::Limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The account of Belayer, in this field of its spec.
    Account {
        /// The field.
        field: &'static str,
    },
    /// Belayer's namespace, in its `matchConstraints`.
    Namespace,
}

/// A value in the variables of a policy. Included in a [`Limit`](crate::preflight::Limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredValue {
    /// The value.
    pub name: &'static str,
    /// What the policy denies without it.
    pub denied: &'static str,
    /// The consequence.
    pub without: &'static str,
    /// How to add it.
    pub fix: &'static str,
}

impl Limit {
    /// Limits which pods Belayer's accounts create and delete.
    pub const POD_DELETES: Self = Self {
        name: "belayer-pod-deletes",
        names: Named::Account {
            field: "matchConditions",
        },
        without: "Belayer's account may delete every pod that its permissions allow, and create any pod",
        also: None,
    };

    /// The same for a profile with `cleanup: argo`.
    pub const POD_CLEANUP: Self = Self {
        also: Some(RequiredValue {
            name: "Succeeded",
            denied: "the deletion of pods that succeeded",
            without: "`cleanup: argo` does not delete such a pod: each attempt is answered with 403",
            fix: "add 'Succeeded' to the variable `ended` of the policy",
        }),
        ..Self::POD_DELETES
    };

    /// Limits who writes the records of pod-recreation.
    pub const RECORDS: Self = Self {
        name: "belayer-pod-recreation-records",
        names: Named::Account { field: "variables" },
        without: "whoever may write PodRecreations and NodeWipes by RBAC can have Belayer create any pod, and have its node \
                  agent remove directories",
        also: None,
    };

    /// Guards Belayer's namespace and CRDs.
    pub const GUARD: Self = Self {
        name: names::NAMESPACE_GUARD,
        names: Named::Namespace,
        without: "Belayer's namespace and CRDs can be deleted before a drain: held objects then stay held, and records of \
                  pods that are still to be re-created are lost",
        also: None,
    };

    /// One of [`names::WRITE_POLICIES`].
    pub(super) const fn of_writes(name: &'static str) -> Self {
        Self {
            name,
            names: Named::Account {
                field: "matchConditions",
            },
            without: "Belayer's account may change any field of the objects that it may patch, and a switch of the gate that \
                      is off stays off",
            also: None,
        }
    }
}

/// How PVCs are protected. An argument for a [part](crate::preflight).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PvcMode {
    /// By kube-controller-manager's controller only; Belayer only reports.
    Advise,
    /// By Belayer alongside kube-controller-manager's controller, with Belayer's own finalizer.
    Own,
    /// By Belayer in place of that controller, with its finalizer.
    InPlace,
    /// As configured by Belayer in place of that controller; but Belayer's is switched off.
    InPlaceButOff,
}
