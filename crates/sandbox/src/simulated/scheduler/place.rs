//! Which node a pod is bound to, or why none fits.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::simulated::object;
use crate::simulated::quantity::{Amount, Lack};

/// Whether a node accepts new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openness {
    Open,
    NotReady,
    Cordoned,
}

/// A node, with the fields that the scheduler reads.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeView {
    pub(super) openness: Openness,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) offered: Amount,
    pub(super) used: Amount,
}

impl NodeView {
    pub(super) fn read(node: &Value, used: Amount) -> Self {
        let ready = object::items(node, "/status/conditions")
            .iter()
            .any(|condition| {
                object::text(condition, "/type") == Some("Ready")
                    && object::text(condition, "/status") == Some("True")
            });
        let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        let openness = match (ready && !object::is_deleting(node), cordoned) {
            (false, _) => Openness::NotReady,
            (true, true) => Openness::Cordoned,
            (true, false) => Openness::Open,
        };
        let labels = string_map(node.pointer("/metadata/labels"));
        Self {
            openness,
            labels,
            offered: Amount::offered_by(node),
            used,
        }
    }

    /// In thousandths: the higher usage of cpu and pod slots.
    fn load(&self) -> i128 {
        let share = |used: i128, of: i128| if of > 0 { used * 1_000 / of } else { 1_000 };
        share(self.used.cpu, self.offered.cpu).max(share(self.used.pods, self.offered.pods))
    }
}

/// A pod's requirements on its node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Requirements {
    pub(super) need: Amount,
    pub(super) selector: BTreeMap<String, String>,
    /// Names of the PVCs it mounts, in its own namespace.
    pub(super) pvcs: Vec<String>,
}

impl Requirements {
    pub(super) fn read(pod: &Value) -> Self {
        let pvcs = object::items(pod, "/spec/volumes")
            .iter()
            .filter_map(|volume| object::text(volume, "/persistentVolumeClaim/claimName"))
            .map(str::to_owned)
            .collect();
        let selector = string_map(pod.pointer("/spec/nodeSelector"));
        Self {
            need: Amount::requested_by(pod),
            selector,
            pvcs,
        }
    }
}

fn string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The state of a PVC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PvcState {
    Usable,
    BeingDeleted,
    Absent,
}

/// Why a pod stays unscheduled, with the text of its `PodScheduled` condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Only a change of this PVC can help.
    Pvc { name: String, message: String },
    /// A change of a node or a new node can help.
    Nodes { message: String },
}

impl Refusal {
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Pvc { message, .. } | Self::Nodes { message } => message,
        }
    }
}

/// Chooses the least loaded of the nodes that fit; among equals the first by name.
pub(super) fn place<'a>(
    wants: &Requirements,
    nodes: &'a BTreeMap<String, NodeView>,
    pvc: impl Fn(&str) -> PvcState,
) -> Result<&'a str, Refusal> {
    for name in &wants.pvcs {
        let why = match pvc(name) {
            PvcState::Usable => continue,
            PvcState::BeingDeleted => "is being deleted",
            PvcState::Absent => "not found",
        };
        let all = nodes.len();
        let message =
            format!("0/{all} nodes are available: persistentvolumeclaim \"{name}\" {why}.");
        return Err(Refusal::Pvc {
            name: name.clone(),
            message,
        });
    }

    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut best: Option<(i128, &str)> = None;
    for (name, node) in nodes {
        let against = objections(wants, node);
        if against.is_empty() {
            let load = node.load();
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, name));
            }
        }
        for reason in against {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    if let Some((_, name)) = best {
        return Ok(name);
    }
    if nodes.is_empty() {
        return Err(Refusal::Nodes {
            message: "no nodes available to schedule pods".to_owned(),
        });
    }
    let mut counted: Vec<String> = reasons
        .iter()
        .map(|(reason, nodes)| format!("{nodes} {reason}"))
        .collect();
    counted.sort();
    let message = format!(
        "0/{} nodes are available: {}.",
        nodes.len(),
        counted.join(", ")
    );
    Err(Refusal::Nodes { message })
}

fn objections(wants: &Requirements, node: &NodeView) -> Vec<&'static str> {
    match node.openness {
        Openness::NotReady => return vec!["node(s) were not ready"],
        Openness::Cordoned => return vec!["node(s) were unschedulable"],
        Openness::Open => {}
    }
    if wants
        .selector
        .iter()
        .any(|(key, value)| node.labels.get(key) != Some(value))
    {
        return vec!["node(s) didn't match Pod's node affinity/selector"];
    }
    (node.offered - node.used)
        .lacks(&wants.need)
        .map(|lack| match lack {
            Lack::Pods => "Too many pods",
            Lack::Cpu => "Insufficient cpu",
            Lack::Memory => "Insufficient memory",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    /// A node with 4 cores and 3 pod slots.
    fn node(used_cpu: i128, used_pods: i128) -> NodeView {
        NodeView {
            openness: Openness::Open,
            labels: BTreeMap::new(),
            offered: Amount {
                cpu: 4_000,
                memory: 1 << 40,
                pods: 3,
            },
            used: Amount {
                cpu: used_cpu,
                memory: 0,
                pods: used_pods,
            },
        }
    }

    fn pod() -> Requirements {
        Requirements {
            need: Amount {
                cpu: 1_000,
                memory: 0,
                pods: 1,
            },
            selector: BTreeMap::new(),
            pvcs: vec![],
        }
    }

    fn on(zone: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("zone".to_owned(), zone.to_owned())])
    }

    fn nodes<const N: usize>(nodes: [NodeView; N]) -> BTreeMap<String, NodeView> {
        nodes
            .into_iter()
            .enumerate()
            .map(|(i, node)| (format!("node-{i}"), node))
            .collect()
    }

    fn refused(message: &str) -> Result<&'static str, Refusal> {
        Err(Refusal::Nodes {
            message: message.to_owned(),
        })
    }

    #[rstest]
    #[case::the_least_loaded_node(pod(), nodes([node(2_000, 1), node(1_000, 1)]), Ok("node-1"))]
    #[case::of_equals_the_first(pod(), nodes([node(0, 0), node(0, 0)]), Ok("node-0"))]
    #[case::pod_slots_are_load_too(pod(), nodes([node(0, 2), node(2_000, 1)]), Ok("node-1"))]
    #[case::never_one_that_is_not_ready(
        pod(), nodes([NodeView { openness: Openness::NotReady, ..node(0, 0) }, node(3_000, 2)]), Ok("node-1")
    )]
    #[case::nor_a_cordoned_one(
        pod(), nodes([NodeView { openness: Openness::Cordoned, ..node(0, 0) }]),
        refused("0/1 nodes are available: 1 node(s) were unschedulable.")
    )]
    #[case::one_that_the_selector_matches(
        Requirements { selector: on("b"), ..pod() },
        nodes([NodeView { labels: on("a"), ..node(0, 0) }, NodeView { labels: on("b"), ..node(2_000, 0) }]),
        Ok("node-1")
    )]
    #[case::reasons_are_counted(
        pod(), nodes([node(4_000, 3), node(3_500, 1), node(0, 3)]),
        refused("0/3 nodes are available: 2 Insufficient cpu, 2 Too many pods.")
    )]
    #[case::no_node_at_all(pod(), nodes([]), refused("no nodes available to schedule pods"))]
    fn placing(
        #[case] wants: Requirements,
        #[case] nodes: BTreeMap<String, NodeView>,
        #[case] expected: Result<&str, Refusal>,
    ) {
        assert_eq!(place(&wants, &nodes, |_| PvcState::Usable), expected);
    }

    #[rstest]
    #[case::usable(PvcState::Usable, None)]
    #[case::being_deleted(
        PvcState::BeingDeleted,
        Some("0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted.")
    )]
    #[case::absent(
        PvcState::Absent,
        Some("0/1 nodes are available: persistentvolumeclaim \"data\" not found.")
    )]
    fn a_pod_waits_for_its_pvcs(#[case] state: PvcState, #[case] expected: Option<&str>) {
        let wants = Requirements {
            pvcs: vec!["data".to_owned()],
            ..pod()
        };
        let placed = place(&wants, &nodes([node(0, 0)]), |_| state).map(str::to_owned);
        assert_eq!(placed.as_ref().err().map(Refusal::message), expected);
    }

    #[test]
    fn a_node_is_read_from_its_object() {
        let object = json!({
            "metadata": {"labels": {"zone": "b"}},
            "spec": {"unschedulable": true},
            "status": {
                "allocatable": {"cpu": "2", "memory": "1Ki", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let expected = NodeView {
            openness: Openness::Cordoned,
            labels: on("b"),
            offered: Amount {
                cpu: 2_000,
                memory: 1_024_000,
                pods: 110,
            },
            used: Amount::default(),
        };
        assert_eq!(NodeView::read(&object, Amount::default()), expected);
    }
}
