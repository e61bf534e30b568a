//! The key `podRecreation`, as text.

use rstest::rstest;

use super::*;

fn settings(yaml: &str) -> Result<Settings, ConfigError> {
    let config: PodRecreationConfig = serde_saphyr::from_str(yaml).unwrap();
    config.try_into()
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let settings = settings("{}").unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.policy.max_retries, 3);
    assert_eq!(settings.policy.backoff_seconds, 15);
    assert_eq!(
        settings.policy.backoff, None,
        "records have the default growth"
    );
    assert_eq!(settings.policy.wipe_timeout_seconds, 120);
    assert_eq!(settings.record_ttl, Duration::from_secs(3_600));
}

#[test]
fn every_key_is_read() {
    let settings = settings(
        "workers: 4\nselectors: [{matchLabels: {app: web}}]\nowners: [Workspace.example.com]\n\
         maxRetries: 5\nbackoffSeconds: 1\nwipeTimeoutSeconds: 9\nonWipeTimeout: fail\n\
         avoidRejectedNode: true\nclasses: {Custom: race}\nrecordTtlSeconds: 60\n\
         storm: {perNode: {perSecond: 2, burst: 3}, breaker: {rejections: 7, withinSeconds: 8, openSeconds: 9}}\n",
    )
    .unwrap();
    assert_eq!(settings.workers, 4);
    assert_eq!(settings.eligibility.owners[0].group, "example.com");
    assert_eq!(settings.policy.max_retries, 5);
    assert_eq!(settings.policy.on_wipe_timeout, OnWipeTimeout::Fail);
    assert!(settings.policy.avoid_rejected_node);
    assert_eq!(settings.classes.of("Custom", ""), Class::Race);
    assert_eq!(settings.rate_limits.per_node.burst, 3);
    assert_eq!(settings.rate_limits.breaker.open_seconds, 9);
}

#[test]
fn t8_each_limit_has_its_own_default() {
    let written = "storm: {perNode: {burst: 3}, breaker: {namespaces: [shop]}}";
    let limits = settings(written).unwrap().rate_limits;
    let default = RateLimits::default();
    assert_eq!(limits.per_node.burst, 3);
    assert_eq!(limits.per_node.per_second, default.per_node.per_second);
    assert_eq!(limits.breaker.namespaces, ["shop"]);
    assert_eq!(limits.breaker.rejections, default.breaker.rejections);
}

/// A7: a warning and no error, which would break an upgrade.
#[rstest]
#[case("owners: [Workflow.argoproj.io, Workspace.example.com]", &["Workspace"], true)]
#[case("owners: [Workflow.argoproj.io]\nallowArgo: true", &["Workflow"], false)]
#[case("owners: [Workspace.example.com]", &["Workspace"], false)]
#[case("owners: [Workflow.example.com]", &["Workflow"], false)]
fn a7_workflows_of_argo_are_ignored_unless_allowed(
    #[case] yaml: &str,
    #[case] kinds: &[&str],
    #[case] ignored: bool,
) {
    let settings = settings(yaml).unwrap();
    let owners = &settings.eligibility.owners;
    let named: Vec<&str> = owners.iter().map(|owner| &*owner.kind).collect();
    assert_eq!((&named[..], settings.argo_ignored), (kinds, ignored));
}

#[rstest]
#[case("owners: [Workflow]", Some("Workflow.argoproj.io"))]
#[case("owners: [Workspace]", Some("Workspace.example.com"))]
#[case("owners: [Service, Workspace.example.com]", None)]
fn a7_an_owner_that_matches_nothing_causes_a_warning(
    #[case] yaml: &str,
    #[case] write: Option<&str>,
) {
    let advice = settings(yaml).unwrap().advice();
    assert_eq!(advice.len(), write.iter().len(), "{advice:?}");
    for (advice, write) in advice.iter().zip(write) {
        assert!(advice.ends_with(write), "{advice}");
    }
}

#[rstest]
#[case("workers: 0", "podRecreation.workers")]
#[case("maxRetries: 1000", "podRecreation.maxRetries")]
#[case("selectors: [{}]", "podRecreation.selectors")]
#[case(
    "selectors: [{matchLabels: {app: a}}, {matchLabels: {\"bad key!\": x}}]",
    "podRecreation.selectors[1].matchLabels.bad key!"
)]
#[case(
    "selectors: [{matchLabels: {app: not/ok}}]",
    "podRecreation.selectors[0].matchLabels.app"
)]
#[case("classes: {\"\": race}", "podRecreation.classes")]
#[case("backoff: {initial: 900ms}", "podRecreation.backoff.initial")]
#[case("backoff: {max: 5m500ms}", "podRecreation.backoff.max")]
#[case("storm: {breaker: {withinSeconds: 0}}", "podRecreation.storm.breaker")]
#[case("owners: [ReplicaSet.apps]", "podRecreation.owners")]
#[case("owners: [Job]", "podRecreation.owners")]
#[case("owners: [Job.batch]", "podRecreation.owners")]
#[case("owners: [Node]", "podRecreation.owners")]
#[case("owners: [thing]", "podRecreation.owners")]
#[case("owners: [Thing.]", "podRecreation.owners")]
#[case("owners: [Thing.example.com/v1]", "podRecreation.owners")]
#[case("owners: ['Thing .x']", "podRecreation.owners")]
#[case("wipeTimeoutSeconds: 2147483648", "podRecreation.wipeTimeoutSeconds")]
#[case("backoffSeconds: 2147483648", "podRecreation.backoffSeconds")]
#[case(
    "backoff: {initial: 1s, max: 3000000000s}",
    "podRecreation.backoff.max"
)]
#[case("backoff: {max: 99999999999s}", "podRecreation.backoff.max")]
#[case("carry: {keep: ['a*b']}", "podRecreation.carry.keep[0]")]
#[case("carry: {drop: [a, '*b']}", "podRecreation.carry.drop[1]")]
#[case("backoff: {initial: 15}", "podRecreation.backoff.initial")]
#[case(
    "{backoffSeconds: 1, backoff: {initial: 1s}}",
    "podRecreation.backoff.initial"
)]
#[case("backoff: {factor: 0.5}", "podRecreation.backoff.factor")]
#[case("backoff: {factor: .nan}", "podRecreation.backoff.factor")]
#[case("backoff: {jitter: 2}", "podRecreation.backoff.jitter")]
#[case("backoff: {initial: 10m, max: 5m}", "podRecreation.backoff.max")]
#[case(
    "storm: {perNamespace: {perSecond: 0, burst: 1}}",
    "podRecreation.storm.perNamespace"
)]
#[case(
    "storm: {cluster: {perSecond: 0, burst: 1}}",
    "podRecreation.storm.cluster"
)]
#[case(
    "storm: {breaker: {rejections: 0, withinSeconds: 1, openSeconds: 1}}",
    "podRecreation.storm.breaker"
)]
fn an_invalid_value_names_its_key(#[case] yaml: &str, #[case] path: &str) {
    assert_eq!(settings(yaml).unwrap_err().path, path);
}

/// R10: seconds, and how the pause grows; the old key still works, with a warning.
#[rstest]
#[case::the_default("{}", [15, 30, 300], false)]
#[case::constant("backoff: {initial: 15s, factor: 1}", [15, 15, 15], false)]
#[case::slower("backoff: {initial: 10s, factor: 1.5, max: 1m}", [10, 15, 60], false)]
#[case::the_old_key("backoffSeconds: 20", [20, 40, 300], true)]
#[case::the_old_key_with_the_new("{backoffSeconds: 20, backoff: {factor: 1}}", [20, 20, 20], true)]
fn r10_the_pause_grows_as_configured(
    #[case] yaml: &str,
    #[case] pauses: [u64; 3],
    #[case] deprecated: bool,
) {
    let settings = settings(yaml).unwrap();
    let pause = |attempts| settings.policy.pause(attempts, 0.0).as_secs();
    assert_eq!([pause(0), pause(1), pause(50)], pauses);
    assert_eq!(settings.advice().len(), usize::from(deprecated));
}

#[rstest]
#[case("backoff: {jitter: 0}", 15_000)]
#[case("backoff: {jitter: 0.5}", 22_500)]
#[case("backoff: {jitter: 1}", 30_000)]
fn r10_jitter_is_a_part_of_the_pause(#[case] yaml: &str, #[case] longest: u128) {
    let settings = settings(yaml).unwrap();
    assert_eq!(settings.policy.pause(0, 1.0).as_millis(), longest);
}
