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

/// A replica or the Job of an uninstall cannot run on a node with Windows.
#[test]
fn every_pod_is_for_nodes_with_linux() {
    let Some(helm) = helm() else { return };
    let objects = objects(&helm, &["--set", ALL_PODS]);
    for (name, pod) in pods(&objects) {
        let selector = &pod["spec"]["nodeSelector"];
        assert_eq!(selector["kubernetes.io/os"], "linux", "{name}");
    }
}

/// OpenShift sets the user. Helm 3 passes no hook to a post-renderer, which could remove it.
#[test]
fn no_pod_has_a_user_without_fixed_user() {
    let Some(helm) = helm() else { return };
    let values = format!("{ALL_PODS},fixedUser=false");
    let objects = objects(&helm, &["--set", &values]);
    for (name, pod) in pods(&objects) {
        let context = &pod["spec"]["securityContext"];
        let is_agent = name == "belayer-node-agent";
        assert!(is_agent || context["runAsNonRoot"] == true, "{name}");
        for key in ["runAsUser", "runAsGroup"] {
            assert!(is_agent || context[key].is_null(), "{name}: {context}");
        }
    }
}

/// The permissions are then another team's.
#[test]
fn nothing_of_rbac_is_rendered_without_rbac_create() {
    let Some(helm) = helm() else { return };
    let values = format!("{ALL_PODS},nodeAgent.handlers=true,rbac.create=false");
    let arguments = ["--no-hooks", "--skip-tests", "--set", &values];
    let objects = objects(&helm, &arguments);
    let kinds = objects.iter().filter_map(|object| object["kind"].as_str());
    let roles: Vec<&str> = kinds.filter(|kind| kind.contains("Role")).collect();
    assert_eq!(roles, [""; 0]);
}

/// Before Kubernetes 1.32 `belayer check` looks for node agents.
#[test]
fn helm_test_may_list_what_check_reads_on_old_servers() {
    let Some(helm) = helm() else { return };
    let objects = objects(&helm, &[]);
    let role = find(&objects, "ClusterRole", "belayer-check").unwrap();
    let rules = role["rules"].as_array().unwrap();
    let apps = rules.iter().find(|rule| rule["apiGroups"][0] == "apps");
    assert_eq!(
        apps.unwrap()["resources"],
        serde_json::json!(["daemonsets", "deployments"])
    );
}

/// Helm passes the condition of a dependency to the chart.
#[test]
fn a_parent_chart_may_switch_the_chart_on() {
    let Some(helm) = helm() else { return };
    for program in Program::HELM {
        render(&helm.path(program), &["--set", "enabled=true"]).unwrap();
    }
}

#[test]
fn no_object_has_a_key_twice() {
    let Some(helm) = helm() else { return };
    for version in ["1.30", "1.36"] {
        let text = everything(&helm, version).unwrap();
        let objects = serde_saphyr::from_multiple::<Value>(&text).unwrap();
        let monitor = find(&objects, "PodMonitor", "belayer").unwrap();
        let labels = &monitor["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], "belayer");
        assert_eq!(labels["app.kubernetes.io/part-of"], "all-platform");
        let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
        assert_eq!(endpoint["interval"], "45s", "{endpoint}");
    }
}

/// Their metrics may be served without TLS.
#[test]
fn the_token_for_belayers_metrics_is_not_sent_to_node_agents() {
    let Some(helm) = helm() else { return };
    let values = "podMonitor.enabled=true,nodeAgent.enabled=true,metrics.tlsSecret=a,\
                  podMonitor.endpoint.authorization.type=Bearer,nodeAgent.metrics.endpoint.honorLabels=true";
    let objects = objects(&helm, &["--set", values]);
    let endpoint = |name| {
        let monitor = find(&objects, "PodMonitor", name).unwrap();
        monitor["spec"]["podMetricsEndpoints"][0].clone()
    };
    let own = serde_json::json!({
        "port": "metrics", "interval": "30s", "scheme": "https", "authorization": { "type": "Bearer" },
    });
    assert_eq!(endpoint("belayer"), own);
    let agents = serde_json::json!({ "port": "metrics", "interval": "30s", "honorLabels": true });
    assert_eq!(endpoint("belayer-node-agent"), agents);
}

/// Policies of a cluster may require labels, and a proxy in the pod of a Job that no annotation prevents never ends.
#[test]
fn every_pod_has_the_labels_and_annotations_of_the_values() {
    let Some(helm) = helm() else { return };
    let values = all_values();
    let arguments = ["--values", &*values.to_string_lossy(), "--set", ALL_PODS];
    let objects = objects(&helm, &arguments);
    for (name, pod) in pods(&objects) {
        let metadata = &pod["metadata"];
        assert_eq!(
            metadata["labels"]["all.example.com/pod-label"], "yes",
            "{name}"
        );
        let annotations = &metadata["annotations"];
        assert_eq!(
            annotations["all.example.com/pod-annotation"], "yes",
            "{name}"
        );
        assert_eq!(metadata["labels"]["app.kubernetes.io/name"], name);
    }
}

/// In a namespace that denies all connections by default, a hook could not reach the API server.
#[test]
fn the_network_policy_selects_every_pod_of_its_namespace() {
    let Some(helm) = helm() else { return };
    let values = format!("{ALL_PODS},networkPolicy.enabled=true");
    let objects = objects(&helm, &["--set", &values]);
    let policy = find(&objects, "NetworkPolicy", "belayer").unwrap();
    let selected = policy["spec"]["podSelector"]["matchExpressions"][0]["values"].clone();
    let selected: BTreeSet<String> = serde_json::from_value(selected).unwrap();
    let mut all: BTreeSet<String> = pods(&objects).into_keys().map(str::to_owned).collect();
    all.remove("belayer-node-agent");
    assert_eq!(selected, all);
}

const ODD_NAMES: &str = "
rbac: {namespaces: ['no', '2024']}
controllers: {pvcProtection: {enabled: false}}
config:
  podFinalizer:
    profiles:
    - builtIn: argo
      namespaces: {include: ['no', '2024'], exclude: [2023]}
      selector: {matchLabels: {'yes': 'on'}}
  workflowFinalizer: {owners: [{namespaces: {include: ['no', '2024']}}]}
";

/// `no` and `2024` are names of namespaces; YAML reads them as a boolean and a number.
#[test]
fn names_are_texts_whatever_yaml_reads_in_them() {
    let Some(helm) = helm() else { return };
    let text = rendered_from(&helm.path(Program::Helm4), ODD_NAMES);
    for wanted in [
        "\n  namespace: \"no\"\n",
        "\n  namespace: \"2024\"\n",
        "values: [\"kube-system\",\"2023\"]",
        "values: [\"no\",\"2024\"]",
        "- key: \"yes\"\n",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// Helm reads numbers as floats.
#[test]
fn large_numbers_are_written_as_integers() {
    let Some(helm) = helm() else { return };
    let values = "drainOnUninstall.activeDeadlineSeconds=2000000";
    let text = render(&helm.path(Program::Helm3), &["--set-json", values]).unwrap();
    assert!(text.text().contains("\n  activeDeadlineSeconds: 2000000\n"));
}

/// Both Deployments would elect one leader together.
#[test]
fn the_lease_of_pod_recreation_is_not_that_of_the_other_controllers() {
    let Some(helm) = helm() else { return };
    let lease = "config.leaderElection.resourceName=belayer-pod-recreation";
    let values = format!("controllers.podRecreation.enabled=true,{lease}");
    let refused = render(&helm.path(Program::Helm4), &["--set", &values]);
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("must not be belayer-pod-recreation"), "{why}");
    objects(&helm, &["--set", lease]);
}

/// The alerts are about the Leases that the replicas renew.
#[test]
fn the_alerts_name_the_configured_leases() {
    let Some(helm) = helm() else { return };
    let expressions = |values: &str| {
        let values = format!("prometheusRule.enabled=true,{values}");
        let objects = objects(&helm, &["--set", &values]);
        let rule = find(&objects, "PrometheusRule", "belayer").unwrap();
        let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
        ["BelayerAbsent", "BelayerLeaseNotRenewed"].map(|name| {
            let rule = rules.iter().find(|rule| rule["alert"] == name);
            rule.map(|rule| rule["expr"].as_str().unwrap().to_owned())
                .unwrap_or_default()
        })
    };
    let absent = |name| format!("absent(leader_election_master_status{{name=\"{name}\"}})");
    let [replicas, lease] = expressions("replicas=2");
    assert_eq!(replicas, absent("belayer"));
    // The Lease of pod-recreation stays when its Deployment goes.
    assert!(lease.contains(r#"{lease=~"belayer"}"#), "{lease}");

    let apart = "controllers.podRecreation.enabled=true,config.leaderElection.resourceName=ops.eu";
    let [replicas, lease] = expressions(apart);
    let both = [absent("ops.eu"), absent("belayer-pod-recreation")];
    assert_eq!(replicas, both.join(" or "));
    assert!(
        lease.contains(r#"{lease=~"ops[.]eu|belayer-pod-recreation"}"#),
        "{lease}"
    );

    let alone = "controllers.podRecreation.enabled=true,config.leaderElection.enabled=false";
    let [replicas, lease] = expressions(alone);
    assert_eq!(replicas, "absent(belayer_config_last_reload_successful)");
    // No replica renews one.
    assert_eq!(lease, "");
    let [_, lease] = expressions("config.dryRun=true");
    assert!(lease.contains(r#"{lease=~"belayer"}"#), "{lease}");
}
