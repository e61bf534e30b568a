use std::path::Path;

use belayer_core::damage::{Edit, damaged};
use belayer_pod_finalizer::profile::config::{KEY, PodFinalizerConfig, Settings};
use proptest::prelude::*;
use rstest::rstest;

use super::*;

const HEAD: &str = "apiVersion: config.belayer.dev/v1alpha1\nkind: BelayerConfiguration\n";

fn check(text: &str) -> Result<Settings, ConfigError> {
    let source = Source::parse(Path::new("b.yaml"), text.to_owned())?;
    Ok(pod_finalizer(&source))
}

fn pod_finalizer(source: &Source) -> Settings {
    let section = Section::new(&source.now, KEY);
    section.settings::<PodFinalizerConfig, _>().unwrap()
}

#[test]
fn a_head_alone_gives_the_defaults() {
    assert_eq!(check(HEAD).unwrap(), Settings::default());
    assert_eq!(pod_finalizer(&Source::default()), Settings::default());
}

#[test]
fn a_file_is_read() {
    let settings = check(&format!(
        "{HEAD}podFinalizer:
  workers: 8            # as many as the API server bears
  maxUnselected: 5%
  profiles:
  - name: batch
    selector:
      matchLabels: {{app: etl}}
    owner: {{group: batch, version: v1, kind: Job, resource: jobs}}
"
    ))
    .unwrap();
    assert_eq!(settings.workers, 8);
    assert!(settings.profiles.get("batch").is_some());
}

#[test]
fn json_is_yaml() {
    let text = r#"{"apiVersion": "config.belayer.dev/v1alpha1", "kind": "BelayerConfiguration",
        "podFinalizer": {"maxUnselected": 30}}"#;
    assert_eq!(check(text).unwrap().max_unselected.limit(0), 30);
}

#[test]
fn a_flag_takes_precedence_over_the_file() {
    let text = format!("{HEAD}podFinalizer:\n  workers: 8\n");
    let source = Source::parse(Path::new("b.yaml"), text).unwrap();
    assert_eq!(pod_finalizer(&source).workers, 8);
    let flags = [("podFinalizer.workers".to_owned(), 3.into())];
    let source = source.with_flags(&flags).unwrap();
    assert_eq!(pod_finalizer(&source).workers, 3);
}

#[rstest]
#[case::unknown_root(
    "podfinalizer: {}",
    "b.yaml:3: podfinalizer: unknown key `podfinalizer`: did you mean `podFinalizer`?"
)]
#[case::another_unknown_root(
    "leaderElections: {}",
    "b.yaml:3: leaderElections: unknown key `leaderElections`: did you mean `leaderElection`?"
)]
#[case::unknown_key(
    "podFinalizer:\n  worker: 1",
    "b.yaml:4: podFinalizer.worker: unknown key `worker`: did you mean `workers`?"
)]
#[case::unknown_profile_key(
    "podFinalizer:\n  profiles:\n  - name: a\n    selektor: {}",
    "b.yaml:6: podFinalizer.profiles[0].selektor: unknown key `selektor`: did you mean `selector`?"
)]
#[case::unknown_mode(
    "podFinalizer:\n  profiles:\n  - name: a\n    mode: enforced",
    "b.yaml:6: podFinalizer.profiles[0].mode: unknown value `enforced`: did you mean `enforce`?"
)]
#[case::text_for_a_number(
    "podFinalizer:\n  workers: many",
    "b.yaml:4: podFinalizer.workers: invalid value: expected a non-negative integer"
)]
#[case::a_negative_number(
    "podFinalizer:\n  workers: -1",
    "b.yaml:4: podFinalizer.workers: invalid value: expected a non-negative integer"
)]
#[case::a_list_for_a_map(
    "podFinalizer: []",
    "b.yaml:3: podFinalizer: invalid value: expected a mapping"
)]
#[case::a_map_for_a_list(
    "podFinalizer:\n  profiles: {}",
    "b.yaml:4: podFinalizer.profiles: invalid value: expected a list"
)]
#[case::missing_key(
    "podFinalizer:\n  profiles:\n  - name: a\n    owner: {kind: Job, resource: jobs}",
    "podFinalizer.profiles[0].owner: the key `version` is missing: add it"
)]
#[case::twice(
    "podFinalizer: {}\npodFinalizer: {}",
    "b.yaml:4: duplicate key `podFinalizer`"
)]
#[case::bad_percentage(
    "podFinalizer:\n  maxUnselected: 110%",
    "b.yaml:4: podFinalizer.maxUnselected: invalid limit \"110%\""
)]
#[case::zero_workers(
    "podFinalizer:\n  workers: 0",
    "b.yaml:4: podFinalizer.workers: must be from 1 to 1024, not 0"
)]
#[case::bad_duration(
    "podFinalizer:\n  resync: ten",
    "b.yaml:4: podFinalizer.resync: invalid duration \"ten\" (example: 30s"
)]
#[case::bad_operator(
    "podFinalizer:\n  profiles:\n  - name: a\n    selector:\n      matchExpressions:\n      - key: app\n        operator: Equals",
    "b.yaml:9: podFinalizer.profiles[0].selector.matchExpressions[0].operator: unknown operator \"Equals\": use In, NotIn,"
)]
#[case::bad_label(
    "podFinalizer:\n  profiles:\n  - name: a\n    selector:\n      matchLabels:\n        ok: x\n        example.com/a: not/ok",
    "b.yaml:9: podFinalizer.profiles[0].selector.matchLabels.example.com/a: invalid label value \"not/ok\""
)]
#[case::second_profile(
    "podFinalizer:\n  profiles:\n  - builtIn: argo\n  - name: b\n    selector: {}",
    "b.yaml:7: podFinalizer.profiles[1].selector: missing or empty, which would hold every pod"
)]
#[case::nothing_releases(
    "podFinalizer:\n  profiles:\n  - name: b\n    selector: {matchLabels: {a: b}}",
    "b.yaml:5: podFinalizer.profiles[0]: nothing could ever release"
)]
#[case::bad_namespace(
    "podFinalizer:\n  profiles:\n  - builtIn: argo\n    namespaces:\n      include:\n      - ci\n      - ci-*",
    "b.yaml:9: podFinalizer.profiles[0].namespaces.include[1]: invalid namespace \"ci-*\""
)]
#[case::adopting_our_own(
    "podFinalizer:\n  profiles:\n  - builtIn: argo\n    adopt: [belayer.dev/pod-status]",
    "b.yaml:6: podFinalizer.profiles[0].adopt[0]: \"belayer.dev/pod-status\" is Belayer's own"
)]
#[case::bad_indentation("podFinalizer:\n  workers: 1\n resync: 1m", "b.yaml:5: ")]
#[case::a_tab("podFinalizer:\n\tworkers: 1", "b.yaml:4: ")]
#[case::open_bracket("podFinalizer: {workers: 1", "b.yaml:")]
#[case::two_documents("---\nkind: x", "b.yaml:")]
fn errors_name_file_line_and_key(#[case] body: &str, #[case] says: &str) {
    let error = check(&format!("{HEAD}{body}\n")).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    assert!(
        !error.contains('\n') && error.starts_with("b.yaml"),
        "{error}"
    );
    assert!(error.len() <= 300, "{error}");
}

#[rstest]
#[case::empty("", "the file is empty")]
#[case::no_version(
    "kind: BelayerConfiguration\n",
    "the key `apiVersion` is missing: add it"
)]
#[case::another_version(
    "kind: BelayerConfiguration\napiVersion: config.belayer.dev/v2\n",
    "b.yaml:2: apiVersion: unknown apiVersion \"config.belayer.dev/v2\": this version of Belayer reads config.belayer.dev/v1alpha1"
)]
#[case::another_kind(
    "apiVersion: config.belayer.dev/v1alpha1\nkind: ConfigMap\n",
    "b.yaml:2: kind: invalid kind \"ConfigMap\": use BelayerConfiguration"
)]
#[case::a_text("hello\n", "b.yaml:1: ")]
#[case::a_list("- a\n", "b.yaml:1: ")]
fn the_head_is_checked(#[case] text: &str, #[case] says: &str) {
    let error = check(text).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    assert!(
        !error.contains('\n') && error.starts_with("b.yaml"),
        "{error}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = Source::load(Path::new("/nowhere/b.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nowhere/b.yaml: cannot read the file: "),
        "{error}"
    );
}

#[cfg(all(
    target_os = "linux",
    feature = "node-agent",
    feature = "workflow-finalizer",
    feature = "pvc-protection",
    feature = "pod-recreation"
))]
mod bad;

/// Keys of every part of the file.
const WHOLE: &str = "
controllers: ['*', '-pod-recreation']
limits: {qps: 50, burst: 100, concurrentReleases: 8}
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}
podFinalizer:
  maxUnselected: 5%
  backlogThreshold: 100
  profiles:
  - builtIn: argo
    namespaces: {exclude: [sandbox]}
  - name: batch
    selector: {matchLabels: {app: etl}, matchExpressions: [{key: a, operator: In, values: [b]}]}
    owner: {group: batch, version: v1, kind: Job, resource: jobs}
    consumed: {labels: {done: 'yes'}}
    releaseAfter: 1h
";

#[test]
fn the_whole_file_is_valid() {
    check(&format!("{HEAD}{WHOLE}")).unwrap();
}

#[test]
fn a_key_with_a_line_break_is_named_in_one_line() {
    let error = check(&format!("{HEAD}\"pod\\nFinalizer\": {{}}\n")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains(r"unknown key `pod\nFinalizer`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

proptest! {
    /// A file that is nearly right is read, or the error is one line.
    #[test]
    fn fuzz_a_damaged_configuration_is_read_or_refused(
        edits in prop::collection::vec(any::<Edit>(), 1..8),
    ) {
        let text = damaged(format!("{HEAD}{WHOLE}").as_bytes(), &edits);
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Err(error) = Source::parse(Path::new("b.yaml"), text) {
            let error = error.to_string();
            prop_assert_eq!(error.lines().count(), 1, "{:?}", error);
        }
    }
}
