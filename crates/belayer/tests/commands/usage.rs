//! Arguments, formats and exit codes.

use belayer_sandbox::{Answer as Response, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::json;

use crate::check::manifests;
use crate::world::{TOOL, World};

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_cluster_is_exit_code_0() {
    let world = World::new().await;
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(
        answer
            .out
            .starts_with("No object is stuck in Terminating.\n"),
        "{}",
        answer.out
    );
    assert!(answer.err.is_empty(), "{}", answer.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_has_its_documented_form() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({"app": "x"}));
    let answer = world.run(&["stuck", "-o", "json"]).await;
    assert_eq!(answer.code, 3, "{}", answer.err);
    let report = answer.json();
    assert_eq!(report["apiVersion"], "inspect.belayer.dev/v1alpha1");
    assert_eq!(report["kind"], "StuckReport");
    assert_eq!(report["summary"]["stuck"], 1);
    assert_eq!(report["summary"]["complete"], true);
    let group = &report["groups"][0];
    assert_eq!(group["verdict"], "controller-gone");
    assert_eq!(group["cause"], "finalizer");
    assert_eq!(group["finalizer"], "strimzi.io/topic-operator");
    assert_eq!(group["known"]["owner"], "Strimzi Topic Operator");
    assert!(!group["known"]["lostIfForced"].as_str().unwrap().is_empty());
    let object = &group["objects"][0];
    for (key, value) in [
        ("apiVersion", "v1"),
        ("kind", "ConfigMap"),
        ("resource", "configmaps"),
        ("namespace", "default"),
        ("name", "a"),
    ] {
        assert_eq!(object[key], value);
    }
    assert!(object["deletionTimestamp"].is_string() && object["ageSeconds"].is_i64());
    // YAML has the same data.
    let yaml = world.run(&["stuck", "-o", "yaml"]).await;
    let read: serde_json::Value = serde_saphyr::from_str(&yaml.out).unwrap();
    assert_eq!(read["groups"][0]["objects"][0]["uid"], object["uid"]);
}

#[rstest]
#[case::a_label_that_fits(&["-l", "app=x"], 3)]
#[case::a_label_that_does_not(&["-l", "app!=x"], 0)]
#[case::not_that_old(&["--older-than", "1h"], 0)]
#[case::its_namespace(&["-n", "default"], 3)]
#[case::another_namespace(&["-n", "kube-public"], 0)]
#[case::all_namespaces(&["-A"], 3)]
#[tokio::test(flavor = "multi_thread")]
async fn flags_select_objects(#[case] flags: &[&str], #[case] code: i32) {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({"app": "x"}));
    let args: Vec<&str> = ["stuck"].iter().chain(flags).copied().collect();
    let answer = world.run(&args).await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
}

/// An object that a flag leaves out is stuck all the same.
#[rstest]
#[case::by_its_age(&["--older-than", "1h"])]
#[case::by_its_labels(&["-l", "app!=x"])]
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_flags_leave_out_count_as_stuck(#[case] flags: &[&str]) {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({"app": "x"}));
    let args: Vec<&str> = ["stuck"].iter().chain(flags).copied().collect();
    let answer = world.run(&args).await;
    for says in [
        "No object is stuck in Terminating among those selected.",
        "1 more object is stuck and left out by age or labels.",
    ] {
        assert!(answer.has(says), "{says}: {}", answer.out);
    }
    assert!(!answer.has("grace period"), "{}", answer.out);
    let args = [&args[..], &["-o", "json"]].concat();
    let summary = world.run(&args).await.json()["summary"].clone();
    assert_eq!(
        (&summary["leftOut"], &summary["withinGrace"]),
        (&json!(1), &json!(0))
    );
}

#[rstest]
#[case::no_object(&["explain"], "Usage:")]
#[case::no_name(&["explain", "pod"], "write KIND/NAME or KIND NAME")]
#[case::a_path(&["explain", "pod/../a"], "invalid object")]
#[case::an_unknown_kind(&["explain", "pode/a"], "unknown kind \"pode\"")]
#[case::no_time(&["stuck", "--older-than=5"], "(example: 30s")]
#[case::no_selector(&["stuck", "-l", "a b"], "invalid label selector")]
#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_exit_code_2(#[case] args: &[&str], #[case] says: &str) {
    let world = World::new().await;
    let answer = world.run(args).await;
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains(says), "{}", answer.err);
    assert!(answer.out.is_empty(), "{}", answer.out);
}

/// kube reads these variables, and Belayer is built without its support of proxies.
#[rstest]
#[case::upper_case("HTTPS_PROXY", "http://127.0.0.1:1")]
#[case::lower_case("https_proxy", "http://127.0.0.1:1")]
#[case::an_invalid_url("HTTPS_PROXY", "http://[")]
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_an_error_that_names_its_variable(#[case] variable: &str, #[case] url: &str) {
    let world = World::new().await;
    let mut command = world.command(&["stuck"]);
    let output = command.env(variable, url).env("NO_PROXY", "*").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let says = format!("error: cannot use a proxy: {variable} is set; unset it\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), says);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_exit_code_1() {
    let world = World::new().await;
    let answer = world.run(&["explain", "pod/nobody"]).await;
    assert_eq!(answer.code, 1);
    assert_eq!(answer.err, "error: pods default/nobody does not exist\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_are_data_too() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let answer = world.run(&["explain", "cm", "a", "-ojson"]).await;
    assert_eq!(answer.code, 3, "{}", answer.err);
    let explanation = answer.json();
    assert_eq!(explanation["kind"], "Explanation");
    assert_eq!(explanation["object"]["stuck"], true);
    assert_eq!(explanation["groups"][0]["verdict"], "controller-gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_only_for_terminals() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let plain = world.run(&["stuck"]).await;
    assert!(!plain.out.contains('\u{1b}'), "{}", plain.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_keeps_to_the_width_but_commands_stay_whole() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let answer = world.run(&["stuck", "-o", "wide"]).await;
    for line in answer.out.lines() {
        let command = line.trim_start().starts_with("kubectl ");
        assert!(command || line.chars().count() <= 80, "{line}");
    }
    assert!(
        answer.out.contains("https://github.com/strimzi/"),
        "{}",
        answer.out
    );
}

/// Installed as a kubectl plugin, it prints that name.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_plugin_it_is_called_kubectl_belayer() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-belayer");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_belayer"), &plugin).unwrap();
    let kubeconfig = world.kubeconfig();
    let (help, stuck) = tokio::task::spawn_blocking(move || {
        let run = |args: &[&str]| {
            std::process::Command::new(&plugin)
                .args(args)
                .env_clear()
                .env("KUBECONFIG", &kubeconfig)
                .output()
                .unwrap()
        };
        (run(&["stuck", "--help"]), run(&["stuck"]))
    })
    .await
    .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: kubectl belayer stuck"), "{help}");
    assert_eq!(stuck.status.code(), Some(0));
}

/// Row *uninstall*: the Job of the chart says which key is wrong, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn uninstall_with_an_invalid_configuration_is_refused() {
    let world = World::new().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: config.belayer.dev/v1alpha1\npodFinalizer: {backlogThreshold: many}\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let drain = ["drain", "--configured-kinds", "--config", path];
    let answer = world.run(&drain).await;
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains("backlogThreshold"), "{}", answer.err);
    assert_eq!(world.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn config_shows_the_pause_that_the_deprecated_key_sets() {
    let world = World::new().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: config.belayer.dev/v1alpha1\npodRecreation: {backoffSeconds: 20}\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let answer = world.run(&["config", "--config", path]).await;
    assert_eq!(answer.code, 0, "{}", answer.err);
    let says = format!("podRecreation.backoff.initial 20s {path}");
    assert!(answer.has(&says), "{}", answer.out);
}

/// A hold of Belayer on an object of another kind is found without the option only.
#[rstest]
#[case::all(&[], "Would remove 1 hold from 1 object:")]
#[case::configured(&["--configured-kinds"], "of the configured kinds checked; --configured-kinds leaves out all others.")]
#[tokio::test(flavor = "multi_thread")]
async fn drain_says_which_kinds_it_checked(#[case] option: &[&str], #[case] says: &str) {
    let world = World::new().await;
    world.stuck_config_map("a", "belayer.dev/workflow-cleanup", json!({}));
    let answer = world.run(&[&["drain", "--dry-run"], option].concat()).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(answer.has(says), "{}", answer.out);
    assert!(!answer.has("all kinds checked"), "{}", answer.out);
}

/// The defaults need not select what the Belayer of the cluster holds by its file.
#[rstest]
#[case::no_file(&["run"], false, 0)]
#[case::one_word(&["run", "--config=/etc/belayer/config.yaml"], false, 2)]
#[case::two_words(&["run", "--config", "/etc/belayer/config.yaml"], false, 2)]
#[case::unreadable_deployments(&["run", "--config=/etc/belayer/config.yaml"], true, 0)]
#[tokio::test(flavor = "multi_thread")]
async fn unselected_needs_the_file_that_belayer_runs_with(
    #[case] arguments: &[&str],
    #[case] is_refused: bool,
    #[case] code: i32,
) {
    let world = World::new().await;
    let labels = json!({ "app.kubernetes.io/name": "belayer" });
    let container = json!({ "name": "belayer", "image": "belayer", "args": arguments });
    let deployment = json!({
        "metadata": { "name": "belayer", "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels }, "spec": { "containers": [container] },
        } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    manifests(&world, &["namespace"]);
    world.create(&deployments, Some("belayer-system"), deployment);
    if is_refused {
        let reads = Match::verb(Verb::List).resource("deployments").client(TOOL);
        let no = Fault::on(reads.namespace("belayer-system")).answer(Response::forbidden("no"));
        world.sandbox.faults().inject(no);
    }
    let answer = world.run(&["drain", "--unselected"]).await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    let says = "the Deployment belayer-system/belayer runs with a configuration file; give the same file with --config FILE";
    let err: Vec<&str> = answer.err.split_whitespace().collect();
    assert_eq!(err.join(" ").contains(says), code == 2, "{}", answer.err);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "apiVersion: config.belayer.dev/v1alpha1\n").unwrap();
    let path = file.path().to_str().unwrap();
    let with_file = ["drain", "--unselected", "--config", path];
    if !is_refused {
        assert_eq!(world.run(&with_file).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_without_draining_mode_changes_nothing() {
    let world = World::new().await;
    manifests(&world, &["namespace"]);
    world.gate("belayer-system", &json!({ "mode": "normal", "hold": "on" }));
    let answer = world.run(&["drain", "--resume"]).await;
    assert_eq!(answer.code, 0, "{}", answer.err);
    let says = "Belayer is not in draining mode: nothing had to be changed.\n";
    assert_eq!(answer.out, says);
}

/// As of `kubectl create token X > file`.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_may_end_with_a_line_break() {
    let world = World::new().await;
    let path = world.kubeconfig();
    let token = path.with_file_name("token");
    std::fs::write(&token, format!("user:{TOOL}\n")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let both = format!("{{token: other, tokenFile: {}}}", token.display());
    let inline = format!("{{token: \"user:{TOOL}\"}}");
    assert!(text.contains(&inline), "{text}");
    std::fs::write(&path, text.replace(&inline, &both)).unwrap();
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(world.requests() > 0, "the requests are of another user");
}

/// Row *kubectl plugin*: kinds, names and namespaces come from the cluster, and no candidate is an error.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_plugin_completes_what_is_in_the_cluster() {
    let world = World::new().await;
    world.stuck_config_map("first", "strimzi.io/topic-operator", json!({}));
    world.stuck_config_map("second", "strimzi.io/topic-operator", json!({}));
    for (words, expected) in [
        (&["stuck", "-n", "def"][..], "default\n:4\n"),
        (&["explain", "configm"], "configmaps\n:4\n"),
        (&["explain", "cm/"], "cm/first\ncm/second\n:4\n"),
        (&["explain", "-n", "default", "cm", "s"], "second\n:4\n"),
        (&["explain", "-n", "kube-system", "cm", "s"], ":4\n"),
        (&["explain", "nonsense/"], ":4\n"),
        (&["explain", "--kubeconfig=/missing", "cm/"], ":4\n"),
        (&["status", "--config", ""], ":0\n"),
    ] {
        let all: Vec<&str> = ["__complete", "--"].iter().chain(words).copied().collect();
        let answer = world.run(&all).await;
        assert_eq!(answer.code, 0, "{words:?}: {}", answer.err);
        assert_eq!(answer.out, expected, "{words:?}: {}", answer.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_prints_names_that_explain_takes() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let names = world.run(&["stuck", "-o", "name"]).await;
    assert_eq!(names.out, "configmaps/a -n default\n");
    assert_eq!(names.code, 3);
    let line: Vec<&str> = names.out.split_whitespace().collect();
    let explained = world.run(&[&["explain"], &line[..]].concat()).await;
    assert_eq!(explained.code, 3);
    for command in ["explain", "status", "check", "drain"] {
        let refused = world.run(&[command, "-o", "name"]).await;
        assert_eq!(refused.code, 2, "{command}");
    }
}

/// RBAC objects may have any name without `/` and `%`, and a tenant with the role `admin` creates them.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_one_word_of_each_command() {
    let world = World::new().await;
    let bindings = Gvr::new("rbac.authorization.k8s.io", "v1", "rolebindings");
    let name = "x$(id) y";
    let binding = json!({
        "metadata": { "name": name, "finalizers": ["example.com/a"] },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a" },
    });
    world.create(&bindings, Some("default"), binding);
    world.delete(&bindings, Some("default"), name);
    let stuck = world.run(&["stuck"]).await;
    let command = "kubectl -n default describe rolebindings.rbac.authorization.k8s.io 'x$(id) y'";
    assert!(stuck.out.contains(command), "{}", stuck.out);
    let names = world.run(&["stuck", "-o", "name"]).await;
    let expected = "'rolebindings.rbac.authorization.k8s.io/x$(id) y' -n default\n";
    assert_eq!(names.out, expected);
}
