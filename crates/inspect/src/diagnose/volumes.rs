//! PVCs in use, bound volumes, attached volumes.

use belayer_core::object::Resource;

use super::{Diagnosis, why};
use crate::evidence::{AttachmentState, PodState, World};
use crate::object::Terminating;
use crate::reader::ReadResult;
use crate::report::{Cause, Step, Verdict};

/// Maximum number of pods that are listed.
const NAMED: usize = 5;

/// The pods that use a PVC; `None` if no pod does.
pub(super) fn claim_in_use(
    object: &Terminating,
    finalizer: &str,
    world: &World,
) -> Option<Diagnosis> {
    let key = &object.object.key;
    let namespace = key.namespace()?;
    let list = world.pods.get(namespace);
    let Some(pods) = list.and_then(ReadResult::found) else {
        return Some(
            Diagnosis::new(Cause::ClaimInUse, Verdict::Unknown)
                .of(finalizer, world)
                .missing(format!("which pods use it: pods: {}", why(list))),
        );
    };
    let users: Vec<_> = pods.iter().filter(|pod| pod.uses(key.name())).collect();
    let first = users.first()?;
    let mut found = Diagnosis::new(Cause::ClaimInUse, Verdict::Waiting)
        .proven("a PVC is deleted after the last pod that is bound to a node and refers to it")
        .next(Step::run(
            "Find what runs the pod and stop it: the PVC is then deleted by itself",
            describe(namespace, first),
        ));
    for pod in users.iter().take(NAMED) {
        found = found.detail(format!(
            "{namespace}/pods/{} uses it: {} on {}",
            pod.name, pod.phase, pod.node
        ));
    }
    if users.len() > NAMED {
        found = found.detail(format!("and {} more pods", users.len() - NAMED));
    }
    Some(found)
}

/// How to stop the first pod that uses a PVC held by Belayer; `None` if no pod uses it.
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
        "Find what runs the pod that uses it, and stop it",
        describe(namespace, user),
    ))
}

fn describe(namespace: &str, pod: &PodState) -> String {
    format!("kubectl -n {namespace} describe pod {}", pod.name)
}

/// A volume that a PVC is bound to.
pub(super) fn volume_bound(object: &Terminating, world: &World) -> Option<Diagnosis> {
    let volume = world.volumes.get(object.object.key.name());
    let Some(volume) = volume.and_then(ReadResult::found) else {
        return Some(
            Diagnosis::new(Cause::VolumeBound, Verdict::Unknown)
                .missing(format!("whether a PVC is bound to it: {}", why(volume))),
        );
    };
    let (namespace, claim) = volume.claim.as_ref().filter(|_| volume.phase == "Bound")?;
    Some(
        Diagnosis::new(Cause::VolumeBound, Verdict::Waiting)
            .proven("a volume is deleted after the PVC that is bound to it")
            .detail(format!(
                "{namespace}/persistentvolumeclaims/{claim} is bound to it"
            ))
            .next(Step::run(
                "Check whether the PVC is still needed; the volume is deleted once the PVC is",
                format!("kubectl -n {namespace} get persistentvolumeclaim {claim}"),
            )),
    )
}

/// A volume, or its attachment, that is still attached to a node.
pub(super) fn volume_attached(
    object: &Terminating,
    finalizer: &str,
    world: &World,
) -> Option<Diagnosis> {
    let name = object.object.key.name();
    let Some(all) = world.attachments.found() else {
        return Some(
            Diagnosis::new(Cause::VolumeAttached, Verdict::Unknown)
                .of(finalizer, world)
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
    let gone = matches!(world.nodes.get(node), Some(ReadResult::Absent));
    let verdict = if gone {
        Verdict::NodeGone
    } else {
        Verdict::Waiting
    };
    let mut found = Diagnosis::new(Cause::VolumeAttached, verdict).proven(format!(
        "volumeattachment {name}: {volume} is attached to {node} by {attacher}"
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
            "Pods that use the volume must be deleted first; list the pods of the node",
            format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
        ))
        .next(Step::run(
            format!("Then {attacher} detaches it; if it does not, check its log"),
            format!("kubectl describe volumeattachment {name}"),
        ))
}
