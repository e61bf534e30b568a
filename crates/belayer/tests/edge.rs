//! The built binary, as an admin uses it.
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

use std::process::{Command, Output};

use rstest::rstest;

fn belayer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_belayer"))
        .args(arguments)
        .env_clear()
        .env("HOME", "/nowhere")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[rstest]
#[case::a_missing_kubeconfig(&["run", "--kubeconfig=/nowhere/config"], "cannot read /nowhere/config: ")]
#[case::no_cluster_at_all(&["run"], "no cluster configured: pass --kubeconfig")]
#[case::an_unknown_controller(&["run", "--controllers=*,-pod-finaliser"], "did you mean `pod-finalizer`?")]
#[case::a_controller_that_is_like_no_other(&["run", "--controllers=x"], "unknown controller \"x\": use one of pod-finalizer, ")]
#[case::a_missing_configuration(&["run", "--config=/nowhere/b.yaml"], "/nowhere/b.yaml: cannot read the file: ")]
#[case::a_bad_namespace(&["run", "--own-namespace=A"], "--own-namespace: invalid namespace name \"A\"")]
fn wrong_configuration_is_one_line_and_exit_code_2(#[case] arguments: &[&str], #[case] says: &str) {
    let output = belayer(arguments);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.starts_with("error: ") && errors.contains(says),
        "{errors}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn bad_yaml_names_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.yaml");
    let body =
        "apiVersion: config.belayer.dev/v1alpha1\nkind: BelayerConfiguration\npodFinalizr: {}\n";
    std::fs::write(&path, body).unwrap();
    let output = belayer(&["run", "--config", path.to_str().unwrap()]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("b.yaml:3: podFinalizr: unknown key `podFinalizr`"),
        "{errors}"
    );
}

#[rstest]
#[case("1")]
#[case("true")]
#[case("yes")]
fn a_switch_can_be_an_environment_variable(#[case] value: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_belayer"))
        .args(["run", "--kubeconfig=/nowhere/config"])
        .env_clear()
        .env("BELAYER_DRY_RUN", value)
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot read /nowhere/config"), "{errors}");
}

#[rstest]
#[case::an_unknown_command(&["walk"])]
#[case::an_unknown_flag(&["run", "--fast"])]
#[case::nothing(&[])]
fn wrong_usage_is_exit_code_2(#[case] arguments: &[&str]) {
    let output = belayer(arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: belayer"));
}

#[rstest]
#[case(&["--help"], "Exit codes:")]
#[case(&["run", "--help"], "--controllers <LIST>")]
#[case(&["version"], "belayer 0.")]
#[case(&["version"], "feature gates: ConfigReload=true (beta)")]
#[case(&["config"], "leaderElection.leaseDuration")]
#[case(&["config", "--leader-elect-lease-duration=1m"], "--leader-elect-lease-duration or its environment variable")]
#[case(&["config", "--set", "podFinalizer.resync=5m"], "--set")]
#[case(&["--version"], "belayer 0.")]
fn results_go_to_standard_output(#[case] arguments: &[&str], #[case] says: &str) {
    let output = belayer(arguments);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains(says));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}
