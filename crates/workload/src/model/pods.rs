//! The pods that the controller creates from templates.

use belayer_sandbox::simulated::kubelet::annotations;
use belayer_sandbox::simulated::object;
use serde_json::{Value, json};

use super::node::fnv32;
use super::spec::Template;
use super::{AGENT, Caller};
use crate::names;
use crate::objects::owner_reference;

/// The pod of a node.
pub(super) fn of_template(
    workflow: &Value,
    id: &str,
    name: &str,
    template: &Template,
    caller: Caller<'_>,
) -> Value {
    let owner = object::name(workflow);
    // The pod of an entrypoint has the workflow's name.
    let pod_name = if name == owner {
        owner.to_owned()
    } else {
        format!("{owner}-{}-{}", template.name, fnv32(name))
    };
    let sidecars = template.sidecars.iter().map(|sidecar| &*sidecar.name);
    let containers = template
        .main_containers()
        .into_iter()
        .chain(["wait"])
        .chain(sidecars);
    let inits = template.init_containers.iter().map(|init| &*init.name);
    let mut pod = base(workflow, &pod_name);
    let metadata = &mut pod["metadata"];
    metadata["annotations"] = json!(template.metadata.annotations);
    metadata["annotations"][names::NODE_ID] = json!(id);
    metadata["annotations"][names::NODE_NAME] = json!(name);
    if caller.is_on_exit {
        metadata["labels"][names::ON_EXIT] = json!("true");
    }
    pod["spec"] = json!({
        "restartPolicy": "Never",
        "initContainers": named(["init"].into_iter().chain(inits)),
        "containers": named(containers),
    });
    if !template.node_selector.is_empty() {
        pod["spec"]["nodeSelector"] = json!(template.node_selector);
    }
    pod
}

/// The pod that sends the requests of HTTP templates.
pub(super) fn agent(workflow: &Value, id: &str) -> Value {
    let mut pod = base(workflow, &format!("{id}-agent"));
    pod["metadata"]["labels"][names::COMPONENT] = json!(AGENT);
    pod["metadata"]["annotations"] = json!({
        annotations::NEVER_FINISH: "true",
        annotations::STOP_EXIT_CODE: "64",
    });
    pod["spec"] = json!({
        "restartPolicy": "OnFailure",
        "initContainers": named(["init"]),
        "containers": named(["main"]),
    });
    pod
}

fn base(workflow: &Value, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": object::namespace(workflow),
            "name": name,
            "labels": { names::WORKFLOW: object::name(workflow), names::COMPLETED: "false" },
            "ownerReferences": [owner_reference(workflow)],
        },
    })
}

fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<Value> {
    let container = |name| json!({ "name": name, "image": "simulated" });
    names.into_iter().map(container).collect()
}
