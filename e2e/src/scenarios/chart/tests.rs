//! What single values render, for what the scenarios do with a release, and values that Helm must refuse.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::chart::chart;
use crate::control_plane::{HelmBinaries, Program};
use crate::output::Output;

/// Without Helm in the cache it is only built where everything must run.
fn helm() -> Option<HelmBinaries> {
    let wanted = HelmBinaries::are_built() || crate::is_ci();
    if !wanted {
        eprintln!("skipped: Helm is not built; cargo xtask manifests builds it");
    }
    wanted.then(|| HelmBinaries::find_or_build().unwrap())
}

/// What `helm template` prints with these values in a namespace, or why it refuses them.
fn template(
    helm: &HelmBinaries,
    program: Program,
    namespace: &str,
    values: &Value,
) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(helm.path(program))
        .args(["template", "belayer"])
        .arg(chart())
        .args(["--namespace", namespace, "--kube-version=1.36.0"])
        .args(["--values", "-"])
        .env("HELM_CONFIG_HOME", home.path().join("config"))
        .env("HELM_DATA_HOME", home.path().join("data"))
        .env("HELM_CACHE_HOME", home.path().join("cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(values.to_string().as_bytes()).unwrap();
    drop(input);
    let output = Output::from(child.wait_with_output().unwrap());
    match output.code {
        0 => Ok(output.out),
        _ => Err(output.err),
    }
}

/// The objects that Helm 4 renders in the default namespace.
fn objects(helm: &HelmBinaries, values: &Value) -> Vec<Value> {
    let text = template(helm, Program::Helm4, "belayer-system", values).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut all = objects.iter();
    all.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The templates of the pods that run Belayer's controllers.
fn pod_templates(helm: &HelmBinaries, config: &Value) -> Vec<Value> {
    let values =
        json!({ "controllers": { "podRecreation": { "enabled": true } }, "config": config });
    let objects = objects(helm, &values);
    let template = |name| find(&objects, "Deployment", name).unwrap()["spec"]["template"].clone();
    ["belayer", "belayer-pod-recreation"].map(template).into()
}

/// Kubernetes restarts pods only if their template changes. Without a restart, replicas would renew the Lease that the
/// Role no longer names, and serve metrics without the authorization that was switched on.
#[test]
fn a_changed_key_of_the_start_restarts_the_pods_and_no_other_key_does() {
    let Some(helm) = helm() else { return };
    let before = pod_templates(&helm, &json!({ "limits": { "qps": 50 } }));
    for live in [
        json!({ "limits": { "qps": 60 } }),
        json!({ "podFinalizer": { "resync": "5m" } }),
        json!({ "podRecreation": { "recordTtlSeconds": 60 } }),
    ] {
        assert_eq!(pod_templates(&helm, &live), before, "{live}");
    }
    for start in [
        json!({ "dryRun": true }),
        json!({ "endpoints": { "debugBindAddress": "0" } }),
        json!({ "featureGates": { "PodCleanup": true } }),
        json!({ "leaderElection": { "resourceName": "ops.eu" } }),
        json!({ "logging": { "level": "debug" } }),
    ] {
        let after = pod_templates(&helm, &start);
        assert!(before.iter().zip(&after).all(|(a, b)| a != b), "{start}");
    }
}

/// A dry run removes no finalizer, so no policy may add one. It takes part in no election, whose metric it does not have.
#[test]
fn a_dry_run_has_no_policy_that_holds_and_no_alert_about_an_election() {
    let Some(helm) = helm() else { return };
    let of = |is_dry_run: bool| {
        objects(
            &helm,
            &json!({
                "config": { "dryRun": is_dry_run, "pvcProtection": { "finalizer": "belayer.dev/pvc-protection" } },
                "controllers": { "podRecreation": { "enabled": true } },
                "prometheusRule": { "enabled": true },
            }),
        )
    };
    let count = |objects: &[Value], kind: &str| {
        let all = objects.iter().filter(|object| object["kind"] == kind);
        all.count()
    };
    let (wet, dry) = (of(false), of(true));
    for kind in ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] {
        assert_eq!((count(&wet, kind), count(&dry, kind)), (4, 0), "{kind}");
    }
    let limits = "ValidatingAdmissionPolicy";
    assert_eq!(count(&wet, limits), count(&dry, limits));
    let absent = "absent(belayer_config_last_reload_successful)";
    assert_eq!(expression(&dry, "BelayerAbsent"), absent);
    assert_ne!(expression(&wet, "BelayerAbsent"), absent);
}

/// The expression of an alert.
fn expression<'a>(objects: &'a [Value], alert: &str) -> &'a str {
    let rule = find(objects, "PrometheusRule", "belayer").unwrap();
    let mut rules = rule["spec"]["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .iter();
    let rule = rules.find(|rule| rule["alert"] == alert).unwrap();
    rule["expr"].as_str().unwrap()
}

/// Everything that the chart can render, with a text where a name may stand.
fn named(name: &str, agents: &str) -> Value {
    let on = json!({ "enabled": true });
    json!({
        "controllers": { "podRecreation": on },
        "config": { "leaderElection": { "resourceName": name } },
        "namespace": { "create": true },
        "priorityClassName": name,
        "resourceQuota": on,
        "metrics": { "tlsSecret": name },
        "networkPolicy": on, "podMonitor": on, "prometheusRule": on, "dashboard": on, "flowSchema": on,
        "nodeAgent": {
            "enabled": true, "handlers": true, "priorityClassName": name,
            "namespace": { "name": agents },
            "metrics": { "tlsSecret": name },
        },
    })
}

/// `off`, `7777` and `1e3` are valid names; YAML reads a boolean and numbers in them, and the API server refuses those.
#[test]
fn names_that_yaml_reads_as_another_type_are_in_quotes() {
    let Some(helm) = helm() else { return };
    for program in Program::HELM {
        for (name, agents) in [("off", "no"), ("7777", "8888"), ("1e3", "1e4")] {
            let text = template(&helm, program, name, &named(name, agents)).unwrap();
            let ends = [name, agents].map(|name| [format!(": {name}"), format!("[{name}]")]);
            let mut lines = text.lines();
            let unquoted = lines.find(|line| ends.iter().flatten().any(|end| line.ends_with(end)));
            assert_eq!(unquoted, None, "{program} {name}");
            for (name, least) in [(name, 30), (agents, 5)] {
                let quoted = text.matches(&format!("\"{name}\"")).count();
                assert!(quoted > least, "{program} {name}: {quoted}");
            }
        }
        let plain = template(&helm, program, "plain", &named("plain", "agents")).unwrap();
        let quoted = plain.lines().find(|line| line.ends_with(": \"plain\""));
        assert_eq!(quoted, None, "{program}");
    }
}

/// A directory may have any name, also one that Helm writes in two lines.
#[test]
fn the_root_of_the_node_agent_is_one_text() {
    let Some(helm) = helm() else { return };
    let root = format!("/with: colon, {0} {0} {0}", "long".repeat(10));
    let objects = objects(
        &helm,
        &json!({ "nodeAgent": { "enabled": true, "root": root } }),
    );
    let agent = find(&objects, "DaemonSet", "belayer-node-agent").unwrap();
    let pod = &agent["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["args"][1], format!("--root={root}"));
    assert_eq!(container["volumeMounts"][0]["mountPath"], root);
    let mut volumes = pod["volumes"].as_array().unwrap().iter();
    let volume = volumes
        .find(|volume| volume["name"] == "workspaces")
        .unwrap();
    assert_eq!(volume["hostPath"]["path"], root);
}

/// The keys of the chart's values, as paths: objects too, and no key below one whose keys are the user's.
fn keys(values: &Value, schema: &Value, path: &[String], all: &mut Vec<Vec<String>>) {
    let Some(known) = schema["properties"].as_object() else {
        return;
    };
    for (key, value) in values.as_object().into_iter().flatten() {
        let path = [path, std::slice::from_ref(key)].concat();
        keys(value, &known[key], &path, all);
        all.push(path);
    }
}

/// Helm removes the default of a key that a file of values leaves empty: no replica would run, or the CRDs would go with
/// the release.
#[test]
fn a_key_without_a_value_is_refused_by_the_schema() {
    let Some(helm) = helm() else { return };
    let read = |name| std::fs::read_to_string(chart().join(name)).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut all = Vec::new();
    keys(&values, &schema, &[], &mut all);
    assert!(all.len() > 80, "{all:?}");
    for path in all {
        let empty = path
            .iter()
            .rev()
            .fold(Value::Null, |below, key| json!({ key: below }));
        for program in Program::HELM {
            let refused = template(&helm, program, "belayer-system", &empty);
            let why = refused.err().unwrap_or_default();
            let named = format!("missing property '{}'", path.last().unwrap());
            assert!(why.contains(&named), "{program} {empty}: {why}");
        }
    }
}

/// Handlers and hooks have no flags, and the image does not contain their programs.
#[test]
fn the_node_agent_reads_its_configuration_and_has_its_programs() {
    let Some(helm) = helm() else { return };
    let with = |handlers: bool, config: Value| {
        json!({ "nodeAgent": {
            "enabled": true, "handlers": handlers, "config": config,
            "extraVolumes": [{ "name": "tools", "hostPath": { "path": "/opt/tools", "type": "Directory" } }],
            "extraVolumeMounts": [{ "name": "tools", "mountPath": "/opt/tools", "readOnly": true }],
        }})
    };
    let agent = |objects: &[Value]| {
        let set = find(objects, "DaemonSet", "belayer-node-agent").unwrap();
        set["spec"]["template"].clone()
    };
    let config =
        json!({ "workers": 4, "handlers": [{ "command": ["/opt/tools/prepare", "{podUID}"] }] });
    let configured = objects(&helm, &with(true, config.clone()));
    let map = find(&configured, "ConfigMap", "belayer-node-agent-config").unwrap();
    assert_eq!(map["metadata"]["namespace"], "belayer-node-agent");
    let file: Value =
        serde_saphyr::from_str(map["data"]["belayer.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(file["nodeAgent"], config);
    let pod = agent(&configured);
    let container = &pod["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--config=/etc/belayer/belayer.yaml")));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    for (name, place) in [("config", "/etc/belayer"), ("tools", "/opt/tools")] {
        assert!(
            mounts
                .iter()
                .any(|mount| mount["name"] == name && mount["mountPath"] == place)
        );
        assert!(
            volumes.iter().any(|volume| volume["name"] == name),
            "{name}"
        );
    }
    // The agent reads the file at its start only.
    let other = agent(&objects(&helm, &with(true, json!({ "workers": 5 }))));
    assert_ne!(pod["metadata"], other["metadata"]);
    let why = template(
        &helm,
        Program::Helm4,
        "belayer-system",
        &with(false, config),
    )
    .unwrap_err();
    assert!(why.contains("needs nodeAgent.handlers=true"), "{why}");

    let plain = objects(&helm, &json!({ "nodeAgent": { "enabled": true } }));
    assert!(find(&plain, "ConfigMap", "belayer-node-agent-config").is_none());
    assert!(agent(&plain)["metadata"]["annotations"].is_null());
    let labelled =
        json!({ "nodeAgent": { "enabled": true, "seLinuxOptions": { "type": "spc_t" } } });
    let labelled = agent(&objects(&helm, &labelled));
    let context = &labelled["spec"]["containers"][0]["securityContext"];
    assert_eq!(context["seLinuxOptions"], json!({ "type": "spc_t" }));
}

/// A key that is read again needs no restart, unless the feature is off by which it is.
#[test]
fn a_changed_key_restarts_the_pods_if_nothing_reads_it_again() {
    let Some(helm) = helm() else { return };
    let metadata = |reload: bool, workers: u32| {
        let config = json!({
            "featureGates": { "ConfigReload": reload }, "podFinalizer": { "workers": workers },
        });
        let objects = objects(&helm, &json!({ "config": config }));
        let deployment = find(&objects, "Deployment", "belayer").unwrap();
        deployment["spec"]["template"]["metadata"].clone()
    };
    assert_eq!(metadata(true, 4), metadata(true, 5));
    assert_ne!(metadata(false, 4), metadata(false, 5));
}

/// The namespace would lose its Pod Security level, and an uninstall would delete it.
#[test]
fn the_node_agent_has_a_separate_namespace() {
    let Some(helm) = helm() else { return };
    for program in Program::HELM {
        for name in [
            "ops",
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
        ] {
            let agent = |enabled: bool| json!({ "nodeAgent": { "enabled": enabled, "namespace": { "name": name } } });
            let why = template(&helm, program, "ops", &agent(true)).unwrap_err();
            assert!(
                why.contains("needs a separate namespace"),
                "{program} {name}: {why}"
            );
            template(&helm, program, "ops", &agent(false)).unwrap();
        }
    }
}
