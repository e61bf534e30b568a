//! Belayer itself: its pods, its leader, and whether it is drained.

use jiff::Timestamp;

use belayer_core::http::{Request, RequestError};
use belayer_core::object::Resource;
use belayer_holds::gate::GateObject;

use super::own::{ask, leader_of};
use super::{Component, Installation, Leader, OtherLease, Query, Replica};
use crate::details::{Conditions, Image, Object, TemplateSpec};
use crate::evidence::lease;
use crate::reader::{Page, ReadResult, Reader, explain};

/// The pods of both Deployments. The node agent has one of these names as well, and is never the leader.
const PODS: &str =
    "app.kubernetes.io/name in (belayer,belayer-pod-recreation),!belayer.dev/node-agent";

pub(super) async fn installation(
    reader: &Reader,
    query: &Query,
    gate: &GateObject,
    now: Timestamp,
    unknown: &mut Vec<String>,
) -> Installation {
    let namespace = query.own_namespace.as_str();
    let mut installation = Installation {
        namespace: namespace.to_owned(),
        leader: None,
        other_leases: Vec::new(),
        unread_leases: Vec::new(),
        pods: None,
    };
    let configured = query.lease.as_deref();
    let others = gate
        .leases()
        .into_iter()
        .filter(|place| configured != Some(*place));
    for place in configured.into_iter().chain(others) {
        let lease = place.to_owned();
        match leader(reader, place, now).await {
            Ok(leader) if configured == Some(place) => installation.leader = leader,
            Ok(leader) => installation.other_leases.push(OtherLease { lease, leader }),
            Err(why) => {
                unknown.push(format!("which replica is the leader: lease {place}: {why}"));
                installation.unread_leases.push(lease);
            }
        }
    }
    match replicas(reader, &installation).await {
        Ok(pods) => installation.pods = Some(pods),
        Err(error) => {
            unknown.push(format!(
                "which pods run Belayer: pods of {namespace}: {}",
                explain(&error)
            ));
        }
    }
    installation
}

/// The holder of a Lease, if there is one.
///
/// # Errors
///
/// Why the Lease cannot be read.
async fn leader(reader: &Reader, place: &str, now: Timestamp) -> Result<Option<Leader>, String> {
    match lease(reader, place.to_owned()).await {
        ReadResult::Found(lease) => Ok(leader_of(&lease, now)),
        ReadResult::Absent => Ok(None),
        ReadResult::Unknown(why) => Err(why),
    }
}

async fn replicas(
    reader: &Reader,
    installation: &Installation,
) -> Result<Vec<Replica>, RequestError> {
    let path = Resource::pods().path(Some(&installation.namespace));
    let request = Request::get(path).query("labelSelector", PODS);
    let list: Page<Object<TemplateSpec<Image>, Conditions>> = reader.json(&request).await?;
    let not_a_list = || RequestError::Decode("a list without items".to_owned());
    let mut replicas: Vec<Replica> = list
        .items
        .ok_or_else(not_a_list)?
        .into_iter()
        .map(|pod| Replica {
            ready: pod
                .status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.kind == "Ready" && condition.status == "True"),
            leads: installation
                .leaders()
                .any(|leader| !leader.lapsed && is(leader, &pod.metadata.name)),
            version: pod
                .spec
                .containers
                .first()
                .map_or_else(String::new, |container| tag(&container.image)),
            name: pod.metadata.name,
        })
        .collect();
    replicas.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(replicas)
}

/// An identity is the pod's name, optionally with a suffix.
fn is(leader: &Leader, pod: &str) -> bool {
    match leader.identity.strip_prefix(pod) {
        Some("") => true,
        Some(rest) => rest.starts_with(['_', '/', '.']),
        None => false,
    }
}

/// `0.1.0` of `registry.example/belayer/belayer:0.1.0`; the digest of one that has only that.
pub(super) fn tag(image: &str) -> String {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag.to_owned(),
        (None, Some(digest)) => digest.chars().take("sha256:".len() + 12).collect(),
        (None, None) => "latest".to_owned(),
    }
}

/// Reads the metrics of the active processes: of each leader, or of the only replica if leader election is disabled.
/// Returns whether the leader of the configured Lease answered.
pub(super) async fn own(
    reader: &Reader,
    installation: &mut Installation,
    components: &mut [Component],
    notes: &mut Vec<String>,
) -> bool {
    let elected = installation.leaders().next().is_some();
    let pods = installation.pods.iter_mut().flatten();
    let active: Vec<&mut Replica> = pods
        .filter(|pod| pod.ready && (pod.leads || !elected))
        .collect();
    if !elected && active.len() != 1 {
        return false;
    }
    let first = installation.leader.as_ref();
    let mut answered = false;
    for pod in active {
        match ask(reader, &installation.namespace, &pod.name).await {
            Ok(metrics) => {
                if let Some(version) = metrics.version {
                    pod.version = version;
                }
                for component in components.iter_mut() {
                    if let Some(own) = metrics.own.get(component.component) {
                        component.own.get_or_insert_default().add(own);
                    }
                }
                answered |= !elected || first.is_some_and(|leader| is(leader, &pod.name));
            }
            Err(error) => notes.push(format!(
                "could not read the metrics of pod {} through the API server's proxy: {}",
                pod.name,
                explain(&error)
            )),
        }
    }
    answered
}
