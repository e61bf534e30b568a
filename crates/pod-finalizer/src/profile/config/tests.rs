use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn check(config: Value) -> Result<Settings, ConfigError> {
    Settings::try_from(serde_json::from_value::<PodFinalizerConfig>(config).unwrap())
}

/// A profile that is good, with some keys changed; `null` takes a key away.
fn profile_with(changes: Value) -> Value {
    let mut profile = json!({
        "name": "batch",
        "selector": {"matchLabels": {"app": "etl"}},
        "owner": {"group": "batch", "version": "v1", "kind": "Job", "resource": "jobs"},
    });
    for (key, value) in changes.as_object().unwrap() {
        profile[key] = value.clone();
    }
    json!({"profiles": [profile]})
}

#[test]
fn an_empty_configuration_gives_the_defaults() {
    let settings = check(json!({})).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(
        settings
            .profiles
            .iter()
            .map(|p| &*p.name)
            .collect::<Vec<_>>(),
        ["argo"]
    );
    assert_eq!(settings.max_unselected, MaxUnselected::Percent(10));
}

#[test]
fn every_key_is_read() {
    let settings = check(json!({
        "workers": 4,
        "backlogThreshold": 50,
        "maxUnselected": "5%",
        "resync": "1h30m",
        "profiles": [{
            "name": "batch",
            "mode": "observe",
            "selector": {
                "matchLabels": {"app": "etl"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["test"]},
                    {"key": "skip", "operator": "DoesNotExist"},
                ],
            },
            "namespaces": {"include": ["a"], "exclude": ["b"]},
            "owner": {"group": "batch", "version": "v1", "kind": "Job", "resource": "jobs"},
            "consumed": {"labels": {"taken": "yes"}},
            "ownerFinished": {"labels": {"finished": "yes"}},
            "releaseAfter": "24h",
        }],
    }))
    .unwrap();
    assert_eq!((settings.workers, settings.backlog_threshold), (4, 50));
    assert_eq!(settings.max_unselected, MaxUnselected::Percent(5));
    assert_eq!(settings.resync, Duration::from_secs(5_400));
    let profile = settings.profiles.get("batch").unwrap();
    assert_eq!(profile.mode, Mode::Observe);
    assert!(profile.selects(
        &[("app", "etl"), ("tier", "prod")].into_iter().collect(),
        "a"
    ));
    assert!(!profile.selects(
        &[("app", "etl"), ("tier", "test")].into_iter().collect(),
        "a"
    ));
    assert!(!profile.selects(&[("app", "etl"), ("skip", "")].into_iter().collect(), "a"));
    assert!(!profile.selects(&[("app", "etl")].into_iter().collect(), "c"));
    assert_eq!(
        profile.owner,
        Some(crate::profile::OwnerKind::new("batch", "v1", "Job", "jobs"))
    );
    assert!(profile.is_consumed(&[("taken", "yes")].into_iter().collect()));
    assert!(profile.is_owner_finished(&[("finished", "yes")].into_iter().collect()));
    assert_eq!(profile.release_after, Some(Duration::from_secs(86_400)));
}

#[test]
fn a_built_in_profile_is_narrowed_and_changed() {
    let settings = check(json!({"profiles": [
        {"builtIn": "argo", "name": "ours", "mode": "observe",
         "selector": {"matchLabels": {argo::INSTANCE_LABEL: "ours"}}},
        {"builtIn": "argo"},
    ]}))
    .unwrap();
    let of = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().copied().collect();
        settings
            .profiles
            .first_match(&labels, "any")
            .map(|profile| profile.name.to_string())
    };
    let belayers = [
        (argo::WORKFLOW_LABEL, "etl"),
        (argo::INSTANCE_LABEL, "ours"),
    ];
    assert_eq!(of(&belayers).as_deref(), Some("ours"));
    assert_eq!(of(&belayers[..1]).as_deref(), Some("argo"));
    assert_eq!(of(&belayers[1..]), None);
    assert_eq!(
        settings.profiles.get("ours").unwrap().owner,
        Some(argo::workflow())
    );
    assert_eq!(settings.profiles.get("ours").unwrap().mode, Mode::Observe);
}

#[rstest]
#[case::a_group_with_owner(json!({"consumed": {"labels": {"taken": "yes"}}}))]
#[case::a_consumed_label_instead_of_an_owner(json!({"owner": null, "consumed": {"labels": {"taken": "yes"}}}))]
#[case::core_owners_have_no_group(json!({"owner": {"version": "v1", "kind": "Pod", "resource": "pods"}}))]
#[case::a_namespace_instead_of_labels(json!({"selector": null, "namespaces": {"include": ["a"]}}))]
#[case::the_empty_label_value(json!({"selector": {"matchLabels": {"app": ""}}}))]
#[case::a1_records_instead_of_an_owner(json!({"owner": null, "capture": true}))]
#[case::a1_records_beside_an_owner(json!({"capture": true, "consumer": "podOutcome"}))]
fn good_profiles(#[case] changes: Value) {
    check(profile_with(changes)).unwrap();
}

#[rstest]
#[case::no_workers(json!({"workers": 0}), "podFinalizer.workers", "from 1 to 1024")]
#[case::too_many_workers(json!({"workers": 5000}), "podFinalizer.workers", "from 1 to 1024")]
#[case::a_gate_that_is_always_closed(json!({"backlogThreshold": 0}), "podFinalizer.backlogThreshold", "--controllers")]
#[case::a_resync_without_unit(json!({"resync": "10"}), "podFinalizer.resync", "example: 30s")]
#[case::a_resync_backwards(json!({"resync": "-10m"}), "podFinalizer.resync", "example: 30s")]
#[case::a_resync_too_often(json!({"resync": "1s"}), "podFinalizer.resync", "at least 10s")]
#[case::no_profiles(json!({"profiles": []}), "podFinalizer.profiles", "remove the key `profiles`")]
fn bad_settings(#[case] config: Value, #[case] path: &str, #[case] says: &str) {
    let error = check(config).unwrap_err();
    assert_eq!(error.path, path);
    assert!(error.message.contains(says), "{error}");
}

#[rstest]
#[case::no_name(json!({"name": null}), "name", "give the profile a name")]
#[case::a_bad_name(json!({"name": "My Profile"}), "name", "lower-case")]
#[case::no_selector(json!({"selector": null}), "selector", "every pod of the cluster")]
#[case::an_empty_selector(json!({"selector": {}}), "selector", "every pod of the cluster")]
#[case::a_bad_label_name(json!({"selector": {"matchLabels": {"a b": "c"}}}), "selector.matchLabels.a b", "label name")]
#[case::a_bad_label_value(json!({"selector": {"matchLabels": {"a": "c/d"}}}), "selector.matchLabels.a", "label value")]
#[case::an_unknown_operator(
    json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]}}),
    "selector.matchExpressions[0].operator", "use In, NotIn, Exists or DoesNotExist")]
#[case::in_what(
    json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "In"}]}}),
    "selector.matchExpressions[1].values", "at least one value")]
#[case::exists_with_values(
    json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}),
    "selector.matchExpressions[0].values", "takes no values")]
#[case::an_expression_on_no_label(
    json!({"selector": {"matchExpressions": [{"key": "", "operator": "Exists"}]}}),
    "selector.matchExpressions[0].key", "invalid label name")]
#[case::an_expression_with_a_bad_value(
    json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}}),
    "selector.matchExpressions[0].values", "invalid label value")]
#[case::a_pattern_for_namespaces(json!({"namespaces": {"exclude": ["a", "ci-*"]}}), "namespaces.exclude[1]", "patterns are not supported")]
#[case::the_system_namespace(json!({"namespaces": {"include": ["kube-system"]}}), "namespaces.include[0]", "always ignores")]
#[case::in_and_out(json!({"namespaces": {"include": ["a"], "exclude": ["a"]}}), "namespaces.include[0]", "excluded as well")]
#[case::a_group_with_version(json!({"owner": {"group": "batch/v1", "version": "v1", "kind": "Job", "resource": "jobs"}}), "owner.group", "its own key")]
#[case::a_version_with_group(json!({"owner": {"version": "batch/v1", "kind": "Job", "resource": "jobs"}}), "owner.version", "its own key")]
#[case::a_kind_in_lower_case(json!({"owner": {"version": "v1", "kind": "job", "resource": "jobs"}}), "owner.kind", "invalid kind")]
#[case::a_resource_in_upper_case(json!({"owner": {"version": "v1", "kind": "Job", "resource": "Jobs"}}), "owner.resource", "lower-case plural")]
#[case::consumed_by_nothing(json!({"consumed": {}}), "consumed.labels", "missing or empty")]
#[case::consumed_by_a_bad_label(json!({"consumed": {"labels": {"a": " "}}}), "consumed.labels.a", "invalid label value")]
#[case::finished_without_owner(
    json!({"owner": null, "consumed": {"labels": {"a": "b"}}, "ownerFinished": {"labels": {"a": "b"}}}),
    "ownerFinished", "name the `owner` kind")]
#[case::nothing_releases(json!({"owner": null}), "", "nothing could ever release")]
#[case::consumed_from_the_start(json!({"consumed": {"labels": {"app": "etl"}}}), "consumed", "counts as consumed already")]
#[case::a_bad_time(json!({"releaseAfter": "soon"}), "releaseAfter", "example: 30s")]
#[case::no_time(json!({"releaseAfter": "0s"}), "releaseAfter", "at least 1s")]
#[case::an_expression_without_an_owner(json!({"owner": null, "consumedWhen": "has(owner.status.x)"}), "consumedWhen", "name the `owner` kind")]
#[case::adopting_no_finalizer(json!({"adopt": ["a"]}), "adopt[0]", "invalid finalizer")]
#[case::adopting_kubernetes_own(json!({"adopt": ["a.io/b", "foregroundDeletion"]}), "adopt[1]", "never changed")]
#[case::adopting_protection(json!({"adopt": ["batch.kubernetes.io/job-tracking"]}), "adopt[0]", "never changed")]
#[case::adopting_our_own(json!({"adopt": ["belayer.dev/pod-status"]}), "adopt[0]", "own finalizer")]
#[case::a1_records_that_argo_never_reads(
    json!({"builtIn": "argo", "owner": null, "capture": true, "consumer": "podOutcome"}), "consumer", "Argo Workflows reads pods")]
#[case::a1_argo_by_its_kind(
    json!({"owner": {"group": "argoproj.io", "version": "v1alpha1", "kind": "Workflow", "resource": "workflows"},
        "capture": true, "consumer": "podOutcome"}), "consumer", "Argo Workflows reads pods")]
#[case::a1_records_that_are_not_written(json!({"consumer": "podOutcome"}), "consumer", "needs `capture: true`")]
#[case::a1_records_that_no_consumer_reads(json!({"owner": null, "capture": true, "consumer": "pod"}), "", "nothing could ever release")]
#[case::a6_deleted_while_running_of_others(json!({"deletedWhileRunning": "hold"}), "deletedWhileRunning", "only to pods of Argo Workflows")]
#[case::a2_node_lost_of_others(json!({"nodeLostDelay": "5m"}), "nodeLostDelay", "only to pods of Argo Workflows")]
#[case::a2_a_bad_delay(json!({"builtIn": "argo", "owner": null, "nodeLostDelay": "soon"}), "nodeLostDelay", "example: 30s")]
fn bad_profiles(#[case] changes: Value, #[case] key: &str, #[case] says: &str) {
    let error = check(profile_with(changes)).unwrap_err();
    let path = format!("podFinalizer.profiles[0].{key}");
    assert_eq!(error.path, path.trim_end_matches('.'));
    assert!(error.message.contains(says), "{error}");
}

#[rstest]
#[case::of_argo(json!({"builtIn": "argo", "capture": true}), Consumer::Pod)]
#[case::without_an_owner(json!({"name": "a", "selector": {"matchLabels": {"a": "b"}}, "capture": true}), Consumer::PodOutcome)]
#[case::without_a_label_that_says_taken(
    json!({"name": "a", "selector": {"matchLabels": {"a": "b"}}, "capture": true,
        "owner": {"group": "batch", "version": "v1", "kind": "Job", "resource": "jobs"}}),
    Consumer::PodOutcome
)]
#[case::with_one(
    json!({"name": "a", "selector": {"matchLabels": {"a": "b"}}, "capture": true,
        "owner": {"group": "batch", "version": "v1", "kind": "Job", "resource": "jobs"},
        "ownerFinished": {"labels": {"done": "yes"}}}),
    Consumer::Pod
)]
fn a1_the_default_of_consumer(#[case] profile: Value, #[case] expected: Consumer) {
    let settings = check(json!({"profiles": [profile]})).unwrap();
    let profile = settings.profiles.iter().next().unwrap();
    assert_eq!(profile.consumer, expected);
    assert_eq!(profile.advice().is_some(), profile.is_argo());
}

#[test]
fn a_name_is_given_once() {
    let mut config = profile_with(json!({}));
    let again = config["profiles"][0].clone();
    config["profiles"].as_array_mut().unwrap().push(again);
    let error = check(config).unwrap_err();
    assert_eq!(error.path, "podFinalizer.profiles[1].name");
}

#[rstest]
#[case(json!({"worker": 1}), "unknown field `worker`")]
#[case(profile_with(json!({"selectors": {}})), "unknown field `selectors`")]
#[case(profile_with(json!({"mode": "dryRun"})), "unknown variant `dryRun`")]
#[case(profile_with(json!({"builtIn": "tekton"})), "unknown variant `tekton`")]
#[case(profile_with(json!({"owner": {"kind": "Job"}})), "missing field `version`")]
fn unknown_keys_are_refused(#[case] config: Value, #[case] says: &str) {
    let error = serde_json::from_value::<PodFinalizerConfig>(config)
        .unwrap_err()
        .to_string();
    assert!(error.contains(says), "{error}");
}
