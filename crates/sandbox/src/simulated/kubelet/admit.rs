//! A kubelet's admission checks of a pod that was bound to its node, in the order of a real kubelet.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plan::Rejection;
use crate::simulated::object;

/// A host port of a pod: address, protocol, number.
type HostPort<'a> = (&'a str, &'a str, u64);

/// Compares the pod with the current Node object. `others` are the pods that run there.
///
/// A kubelet checks `NoExecute` taints only: `NoSchedule` is for schedulers.
pub(super) fn check_fit<'a>(
    pod: &Value,
    node: &Value,
    others: impl Iterator<Item = &'a Value>,
) -> Option<Rejection> {
    if !fits_affinity(pod, node) {
        return Some(Rejection::new("NodeAffinity"));
    }
    let wanted: BTreeSet<HostPort<'_>> = host_ports(pod).collect();
    if !wanted.is_empty()
        && others
            .flat_map(host_ports)
            .any(|taken| wanted.iter().any(|port| collide(*port, taken)))
    {
        return Some(Rejection::new("NodePorts"));
    }
    if untolerated(pod, node).next().is_some() {
        return Some(Rejection::new("TaintToleration"));
    }
    None
}

fn labels(node: &Value) -> BTreeMap<&str, &str> {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect()
}

fn fits_affinity(pod: &Value, node: &Value) -> bool {
    let labels = labels(node);
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let selected = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key.as_str()).copied() == value.as_str());
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let Some(required) = pod.pointer(required).filter(|required| !required.is_null()) else {
        return selected;
    };
    // One of the terms must match; an empty list matches nowhere.
    let name = object::name(node);
    selected
        && object::items(required, "/nodeSelectorTerms")
            .iter()
            .any(|term| holds(term, &labels, name))
}

fn holds(term: &Value, labels: &BTreeMap<&str, &str>, name: &str) -> bool {
    let expressions = object::items(term, "/matchExpressions");
    let fields = object::items(term, "/matchFields");
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let of_label = |key: &str| labels.get(key).copied();
    let of_field = |key: &str| (key == "metadata.name").then_some(name);
    expressions.iter().all(|e| requirement(e, of_label))
        && fields.iter().all(|e| requirement(e, of_field))
}

fn requirement<'a>(expression: &Value, of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let found = of(object::text(expression, "/key").unwrap_or_default());
    let values = object::items(expression, "/values");
    let among = |found: &str| values.iter().any(|value| value == found);
    let compared = |holds: fn(&i64, &i64) -> bool| {
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
        let wanted = values.first().and_then(Value::as_str);
        match (number(found), number(wanted)) {
            (Some(found), Some(wanted)) => holds(&found, &wanted),
            _ => false,
        }
    };
    match object::text(expression, "/operator").unwrap_or_default() {
        "In" => found.is_some_and(among),
        "NotIn" => !found.is_some_and(among),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared(i64::gt),
        "Lt" => compared(i64::lt),
        _ => false,
    }
}

/// Whether the pod has host ports, so that the other pods of the node have to be compared.
pub(super) fn has_host_ports(pod: &Value) -> bool {
    host_ports(pod).next().is_some()
}

fn host_ports(pod: &Value) -> impl Iterator<Item = HostPort<'_>> {
    let ports = object::items(pod, "/spec/containers")
        .iter()
        .flat_map(|container| object::items(container, "/ports"));
    ports.filter_map(|port| {
        let number = port.get("hostPort").and_then(Value::as_u64)?;
        let address = object::text(port, "/hostIP").unwrap_or("0.0.0.0");
        let protocol = object::text(port, "/protocol").unwrap_or("TCP");
        (number > 0).then_some((address, protocol, number))
    })
}

fn collide(one: HostPort<'_>, other: HostPort<'_>) -> bool {
    let everywhere = |port: HostPort<'_>| port.0 == "0.0.0.0";
    (one.1, one.2) == (other.1, other.2)
        && (one.0 == other.0 || everywhere(one) || everywhere(other))
}

fn untolerated<'a>(pod: &'a Value, node: &'a Value) -> impl Iterator<Item = &'a Value> {
    let tolerations = object::items(pod, "/spec/tolerations");
    object::items(node, "/spec/taints").iter().filter(|taint| {
        object::text(taint, "/effect") == Some("NoExecute")
            && !tolerations.iter().any(|one| tolerates(one, taint))
    })
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let of = |object: &Value, field: &str| {
        let value = object.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (effect, key) = (of(toleration, "effect"), of(toleration, "key"));
    let exists = of(toleration, "operator") == "Exists";
    (effect.is_empty() || effect == of(taint, "effect"))
        && ((key.is_empty() && exists) || key == of(taint, "key"))
        && (exists || of(toleration, "value") == of(taint, "value"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn node() -> Value {
        json!({
            "metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}},
            "spec": {"taints": [{"key": "old", "value": "x", "effect": "NoExecute"}, {"key": "soft", "effect": "NoSchedule"}]},
        })
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        let term =
            json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
    }

    fn tolerating(mut spec: Value) -> Value {
        spec["tolerations"] = json!([{"key": "old", "operator": "Exists"}]);
        json!({"spec": spec})
    }

    fn port(address: &str, number: u64) -> Value {
        json!({"containers": [{"ports": [{"hostPort": number, "hostIP": address}]}]})
    }

    #[rstest]
    #[case::it_fits(json!({"nodeSelector": {"zone": "a"}}), None)]
    #[case::another_zone(json!({"nodeSelector": {"zone": "b"}}), Some("NodeAffinity"))]
    #[case::in_one_of(expression("zone", "In", &["a", "b"]), None)]
    #[case::in_none_of(expression("zone", "In", &["b"]), Some("NodeAffinity"))]
    #[case::not_in(expression("zone", "NotIn", &["a"]), Some("NodeAffinity"))]
    #[case::exists(expression("gpu", "Exists", &[]), Some("NodeAffinity"))]
    #[case::does_not_exist(expression("gpu", "DoesNotExist", &[]), None)]
    #[case::more_than(expression("cores", "Gt", &["4"]), None)]
    #[case::less_than(expression("cores", "Lt", &["4"]), Some("NodeAffinity"))]
    #[case::no_term_holds_nowhere(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}),
        Some("NodeAffinity")
    )]
    #[case::a_port_that_is_taken(port("", 80), Some("NodePorts"))]
    #[case::on_one_address_of_all(port("10.0.0.1", 80), Some("NodePorts"))]
    #[case::another_port(port("", 81), None)]
    fn a_pod_is_compared_with_its_node(#[case] spec: Value, #[case] reason: Option<&str>) {
        let other = json!({"spec": port("0.0.0.0", 80)});
        let refused = check_fit(&tolerating(spec), &node(), [&other].into_iter());
        assert_eq!(refused.map(|r| r.reason).as_deref(), reason);
    }

    #[rstest]
    #[case::none(json!([]), Some("TaintToleration"))]
    #[case::by_value(json!([{"key": "old", "value": "x", "effect": "NoExecute"}]), None)]
    #[case::of_another_value(json!([{"key": "old", "value": "y"}]), Some("TaintToleration"))]
    #[case::of_another_effect(json!([{"key": "old", "operator": "Exists", "effect": "NoSchedule"}]), Some("TaintToleration"))]
    #[case::of_everything(json!([{"operator": "Exists"}]), None)]
    fn only_no_execute_taints_count(#[case] tolerations: Value, #[case] reason: Option<&str>) {
        let pod = json!({"spec": {"tolerations": tolerations}});
        let refused = check_fit(&pod, &node(), std::iter::empty());
        assert_eq!(refused.map(|r| r.reason).as_deref(), reason);
    }
}
