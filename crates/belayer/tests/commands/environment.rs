//! Environment variables of flags.

use std::process::Command;

use rstest::rstest;

/// Runs `belayer config` with this file and these variables: its exit code and its output.
fn config(file: &str, variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.yaml");
    let text = format!("apiVersion: config.belayer.dev/v1alpha1\n{file}\n");
    std::fs::write(&path, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_belayer"))
        .args(["config", "--config"])
        .arg(&path)
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let all = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(all).unwrap(),
    )
}

/// `key` and its value in the output.
fn value<'a>(out: &'a str, key: &str) -> Option<&'a str> {
    let mut rows = out.lines().map(str::split_whitespace);
    rows.find_map(|mut row| (row.next() == Some(key)).then(|| row.next())?)
}

const DRY: &str = "dryRun: true";
const AUTHORIZED: &str =
    "endpoints: {metricsAuthorization: true, tlsCertFile: /c, tlsPrivateKeyFile: /k}";

#[rstest]
#[case::dry_run(DRY, "dryRun", "BELAYER_DRY_RUN", "--dry-run")]
#[case::authorization(
    AUTHORIZED,
    "endpoints.metricsAuthorization",
    "BELAYER_METRICS_AUTHORIZATION",
    "--metrics-authorization"
)]
fn false_takes_precedence_over_the_file(
    #[case] file: &str,
    #[case] key: &str,
    #[case] variable: &str,
    #[case] flag: &str,
) {
    let off = format!("{flag}=false");
    for (variables, arguments, expected) in [
        (&[][..], &[][..], "true"),
        (&[(variable, "false")], &[], "false"),
        (&[], &[&*off], "false"),
        (&[(variable, "true")], &[&*off], "false"),
        (&[(variable, "false")], &[flag], "true"),
    ] {
        let (code, out) = config(file, variables, arguments);
        assert_eq!(code, 0, "{out}");
        assert_eq!(value(&out, key), Some(expected), "{variables:?}: {out}");
    }
}

#[rstest]
#[case::of_a_variable(&[("BELAYER_WORKERS", "x")], &[], "for '--workers <N> (from BELAYER_WORKERS)'")]
#[case::without_a_value(&[("BELAYER_TLS_CERT_FILE", "")], &[], "'--tls-cert-file <FILE> (from BELAYER_TLS_CERT_FILE)'")]
#[case::of_a_flag(&[("BELAYER_WORKERS", "1")], &["--workers=x"], "for '--workers <N>':")]
fn an_error_names_the_source_of_the_value(
    #[case] variables: &[(&str, &str)],
    #[case] arguments: &[&str],
    #[case] says: &str,
) {
    let (code, out) = config("", variables, arguments);
    assert_eq!(code, 2, "{out}");
    assert!(out.contains(says), "{out}");
}
