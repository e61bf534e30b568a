//! Claims in use, bound volumes, attached volumes.

use belayer_core::object::Resource;

use super::{Diagnosis, why};
use crate::evidence::{AttachmentState, PodState, World};
use crate::object::Terminating;
use crate::reader::Look;
use crate::report::{Cause, Step, Verdict};

/// Pods that are told one by one.
const TOLD: usize = 5;

/// A claim: the pods that use it. `None` when none does.
pub(super) fn claim_in_use(
    object: &Terminating,
    finalizer: &str,
    world: &World,
) -> Option<Diagnosis> {
    let key = &object.object.key;
    let namespace = key.namespace()?;
    let list = world.pods.get(namespace);
    let Some(pods) = list.and_then(Look::found) else {
        return Some(
            Diagnosis::new(Cause::ClaimInUse, Verdict::Unknown)
                .of(finalizer)
                .missing(format!("which pods use it: pods: {}", why(list))),
        );
    };
    let users: Vec<_> = pods.iter().filter(|pod| pod.uses(key.name())).collect();
    let first = users.first()?;
    let mut found = Diagnosis::new(Cause::ClaimInUse, Verdict::Waiting)
        .proven("a claim goes after the last pod that is bound to a node and refers to it")
        .next(Step::run(
            "Find what runs the pod, and end that: the claim then goes by itself",
            describe(namespace, first),
        ));
    for pod in users.iter().take(TOLD) {
        found = found.detail(format!(
            "{namespace}/pods/{} uses it: {} on {}",
            pod.name, pod.phase, pod.node
        ));
    }
    if users.len() > TOLD {
        found = found.detail(format!("and {} more pods", users.len() - TOLD));
    }
    Some(found)
}

/// How the first of the pods goes that use an object which Belayer holds; nothing where none does.
pub(super) fn end_the_user(object: &Terminating, world: &World) -> Option<Step> {
    let key = &object.object.key;
    if !object
        .object
        .kind
        .resource
        .is_same_kind(&Resource::claims())
    {
        return None;
    }
    let namespace = key.namespace()?;
    let mut pods = world.pods.get(namespace)?.found()?.iter();
    let user = pods.find(|pod| pod.uses(key.name()))?;
    Some(Step::run(
        "Find what runs the pod that it waits for, and end that",
        describe(namespace, user),
    ))
}

fn describe(namespace: &str, pod: &PodState) -> String {
    format!("kubectl -n {namespace} describe pod {}", pod.name)
}

/// A volume that a claim is bound to.
pub(super) fn volume_bound(object: &Terminating, world: &World) -> Option<Diagnosis> {
    let look = world.volumes.get(object.object.key.name());
    let Some(volume) = look.and_then(Look::found) else {
        return Some(
            Diagnosis::new(Cause::VolumeBound, Verdict::Unknown)
                .missing(format!("whether a claim is bound to it: {}", why(look))),
        );
    };
    let (namespace, claim) = volume.claim.as_ref().filter(|_| volume.phase == "Bound")?;
    Some(
        Diagnosis::new(Cause::VolumeBound, Verdict::Waiting)
            .proven("a volume goes after the claim that is bound to it")
            .detail(format!(
                "{namespace}/persistentvolumeclaims/{claim} is bound to it"
            ))
            .next(Step::run(
                "Look whether the claim is still wanted; once it is deleted, the volume goes",
                format!("kubectl -n {namespace} get persistentvolumeclaim {claim}"),
            )),
    )
}

/// A volume, or its attachment, that is still on a node.
pub(super) fn volume_attached(
    object: &Terminating,
    finalizer: &str,
    world: &World,
) -> Option<Diagnosis> {
    let name = object.object.key.name();
    let Some(all) = world.attachments.found() else {
        return Some(
            Diagnosis::new(Cause::VolumeAttached, Verdict::Unknown)
                .of(finalizer)
                .missing(format!(
                    "whether it is attached: volumeattachments: {}",
                    why(Some(&world.attachments))
                )),
        );
    };
    let attachment = all
        .iter()
        .find(|attachment| attachment.name == name || attachment.volume == name)
        .filter(|attachment| attachment.attached || attachment.name == name)?;
    Some(attached(attachment, world))
}

fn attached(attachment: &AttachmentState, world: &World) -> Diagnosis {
    let AttachmentState {
        name,
        volume,
        node,
        attacher,
        error,
        ..
    } = attachment;
    let gone = matches!(world.nodes.get(node), Some(Look::Absent));
    let verdict = if gone {
        Verdict::NodeGone
    } else {
        Verdict::Waiting
    };
    let mut found = Diagnosis::new(Cause::VolumeAttached, verdict).proven(format!(
        "volumeattachment {name} says that {volume} is attached to {node} by {attacher}"
    ));
    if gone {
        found = found.proven(format!("node {node} does not exist"));
    }
    if let Some(error) = error {
        found = found.proven(format!(
            "detaching failed: {}",
            crate::reader::one_line(error)
        ));
    }
    found.about.clone_from(name);
    found
        .next(Step::run(
            "Pods that use the volume have to go first; these are on the node",
            format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
        ))
        .next(Step::run(
            format!("Then {attacher} detaches it; its log says why it does not"),
            format!("kubectl describe volumeattachment {name}"),
        ))
}
