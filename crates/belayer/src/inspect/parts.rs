//! What each component needs, as the configuration has it: each one's own list of rights, and the
//! kinds and policies around it.

#[cfg(any(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pod-recreation",
    feature = "pvc-protection"
))]
use belayer_core::object::Resource;
use belayer_holds::names;
use belayer_holds::rights;
#[cfg(any(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pod-recreation"
))]
use belayer_inspect::preflight::Kind;
use belayer_inspect::preflight::Part;
#[cfg(any(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pod-recreation",
    feature = "pvc-protection"
))]
use belayer_inspect::preflight::Policy;

use crate::config::Source;
use crate::controllers::Controllers;
use crate::exit::Failure;

/// Everything that the controllers that run need, by this configuration.
///
/// # Errors
///
/// When the configuration makes no sense.
pub fn parts(source: &Source, controllers: &Controllers) -> Result<Vec<Part>, Failure> {
    #[allow(unused_mut, reason = "a build without components adds nothing to it")]
    let mut parts = vec![
        part(
            "every component",
            "ClusterRole belayer-core and Role belayer-gate",
            rights::ground(),
        ),
        part(
            "leader election",
            "Role belayer-leader-election",
            rights::election(),
        ),
    ];
    for controller in controllers.iter() {
        match controller {
            #[cfg(feature = "pod-finalizer")]
            crate::controllers::Controller::PodFinalizer => parts.extend(pod_finalizer(source)?),
            #[cfg(feature = "workflow-finalizer")]
            crate::controllers::Controller::WorkflowFinalizer => {
                parts.push(workflow_finalizer(source)?);
            }
            #[cfg(feature = "pod-recreation")]
            crate::controllers::Controller::PodRecreation => {
                parts.push(pod_recreation(source)?);
            }
            #[cfg(feature = "pvc-protection")]
            crate::controllers::Controller::PvcProtection => parts.push(pvc_protection(source)?),
            #[allow(
                unreachable_patterns,
                reason = "of components that this build leaves out"
            )]
            _ => {}
        }
    }
    let _ = source;
    Ok(parts)
}

fn part(name: &str, granted_by: &'static str, rights: Vec<rights::Right>) -> Part {
    Part {
        name: name.to_owned(),
        granted_by,
        rights,
        kinds: Vec::new(),
        policies: Vec::new(),
        holds: Vec::new(),
        claims: None,
        advice: Vec::new(),
    }
}

#[cfg(feature = "pod-finalizer")]
fn pod_finalizer(source: &Source) -> Result<Vec<Part>, Failure> {
    use belayer_pod_finalizer::{component, outcome, profile, rights};

    let settings = source.pod_finalizer(None).map_err(Failure::configuration)?;
    let profiles = &settings.profiles;
    let pods = Resource::pods();
    let enforced: Vec<_> = profiles
        .iter()
        .filter(|profile| profile.mode == profile::Mode::Enforce)
        .collect();
    let mut labels: Vec<String> = enforced
        .iter()
        .flat_map(|profile| profile.selector.names().map(str::to_owned))
        .collect();
    // The policy must leave out pods that are never held.
    if enforced.iter().any(|profile| profile.is_argo()) {
        labels.push(profile::argo::COMPONENT_LABEL.to_owned());
    }
    labels.sort();
    labels.dedup();
    let mut parts = vec![Part {
        advice: profiles.iter().filter_map(|one| one.advice()).collect(),
        kinds: profiles.owners().into_iter().map(owner_kind).collect(),
        policies: vec![Policy {
            name: "belayer-pod-hold",
            resource: pods.clone(),
            finalizer: names::POD_STATUS_HOLD.to_owned(),
            labels,
            namespaces: enforced
                .iter()
                .map(|profile| profile.namespaces.clone())
                .collect(),
            switch: belayer_pod_finalizer::steward::GATE_KEY,
        }],
        holds: vec![(pods, names::POD_STATUS_HOLD.to_owned())],
        ..part(
            component::NAME,
            "ClusterRole belayer-pod-finalizer",
            rights::rights(profiles),
        )
    }];
    let capture = rights::rights_to_capture(profiles);
    if !capture.is_empty() {
        parts.push(Part {
            kinds: vec![Kind {
                resource: outcome::resource(),
                without: "outcomes are not recorded: pods are held until their consumer has taken the result",
                fix: "belayer crds | kubectl apply -f -",
                optional: false,
            }],
            ..part(
                "pod-finalizer capture",
                "ClusterRole belayer-outcome-capture",
                capture,
            )
        });
    }
    let cleanup = rights::rights_to_clean_up(profiles);
    if !cleanup.is_empty() {
        parts.push(part(
            "pod-finalizer cleanup",
            "ClusterRole belayer-pod-cleanup",
            cleanup,
        ));
    }
    Ok(parts)
}

#[cfg(feature = "workflow-finalizer")]
fn workflow_finalizer(source: &Source) -> Result<Part, Failure> {
    use belayer_workflow_finalizer::{component, config::OwnerRule, rights};

    let settings = source
        .workflow_finalizer(None)
        .map_err(Failure::configuration)?;
    // The manifests have a policy for workflows of Argo Workflows alone.
    let argo = OwnerRule::argo().kind;
    let policies = settings.owners.iter().filter(|rule| rule.kind == argo);
    Ok(Part {
        kinds: settings
            .owners
            .iter()
            .map(|rule| owner_kind(&rule.kind))
            .collect(),
        policies: policies
            .map(|rule| Policy {
                name: "belayer-workflow-hold",
                resource: rule.kind.clone(),
                finalizer: names::WORKFLOW_HOLD.to_owned(),
                labels: rule.selector.names().map(str::to_owned).collect(),
                namespaces: vec![rule.namespaces.clone()],
                switch: "holdWorkflows",
            })
            .collect(),
        holds: settings
            .owners
            .iter()
            .map(|rule| (rule.kind.clone(), names::WORKFLOW_HOLD.to_owned()))
            .collect(),
        ..part(
            component::NAME,
            "ClusterRole belayer-workflow-finalizer",
            rights::rights(&settings),
        )
    })
}

#[cfg(any(feature = "pod-finalizer", feature = "workflow-finalizer"))]
fn owner_kind(kind: &Resource) -> Kind {
    Kind {
        resource: kind.clone(),
        without: "the component waits for it and starts when it appears; the others work",
        fix: "",
        optional: true,
    }
}

#[cfg(feature = "pod-recreation")]
fn pod_recreation(source: &Source) -> Result<Part, Failure> {
    use belayer_pod_recreation::config::ARGO_LEFT_OUT;
    use belayer_pod_recreation::{NAME, api, rights};

    let settings = source
        .pod_recreation(None)
        .map_err(Failure::configuration)?;
    let advice = settings.argo_left_out.then(|| ARGO_LEFT_OUT.to_owned());
    let pods = Resource::pods();
    Ok(Part {
        advice: advice.into_iter().collect(),
        kinds: vec![Kind {
            resource: api::resource(),
            without: "the component waits for it and starts when it appears; the others work",
            fix: "belayer crds | kubectl apply -f -",
            optional: true,
        }],
        // Pods ask by an annotation, so that the policy has no label to mention.
        policies: vec![Policy {
            name: "belayer-pod-recreation-hold",
            resource: pods.clone(),
            finalizer: names::POD_RECREATION_HOLD.to_owned(),
            labels: Vec::new(),
            namespaces: Vec::new(),
            switch: "holdRecreations",
        }],
        holds: vec![(pods, names::POD_RECREATION_HOLD.to_owned())],
        ..part(NAME, "ClusterRole belayer-pod-recreation", rights::rights())
    })
}

#[cfg(feature = "pvc-protection")]
fn pvc_protection(source: &Source) -> Result<Part, Failure> {
    use belayer_inspect::preflight::Claims;
    use belayer_pvc_protection::{Mode, component, rights};

    let settings = source
        .pvc_protection(None)
        .map_err(Failure::configuration)?;
    let (mode, policies, holds) = match settings.mode {
        // The policy may exist: the gate ConfigMap keeps it off.
        Mode::Advise => (
            Claims::Advised,
            Vec::new(),
            vec![(Resource::claims(), names::PVC_PROTECTION_HOLD.to_owned())],
        ),
        Mode::Beside => (
            Claims::Beside,
            vec![Policy {
                name: "belayer-claim-hold",
                resource: Resource::claims(),
                finalizer: names::PVC_PROTECTION_HOLD.to_owned(),
                labels: Vec::new(),
                namespaces: Vec::new(),
                switch: "holdClaims",
            }],
            vec![(Resource::claims(), names::PVC_PROTECTION_HOLD.to_owned())],
        ),
        // The API server's own admission plugin adds that name.
        Mode::Replacing => (Claims::Replacing, Vec::new(), Vec::new()),
    };
    Ok(Part {
        policies,
        holds,
        claims: Some(mode),
        ..part(
            component::NAME,
            "ClusterRole belayer-pvc-protection",
            rights::rights(),
        )
    })
}
