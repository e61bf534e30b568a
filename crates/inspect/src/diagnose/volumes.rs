//! PVCs in use, bound volumes, attached volumes.

use belayer_core::object::Resource;

use super::{Diagnosis, why};
use crate::evidence::{AttachmentState, PodState, World};
use crate::object::Terminating;
use crate::reader::{ReadResult, one_line};
use crate::report::{Cause, Step, Verdict};

/// Maximum number of pods that are listed.
const NAMED: usize = 5;

/// The pods that use a PVC; `None` if no pod does.
pub(super) fn pvc_in_use(
    object: &Terminating,
    finalizer: &str,
    world: &World,
) -> Option<Diagnosis> {
    let key = &object.object.key;
    let namespace = key.namespace()?;
    let list = world.pods.get(namespace);
    let Some(pods) = list.and_then(ReadResult::found) else {
        return Some(
            Diagnosis::possible(Cause::ClaimInUse)
                .of(finalizer, world)
                .missing(format!("which pods use it: pods: {}", why(list)))
                .next(Step::run(
                    "With permission to list pods, its description names those that use it",
                    object.object.kubectl("describe"),
                )),
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
    if !object.object.kind.resource.is_same_kind(&Resource::pvcs()) {
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

/// A volume. If no PVC is bound to it, it waits for the controller of its finalizer.
pub(super) fn volume(
    object: &Terminating,
    mut its_controller: Diagnosis,
    world: &World,
) -> Diagnosis {
    let volume = world.volumes.get(object.object.key.name());
    let unknown = |missing: String| {
        Diagnosis::possible(Cause::VolumeBound)
            .missing(missing)
            .next(Step::run(
                "With permission to read volumes and PVCs, check its status and the PVC of its claimRef",
                object.object.kubectl("describe"),
            ))
    };
    let Some(volume) = volume.and_then(ReadResult::found) else {
        return unknown(format!("whether a PVC is bound to it: {}", why(volume)));
    };
    let Some(bound) = volume.bound_pvc() else {
        if !volume.message.is_empty() {
            let message = one_line(&volume.message);
            its_controller = its_controller.detail(format!("its status reports: {message}"));
        }
        return its_controller;
    };
    let (namespace, pvc) = (&bound.namespace, &bound.name);
    let read = world.pvcs.get(&bound.place());
    match read {
        Some(ReadResult::Found(uid)) if bound.is(uid) => {}
        // Its status is what its controller wrote last.
        Some(read @ (ReadResult::Found(_) | ReadResult::Absent)) => {
            let why = match read {
                ReadResult::Found(_) => "was replaced by another PVC of that name",
                _ => "no longer exists",
            };
            return its_controller.detail(format!(
                "its status is still Bound, but {namespace}/persistentvolumeclaims/{pvc} {why}"
            ));
        }
        _ => {
            return unknown(format!("whether the bound PVC still exists: {}", why(read)));
        }
    }
    Diagnosis::new(Cause::VolumeBound, Verdict::Waiting)
        .proven("a volume is deleted after the PVC that is bound to it")
        .detail(format!(
            "{namespace}/persistentvolumeclaims/{pvc} is bound to it"
        ))
        .next(Step::run(
            "Check whether the PVC is still needed; the volume is deleted once the PVC is",
            format!("kubectl -n {namespace} get persistentvolumeclaim {pvc}"),
        ))
}

/// A volume that still has an attachment to a node, or its attachment. The attacher is the diagnosis of its controller.
pub(super) fn volume_attached(
    object: &Terminating,
    finalizer: &str,
    attacher: Diagnosis,
    world: &World,
) -> Option<Diagnosis> {
    let name = object.object.key.name();
    let Some(all) = world.attachments.found() else {
        return Some(
            Diagnosis::possible(Cause::VolumeAttached)
                .of(finalizer, world)
                .missing(format!(
                    "whether it is attached: volumeattachments: {}",
                    why(Some(&world.attachments))
                ))
                .next(Step::run(
                    "With permission to list volumeattachments, check whether one of the volume remains",
                    "kubectl get volumeattachments",
                )),
        );
    };
    if let Some(attachment) = all.iter().find(|one| one.name == name) {
        return Some(being_detached(attachment, attacher, world));
    }
    // The attacher waits for each attachment that names the volume, also for one that is not attached.
    let its = || all.iter().filter(|one| one.volume == name);
    let first = its().find(|one| one.attached).or_else(|| its().next());
    first.map(|one| attached(one, world))
}

/// An attachment that is being deleted, which is the order to detach the volume: only its attacher acts.
fn being_detached(attachment: &AttachmentState, attacher: Diagnosis, world: &World) -> Diagnosis {
    let driver = attachment.attacher.clone();
    let mut found = Diagnosis {
        cause: Cause::VolumeAttached,
        about: driver,
        ..attacher
    };
    found.detail.extend(state_of(attachment, world));
    found
}

/// A volume with an attachment.
fn attached(attachment: &AttachmentState, world: &World) -> Diagnosis {
    let AttachmentState {
        name,
        node,
        attacher,
        ..
    } = attachment;
    let verdict = if is_without_node(attachment, world) {
        Verdict::NodeGone
    } else {
        Verdict::Waiting
    };
    let mut found = Diagnosis::new(Cause::VolumeAttached, verdict);
    found.proof = state_of(attachment, world);
    found.about.clone_from(name);
    let first = match verdict {
        Verdict::NodeGone => Step::say(
            "Make sure that the machine of the node does not run any more or does not use the volume: \
             kube-controller-manager then deletes the attachment",
        ),
        _ => Step::run(
            "Pods that use the volume must be deleted first; list the pods of the node",
            format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
        ),
    };
    found.next(first).next(Step::run(
        format!("Then {attacher} detaches it; if it does not, check its log"),
        format!("kubectl describe volumeattachment {name}"),
    ))
}

fn is_without_node(attachment: &AttachmentState, world: &World) -> bool {
    matches!(world.nodes.get(&attachment.node), Some(ReadResult::Absent))
}

fn state_of(attachment: &AttachmentState, world: &World) -> Vec<String> {
    let AttachmentState {
        name,
        volume,
        node,
        attacher,
        attached,
        error,
    } = attachment;
    let is = if *attached { "is" } else { "is not" };
    let mut lines = vec![format!(
        "volumeattachment {name}: {volume} {is} attached to {node} by {attacher}"
    )];
    if is_without_node(attachment, world) {
        lines.push(format!("node {node} does not exist"));
    }
    if let Some(error) = error {
        let error = one_line(error);
        lines.push(format!("detaching failed: {error}"));
    }
    lines
}
