//! What the chart renders, with both versions of Helm.

use serde_json::Value;

use super::*;

mod values;

/// Without Helm in the cache it is only built where everything must run.
fn helm() -> Option<HelmBinaries> {
    let wanted = HelmBinaries::are_built() || crate::is_ci() || is_renewed();
    if !wanted {
        eprintln!("skipped: Helm is not built; cargo xtask manifests builds it");
    }
    wanted.then(|| HelmBinaries::find_or_build().unwrap())
}

fn is_renewed() -> bool {
    std::env::var_os("UPDATE_SNAPSHOTS").is_some()
}

/// `cargo xtask manifests` renews them.
#[test]
fn the_manifests_are_rendered_from_the_chart() {
    let Some(helm) = helm() else { return };
    let rendered = manifests(&helm).unwrap();
    if is_renewed() {
        rendered.write().unwrap();
    }
    assert_eq!(rendered.outdated().unwrap(), Vec::<PathBuf>::new());
}

/// Helm 3 and 4 differ in empty lines only.
#[test]
fn both_versions_of_helm_render_the_same() {
    let Some(helm) = helm() else { return };
    let shipped = deploy().join("charts/manifests.yaml");
    let (shipped, all) = (shipped.to_string_lossy(), all_values());
    let all = all.to_string_lossy();
    for arguments in [
        &[][..],
        &["--values", &shipped, "--set", OPTIONS],
        &["--values", &all],
    ] {
        let lines = |program| {
            let rendered = render(&helm.path(program), arguments).unwrap();
            let text = rendered.text();
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(Program::Helm3), lines(Program::Helm4));
    }
}

/// A value that no template reads is accepted and does nothing.
#[test]
fn every_value_arrives_in_an_object() {
    let Some(helm) = helm() else { return };
    let values = all_values();
    let text = fs::read_to_string(&values).unwrap();
    let words = text.split(|c: char| c.is_whitespace() || "{}[],\"'".contains(c));
    let mut marks: BTreeSet<&str> = words
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.contains("all-") || word.contains("all.") || word.contains("ALL_"))
        .collect();
    assert!(marks.remove("all-template-of-"));
    marks.extend([
        "all-template-of-belayer",
        "--log-level=debug",
        "192.0.2.7/32",
        "sha256:0123456789abcdef",
    ]);
    assert!(marks.len() > 20, "{marks:?}");
    for program in Program::HELM {
        let arguments = ["--values", &*values.to_string_lossy()];
        let rendered = render(&helm.path(program), &arguments).unwrap().text();
        let missing = marks.iter().filter(|mark| !rendered.contains(**mark));
        let missing: Vec<_> = missing.collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

/// The policy that holds workflows at their creation is for the rule about workflows.
#[test]
fn another_kind_of_argo_is_not_held_as_a_workflow() {
    let Some(helm) = helm() else { return };
    let rule = |kind: &str, resource: &str| {
        serde_json::json!({
            "owner": { "group": "argoproj.io", "version": "v1alpha1", "kind": kind, "resource": resource },
            "podLabel": "of",
        })
    };
    let held_by = |rules: &[serde_json::Value]| {
        let owners = serde_json::to_string(rules).unwrap();
        let set = format!("config.workflowFinalizer.owners={owners}");
        let text = render(&helm.path(Program::Helm4), &["--set-json", &set]);
        let policy = "\nkind: MutatingAdmissionPolicy\nmetadata:\n  name: belayer-workflow-hold\n";
        text.unwrap().text().contains(policy)
    };
    assert!(held_by(&[rule("Workflow", "workflows")]));
    assert!(!held_by(&[rule("Rollout", "rollouts")]));
    assert!(held_by(&[
        rule("Rollout", "rollouts"),
        rule("Workflow", "workflows")
    ]));
}

const CONFIGURED: &str = "
config:
  podFinalizer:
    profiles:
    - builtIn: argo
      adopt: [example.com/earlier]
      namespaces: {include: [ci, nightly]}
      selector: {matchLabels: {team: build}}
  workflowFinalizer:
    owners:
    - owner: {group: ray.io, version: v1, kind: RayJob, resource: rayjobs}
      podLabel: ray.io/originated-from-cr-name
  pvcProtection:
    finalizer: kubernetes.io/pvc-protection
  podRecreation:
    namespaces: {exclude: [kube-system]}
controllers: {podRecreation: {enabled: true}}
";

/// What Helm renders from a file of values.
fn rendered_from(helm: &Path, values: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let arguments = ["--values", &*file.to_string_lossy()];
    render(helm, &arguments).unwrap().text()
}

/// The admission policies select and allow what the configuration selects and writes, without a hand in the chart.
#[test]
fn policies_follow_the_configuration() {
    let Some(helm) = helm() else { return };
    for program in Program::HELM {
        let text = rendered_from(&helm.path(program), CONFIGURED);
        let objects = serde_saphyr::from_multiple::<Value>(&text).unwrap();
        let policy = |name: &str| {
            let is_it = |object: &&Value| {
                let kind = object["kind"].as_str().unwrap_or_default();
                kind.ends_with("AdmissionPolicy") && object["metadata"]["name"] == name
            };
            objects.iter().find(is_it).unwrap()["spec"].clone()
        };
        let variable = |policy: &Value, name: &str| {
            let variables = policy["variables"].as_array().unwrap();
            let found = variables.iter().find(|variable| variable["name"] == name);
            found.unwrap()["expression"].as_str().unwrap().to_owned()
        };
        let writes = policy("belayer-pod-writes");
        assert_eq!(variable(&writes, "adopted"), "['example.com/earlier']");
        let owners = policy("belayer-owner-writes");
        for policy in [&writes, &owners] {
            let conditions = policy["matchConditions"].to_string();
            assert!(
                conditions.contains("system:serviceaccount:belayer-system:belayer-drain'"),
                "{conditions}"
            );
        }
        let is_hook = |object: &&Value| {
            object["kind"] == "ClusterRole" && object["metadata"]["name"] == "belayer-drain"
        };
        let rights = objects.iter().find(is_hook).unwrap()["rules"].to_string();
        assert!(rights.contains("rayjobs"), "{rights}");
        assert!(variable(&owners, "holds").contains("'kubernetes.io/pvc-protection'"));
        let limited = owners["matchConstraints"]["resourceRules"].to_string();
        assert!(
            limited.contains("rayjobs") && limited.contains("ray.io"),
            "{limited}"
        );
        assert!(!limited.contains("workflows"), "{limited}");

        let hold = policy("belayer-pod-hold")["matchConstraints"].take();
        let included = hold["namespaceSelector"].to_string();
        assert!(included.contains(r#""operator":"In""#), "{included}");
        assert!(included.contains(r#"["ci","nightly"]"#), "{included}");
        let selected = hold["objectSelector"].to_string();
        assert!(
            selected.contains("team") && selected.contains("build"),
            "{selected}"
        );
        let recreation = policy("belayer-pod-recreation-hold")["matchConstraints"].take();
        let excluded = recreation["namespaceSelector"].to_string();
        assert!(excluded.contains(r#""operator":"NotIn""#), "{excluded}");
        assert!(excluded.contains(r#"["kube-system"]"#), "{excluded}");
    }
}

const IN_TWO_NAMESPACES: &str = "
rbac: {namespaces: [ci, nightly]}
controllers: {pvcProtection: {enabled: false}}
config:
  podFinalizer:
    profiles: [{builtIn: argo, cleanup: none, namespaces: {include: [ci, nightly]}}]
  workflowFinalizer: {owners: [{namespaces: {include: [ci, nightly]}}]}
  podRecreation:
    backoff: {factor: 1.5, jitter: 0.1}
    storm: {perNode: {perSecond: 2}, breaker: {rejections: 50, namespaces: [ci]}}
";

/// T2, T8: `rbac.namespaces`, `cleanup: none`, and limits that name some keys only.
#[test]
fn t2_policies_are_not_wider_than_the_configuration() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let values = folder.path().join("values.yaml");
    fs::write(&values, IN_TWO_NAMESPACES).unwrap();
    for program in Program::HELM {
        let arguments = ["--values", &*values.to_string_lossy()];
        let text = render(&helm.path(program), &arguments).unwrap().text();
        let objects = serde_saphyr::from_multiple::<Value>(&text).unwrap();
        let policy = |name: &str| {
            let is_it = |object: &&Value| {
                object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == name
            };
            objects.iter().find(is_it).unwrap()
        };
        for name in ["belayer-pod-writes", "belayer-owner-writes"] {
            let annotations = &policy(name)["metadata"]["annotations"];
            assert_eq!(annotations["belayer.dev/namespaces"], "ci,nightly");
        }
        let deletes = policy("belayer-pod-deletes")["spec"]["variables"].to_string();
        assert!(deletes.contains("['Failed']"), "{deletes}");
    }
}

/// T2: also if the permissions are not of the chart, a policy would hold pods that Belayer cannot release.
#[test]
fn t2_namespaces_of_the_configuration_are_checked_without_roles_of_the_chart() {
    let Some(helm) = helm() else { return };
    let rbac = r#"rbac={"create":false,"namespaces":["ci","nightly"]}"#;
    for program in Program::HELM {
        let refused = render(&helm.path(program), &["--set-json", rbac]);
        let why = refused.err().map(|why| why.to_string()).unwrap_or_default();
        assert!(why.contains("rbac.namespaces needs"), "{program}: {why}");
        let by_hand = IN_TWO_NAMESPACES.replace("rbac: {", "rbac: {create: false, ");
        let text = rendered_from(&helm.path(program), &by_hand);
        assert!(text.contains("belayer.dev/namespaces: \"ci,nightly\""));
    }
}

/// A release packs the chart: an archive without one of its files is refused.
#[test]
fn the_archive_is_checked_by_both_versions_of_helm() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pack = |name: &str, without: &str| {
        let archive = folder.path().join(name);
        let packed = Command::new("tar")
            .args(["--create", "--gzip", "--exclude", without, "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(deploy().join("charts"))
            .arg("belayer")
            .status();
        assert!(packed.unwrap().success());
        check_archive(&helm, &archive, None)
    };
    pack("whole.tgz", "nothing").unwrap();
    let refused = pack("less.tgz", "rbac-core.yaml").unwrap_err();
    assert!(refused.to_string().contains("other objects"), "{refused}");
    assert!(pack("bad.tgz", "_helpers.tpl").is_err());
}

/// The policies that add holds exist from 1.36 on; what limits Belayer stays.
#[test]
fn an_older_server_gets_no_mutating_policy() {
    let Some(helm) = helm() else { return };
    let chart = chart();
    let old: Server<'_> = &["--kube-version", "1.35.0"];
    for program in Program::HELM {
        let helm = helm.path(program);
        let count = |server, kind: &str| {
            let text = render_for(&helm, &chart, server, &[]).unwrap().text();
            text.matches(&format!("\nkind: {kind}\n")).count()
        };
        assert_eq!(count(old, "MutatingAdmissionPolicy"), 0);
        assert_eq!(count(old, "MutatingAdmissionPolicyBinding"), 0);
        assert!(count(SERVER, "MutatingAdmissionPolicy") > 1);
        let limits = count(SERVER, "ValidatingAdmissionPolicy");
        assert_eq!(count(old, "ValidatingAdmissionPolicy"), limits);
    }
}

/// A copy of the chart in which the notes are an object: `helm template` does not print them.
fn with_notes_as_object(folder: &Path) -> PathBuf {
    let copied = Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(folder)
        .status();
    assert!(copied.unwrap().success());
    let copy = folder.join("belayer");
    fs::rename(copy.join("templates/NOTES.txt"), copy.join("notes.txt")).unwrap();
    let object = "kind: Notes\nnotes: {{ tpl (.Files.Get \"notes.txt\") . | toJson }}\n";
    fs::write(copy.join("templates/notes.yaml"), object).unwrap();
    copy
}

#[test]
fn the_notes_tell_what_the_server_lacks() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let chart = with_notes_as_object(folder.path());
    let old: Server<'_> = &["--kube-version", "1.35.0"];
    for program in Program::HELM {
        let notes = |server, arguments: &[&str]| {
            let rendered = render_for(&helm.path(program), &chart, server, arguments).unwrap();
            rendered.0[Path::new("notes.yaml")].clone()
        };
        let lacks = "This server has no MutatingAdmissionPolicies (Kubernetes 1.36)";
        assert!(notes(old, &[]).contains(lacks));
        let whole = notes(SERVER, &[]);
        assert!(!whole.contains(lacks), "{whole}");
        assert!(whole.contains("does not exist. Build one"), "{whole}");
        assert!(whole.contains("first runs `belayer drain`"), "{whole}");
        let named = ["--set", "image.repository=registry.example.com/belayer"];
        assert!(!notes(SERVER, &named).contains("does not exist"));
        // Without its configuration, `check` would compare the cluster with the defaults.
        let configured = notes(SERVER, &["--set", "config.limits.qps=50"]);
        assert!(
            configured.contains("belayer status --config belayer.yaml"),
            "{configured}"
        );
        assert!(
            configured.contains("get configmap belayer-config"),
            "{configured}"
        );
        assert!(!whole.contains("--config"), "{whole}");
        let by_hand = ["--set", "drainOnUninstall.enabled=false"];
        assert!(notes(SERVER, &by_hand).contains("run `belayer drain`: it removes"));
    }
}

/// Values that the chart must refuse, and what Helm says.
#[test]
fn wrong_values_are_refused_by_name() {
    let Some(helm) = helm() else { return };
    let off = "controllers.podFinalizer.enabled=false,controllers.workflowFinalizer.enabled=false,\
               controllers.pvcProtection.enabled=false";
    for (values, named) in [
        ("replica=3", "replica"),
        ("config.podFinaliser.profiles=x", "podFinaliser"),
        ("controllers.podFinaliser.enabled=true", "podFinaliser"),
        (off, "no controller is enabled"),
        // As in a file of values in which everything below the key is a comment.
        ("config=null", "missing propert"),
        ("controllers.podFinalizer=null", "missing propert"),
        ("drainOnUninstall.timeout=0s", "timeout"),
        (
            "config.endpoints.metricsAuthorization=true",
            "needs metrics.tlsSecret",
        ),
        (
            "nodeAgent.enabled=true,nodeAgent.metrics.authorization=true",
            "needs nodeAgent.metrics.tlsSecret",
        ),
    ] {
        for program in Program::HELM {
            let refused = render(&helm.path(program), &["--set", values]);
            let why = refused.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(why.contains(named), "{program} {values}: {why}");
        }
    }
}

/// H2: the namespace is nowhere but in the namespace's place.
#[test]
fn h2_nothing_names_the_default_namespace_in_another_one() {
    let Some(helm) = helm() else { return };
    let values = deploy().join("charts/manifests.yaml");
    let values = values.to_string_lossy();
    let arguments = ["--namespace", "ops", "--values", &values, "--set", OPTIONS];
    for program in Program::HELM {
        let text = render(&helm.path(program), &arguments).unwrap().text();
        assert!(!text.contains("belayer-system"), "{text}");
        assert!(text.contains("system:serviceaccount:ops:belayer"), "{text}");
        assert!(text.contains("resourceNames: [ops]"), "{text}");
    }
}

/// The CRDs may be installed on their own; the records need their protection nevertheless.
#[test]
fn the_records_are_protected_without_the_crds_of_the_chart() {
    let Some(helm) = helm() else { return };
    let values = "crds.enabled=false,controllers.podRecreation.enabled=true";
    let rendered = render(&helm.path(Program::Helm3), &["--set", values]).unwrap();
    let text = rendered.text();
    assert!(text.contains("name: belayer-pod-recreation-records"));
    assert!(!text.contains("kind: CustomResourceDefinition"));
}
