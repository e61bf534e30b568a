//! Whether kube-controller-manager's own PVC controller is switched on, by its flag.

use serde_json::Value;

use belayer_core::http::Request;

use crate::reader::{Reader, explain};

/// kube-controller-manager's PVC controller, as `--controllers` names it.
pub(super) const PVC_CONTROLLER: &str = "persistentvolumeclaim-protection-controller";

/// The result: the pod whose flag was read, or why no flag was read.
pub(super) enum InTree {
    On(String),
    Off(String),
    Unknown(String),
}

/// Reads kube-controller-manager's flag, if it runs as a pod.
pub(super) async fn read_flag(reader: &Reader) -> InTree {
    let request = Request::get("/api/v1/namespaces/kube-system/pods")
        .query("labelSelector", "component=kube-controller-manager");
    let list: Value = match reader.json(&request).await {
        Ok(list) => list,
        Err(error) => return InTree::Unknown(format!("pods of kube-system: {}", explain(&error))),
    };
    let pods = list["items"].as_array().into_iter().flatten();
    let Some(pod) = pods.into_iter().next() else {
        return InTree::Unknown(
            "no pod of kube-controller-manager was found: check its flag --controllers".to_owned(),
        );
    };
    let name = format!(
        "pod kube-system/{}",
        pod["metadata"]["name"]
            .as_str()
            .unwrap_or("kube-controller-manager")
    );
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let arguments: Vec<&str> = containers
        .flat_map(|container| [&container["command"], &container["args"]])
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if is_switched_on(&arguments) {
        InTree::On(name)
    } else {
        InTree::Off(name)
    }
}

/// Interprets the flag as kube-controller-manager does: the first item that names a controller counts.
fn is_switched_on(arguments: &[&str]) -> bool {
    let flags = arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix("--controllers="));
    let items: Vec<&str> = flags.flat_map(|list| list.split(',')).collect();
    for item in &items {
        // The second is its name before Kubernetes 1.28.
        for name in [PVC_CONTROLLER, "pvc-protection"] {
            if *item == name {
                return true;
            }
            if item.strip_prefix('-') == Some(name) {
                return false;
            }
        }
    }
    items.is_empty() || items.contains(&"*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::by_default(&[], true)]
    #[case::all(&["--controllers=*"], true)]
    #[case::switched_off(&["--controllers=*,-persistentvolumeclaim-protection-controller"], false)]
    #[case::by_its_old_name(&["--controllers=*,-pvc-protection"], false)]
    #[case::the_first_item_counts(&["--controllers=persistentvolumeclaim-protection-controller,-persistentvolumeclaim-protection-controller"], true)]
    #[case::not_in_the_list(&["--controllers=job-controller"], false)]
    fn the_flag_of_kube_controller_manager_is_read(#[case] arguments: &[&str], #[case] on: bool) {
        assert_eq!(is_switched_on(arguments), on);
    }
}
