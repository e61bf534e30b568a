//! Arguments, formats and exit codes.

use rstest::rstest;
use serde_json::json;

use crate::world::World;

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
async fn watch_prints_after_changes_and_ends_after_the_deletion() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let mut command = world.command(&["explain", "cm/a", "--watch"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The first explanation is printed: what comes now is a change.
    let looked = || world.requests() > 5;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !looked() && std::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(looked(), "no request was sent");
    let none = belayer_sandbox::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    patch(&world, &none);
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("controller gone"), "{text}");
    assert!(
        text.ends_with("configmaps default/a is deleted.\n"),
        "{text}"
    );
    world.wrote_nothing();
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

/// A command that runs until it is ended, and what it has printed.
struct Watching {
    child: std::process::Child,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Watching {
    fn start(mut command: std::process::Command) -> Self {
        use std::io::Read as _;
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let printed = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let into = std::sync::Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..read]);
                into.lock().unwrap().push_str(&text);
            }
        });
        Self { child, printed }
    }

    async fn prints(&self, what: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !self.printed.lock().unwrap().contains(what) {
            let printed = self.printed.lock().unwrap().clone();
            assert!(std::time::Instant::now() < deadline, "no {what}: {printed}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_watches() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let watching = Watching::start(world.command(&["stuck", "-o", "name", "--watch"]));
    watching.prints("configmaps/a -n default\n").await;
    world.stuck_config_map("b", "strimzi.io/topic-operator", json!({}));
    watching
        .prints("\nconfigmaps/a -n default\nconfigmaps/b -n default\n")
        .await;
    world.wrote_nothing();
}

fn patch(world: &World, patch: &belayer_sandbox::Patch) {
    use belayer_sandbox::{Actor, Gvr, Subresource, WriteOptions};
    world
        .sandbox
        .cluster()
        .patch(
            &Actor::new("test"),
            &Gvr::CONFIGMAPS,
            Some("default"),
            "a",
            patch.clone(),
            Subresource::None,
            &WriteOptions::default(),
        )
        .unwrap();
}
