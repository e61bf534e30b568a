//! What single values render, and what they must not.

use serde_json::Value;

use super::*;

/// Every pod that the chart can have.
const ALL_PODS: &str = "controllers.podRecreation.enabled=true,nodeAgent.enabled=true";

/// The objects that Helm 4 renders, hooks included. An object with a key twice is an error: Flux and kustomize refuse it.
fn objects(helm: &HelmBinaries, arguments: &[&str]) -> Vec<Value> {
    let text = render(&helm.path(Program::Helm4), arguments)
        .unwrap()
        .text();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The pods of all objects, by the name of the object.
fn pods(objects: &[Value]) -> BTreeMap<&str, &Value> {
    let pod = |object| -> Option<(&str, &Value)> {
        let object: &Value = object;
        let pod = match object["kind"].as_str()? {
            "Pod" => object,
            "Deployment" | "DaemonSet" | "Job" => &object["spec"]["template"],
            _ => return None,
        };
        Some((object["metadata"]["name"].as_str()?, pod))
    };
    let pods: BTreeMap<_, _> = objects.iter().filter_map(pod).collect();
    assert_eq!(pods.len(), 6, "{pods:?}");
    pods
}

/// The first profile that selects a pod applies. The policy would hold pods that are only to be observed.
#[test]
fn no_policy_holds_pods_that_an_earlier_profile_observes() {
    let Some(helm) = helm() else { return };
    let enforced = serde_json::json!({ "builtIn": "argo" });
    let observed = serde_json::json!({
        "builtIn": "argo", "name": "watched", "mode": "observe", "namespaces": { "include": ["prod"] },
    });
    let holds = |profiles: [&Value; 2]| {
        let profiles = serde_json::to_string(&profiles).unwrap();
        let set = format!("config.podFinalizer.profiles={profiles}");
        let objects = objects(&helm, &["--set-json", &set]);
        find(&objects, "MutatingAdmissionPolicy", "belayer-pod-hold").is_some()
    };
    assert!(!holds([&observed, &enforced]));
    assert!(holds([&enforced, &observed]));
}

/// `readOnly` alone leaves writable what is mounted below the directory.
#[test]
fn the_node_agent_cannot_write_below_its_read_only_directories() {
    let Some(helm) = helm() else { return };
    let objects = objects(&helm, &["--set", ALL_PODS]);
    let agent = &pods(&objects)["belayer-node-agent"]["spec"];
    let mounts = agent["containers"][0]["volumeMounts"].as_array().unwrap();
    let read_only: Vec<&Value> = mounts
        .iter()
        .filter(|mount| mount["readOnly"] == true)
        .collect();
    assert_eq!(read_only.len(), 2);
    for mount in read_only {
        assert_eq!(mount["recursiveReadOnly"], "IfPossible", "{mount}");
        // The API server refuses both together.
        assert!(mount["mountPropagation"].is_null(), "{mount}");
    }
}
