//! Every key of the file either takes effect while the process runs, or is reported as requiring a
//! restart.

use std::path::Path;

use clap::Parser as _;

use super::*;
use crate::cli::{Cli, Command};
use crate::config::API_VERSION;
use crate::kubeconfig::Sources;
use crate::options::Settings;
use crate::options::arguments::RunArguments;

fn arguments() -> RunArguments {
    match Cli::try_parse_from(["belayer", "run"]).unwrap().command {
        Command::Run(arguments) => *arguments,
        other => panic!("{other:?}"),
    }
}

fn source(body: &str) -> Source {
    let text = format!("apiVersion: {API_VERSION}\n{body}\n");
    Source::parse(Path::new("b.yaml"), text).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn settings(body: &str) -> Settings {
    Settings::resolve(&arguments(), &source(body), &Sources::default())
        .unwrap_or_else(|error| panic!("{body}: {error}"))
}

/// What a reload changes.
fn in_force(settings: &Settings) -> String {
    format!("{:#?} {:#?}", settings.components, settings.limits)
}

/// A key, a file without it, and one with it.
struct Case {
    path: &'static str,
    before: String,
    after: String,
}

fn case(path: &'static str, before: impl Into<String>, after: impl Into<String>) -> Case {
    Case {
        path,
        before: before.into(),
        after: after.into(),
    }
}

/// A top-level key.
fn plain(path: &'static str, value: &str) -> Case {
    let mut text = value.to_owned();
    for part in path.rsplit('.') {
        text = format!("{{{part}: {text}}}");
    }
    // The head is in block style: remove the outermost braces.
    let text = text[1..text.len() - 1].to_owned();
    case(path, "", text)
}

/// A key of the one profile in the file.
fn profile(path: &'static str, keys: &str) -> Case {
    const REST: &str =
        "name: a, selector: {matchLabels: {a: b}}, consumed: {labels: {x: z}}, releaseAfter: 1h";
    of_profile(path, REST, keys)
}

fn of_profile(path: &'static str, rest: &str, keys: &str) -> Case {
    let profiles = |keys: &str| format!("podFinalizer: {{profiles: [{{{keys}}}]}}");
    case(path, profiles(rest), profiles(keys))
}

fn owner(path: &'static str, before: &str, after: &str) -> Case {
    let owners = |keys: &str| format!("workflowFinalizer: {{owners: [{{{keys}}}]}}");
    case(path, owners(before), owners(after))
}

/// A key of the one program of its list.
fn program(path: &'static str, keys: &str) -> Case {
    let list = path.split(['.', '[']).nth(1).unwrap_or_default();
    let programs = |keys: &str| format!("nodeAgent: {{{list}: [{{{keys}}}]}}");
    case(path, programs("command: [/bin/x]"), programs(keys))
}

const KIND: &str = "group: batch, version: v1, kind: Job, resource: jobs";

fn with_owner(kind: &str) -> String {
    format!("name: a, selector: {{matchLabels: {{a: b}}}}, releaseAfter: 1h, owner: {{{kind}}}")
}

fn cases() -> Vec<Case> {
    const BASE: &str =
        "name: a, selector: {matchLabels: {a: b}}, consumed: {labels: {x: z}}, releaseAfter: 1h";
    let base = |more: &str| format!("{BASE}, {more}");
    let kind = |other: &str, instead: &str| KIND.replace(other, instead);
    let owned = with_owner(KIND);
    let select = |what: &str| {
        format!(
            "name: a, selector: {{matchExpressions: [{{{what}}}]}}, consumed: {{labels: {{x: z}}}}, releaseAfter: 1h"
        )
    };
    let profile_kind =
        |path, other, instead| of_profile(path, &owned, &with_owner(&kind(other, instead)));
    let owner_kind = |path, other: &str, instead: &str| {
        owner(
            path,
            &format!("owner: {{{KIND}}}"),
            &format!("owner: {{{}}}", kind(other, instead)),
        )
    };
    let owner_select = |path, before: &str, after: &str| {
        let of = |what: &str| format!("selector: {{matchExpressions: [{{{what}}}]}}");
        owner(path, &of(before), &of(after))
    };
    let storm = |path, bucket: &str, rate: &str| {
        case(
            path,
            "",
            format!("podRecreation: {{storm: {{{bucket}: {{{rate}}}}}}}"),
        )
    };
    let tls = |keys: &str| format!("endpoints: {{{keys}}}");
    vec![
        plain("controllers", "[pod-finalizer]"),
        plain("dryRun", "true"),
        plain("featureGates", "{ConfigReload: false}"),
        plain("leaderElection.enabled", "false"),
        plain("leaderElection.leaseDuration", "30s"),
        plain("leaderElection.renewDeadline", "9s"),
        plain("leaderElection.retryPeriod", "1s"),
        plain("leaderElection.resourceName", "other"),
        plain("leaderElection.resourceNamespace", "other"),
        plain("limits.qps", "7"),
        plain("limits.burst", "7"),
        plain("limits.concurrentReleases", "7"),
        plain("endpoints.metricsBindAddress", "':9090'"),
        plain("endpoints.healthProbeBindAddress", "':9091'"),
        plain("endpoints.debugBindAddress", "'0'"),
        case(
            "endpoints.tlsCertFile",
            tls("tlsCertFile: a, tlsPrivateKeyFile: k"),
            tls("tlsCertFile: b, tlsPrivateKeyFile: k"),
        ),
        case(
            "endpoints.tlsPrivateKeyFile",
            tls("tlsCertFile: a, tlsPrivateKeyFile: k"),
            tls("tlsCertFile: a, tlsPrivateKeyFile: l"),
        ),
        case(
            "endpoints.metricsAuthorization",
            tls("tlsCertFile: a, tlsPrivateKeyFile: k"),
            tls("tlsCertFile: a, tlsPrivateKeyFile: k, metricsAuthorization: true"),
        ),
        plain("logging.format", "json"),
        plain("logging.level", "debug"),
        plain("podFinalizer.workers", "7"),
        plain("podFinalizer.backlogThreshold", "7"),
        plain("podFinalizer.maxUnselected", "7"),
        plain("podFinalizer.resync", "1h"),
        plain("podFinalizer.outcomeTtl", "1h"),
        plain(
            "podFinalizer.profiles",
            "[{name: b, selector: {matchLabels: {a: b}}, consumed: {labels: {x: z}}, releaseAfter: 1h}]",
        ),
        of_profile("podFinalizer.profiles[].builtIn", BASE, "builtIn: argo"),
        profile(
            "podFinalizer.profiles[].name",
            "name: b, selector: {matchLabels: {a: b}}, consumed: {labels: {x: z}}, releaseAfter: 1h",
        ),
        profile("podFinalizer.profiles[].mode", &base("mode: observe")),
        profile(
            "podFinalizer.profiles[].selector.matchLabels",
            "name: a, selector: {matchLabels: {a: c}}, consumed: {labels: {x: z}}, releaseAfter: 1h",
        ),
        of_profile(
            "podFinalizer.profiles[].selector.matchExpressions[].key",
            &select("key: a, operator: Exists"),
            &select("key: b, operator: Exists"),
        ),
        of_profile(
            "podFinalizer.profiles[].selector.matchExpressions[].operator",
            &select("key: a, operator: In, values: [x]"),
            &select("key: a, operator: NotIn, values: [x]"),
        ),
        of_profile(
            "podFinalizer.profiles[].selector.matchExpressions[].values",
            &select("key: a, operator: In, values: [x]"),
            &select("key: a, operator: In, values: [y]"),
        ),
        profile(
            "podFinalizer.profiles[].namespaces.include",
            &base("namespaces: {include: [ci]}"),
        ),
        profile(
            "podFinalizer.profiles[].namespaces.exclude",
            &base("namespaces: {exclude: [ci]}"),
        ),
        profile_kind(
            "podFinalizer.profiles[].owner.group",
            "batch",
            "example.com",
        ),
        profile_kind("podFinalizer.profiles[].owner.version", "v1", "v2"),
        profile_kind("podFinalizer.profiles[].owner.kind", "Job", "Task"),
        profile_kind("podFinalizer.profiles[].owner.resource", "jobs", "tasks"),
        of_profile(
            "podFinalizer.profiles[].consumed.labels",
            &owned,
            &format!("{owned}, consumed: {{labels: {{done: 'yes'}}}}"),
        ),
        of_profile(
            "podFinalizer.profiles[].ownerFinished.labels",
            &owned,
            &format!("{owned}, ownerFinished: {{labels: {{done: 'yes'}}}}"),
        ),
        profile(
            "podFinalizer.profiles[].releaseAfter",
            "name: a, selector: {matchLabels: {a: b}}, consumed: {labels: {x: z}}, releaseAfter: 2h",
        ),
        of_profile(
            "podFinalizer.profiles[].ownerStatus",
            &owned,
            &format!("{owned}, ownerStatus: argo"),
        ),
        of_profile(
            "podFinalizer.profiles[].consumedWhen",
            &owned,
            &format!("{owned}, consumedWhen: 'has(owner.status.done)'"),
        ),
        profile(
            "podFinalizer.profiles[].adopt",
            &base("adopt: [example.com/mine]"),
        ),
        profile("podFinalizer.profiles[].capture", &base("capture: true")),
        of_profile(
            "podFinalizer.profiles[].consumer",
            &base("capture: true"),
            &base("capture: true, consumer: pod"),
        ),
        of_profile(
            "podFinalizer.profiles[].deletedWhileRunning",
            "builtIn: argo",
            "builtIn: argo, deletedWhileRunning: hold",
        ),
        of_profile(
            "podFinalizer.profiles[].nodeLostDelay",
            "builtIn: argo",
            "builtIn: argo, nodeLostDelay: 5m",
        ),
        profile("podFinalizer.profiles[].cleanup", &base("cleanup: argo")),
        plain("workflowFinalizer.workers", "7"),
        plain("workflowFinalizer.maxUnselected", "7"),
        plain("workflowFinalizer.resync", "1h"),
        plain("workflowFinalizer.owners", "[{podLabel: x}]"),
        owner_kind(
            "workflowFinalizer.owners[].owner.group",
            "batch",
            "example.com",
        ),
        owner_kind("workflowFinalizer.owners[].owner.version", "v1", "v2"),
        owner_kind("workflowFinalizer.owners[].owner.kind", "Job", "Task"),
        owner_kind("workflowFinalizer.owners[].owner.resource", "jobs", "tasks"),
        owner("workflowFinalizer.owners[].podLabel", "", "podLabel: x"),
        owner("workflowFinalizer.owners[].until", "", "until: archived"),
        owner(
            "workflowFinalizer.owners[].selector.matchLabels",
            "",
            "selector: {matchLabels: {a: b}}",
        ),
        owner_select(
            "workflowFinalizer.owners[].selector.matchExpressions[].key",
            "key: a, operator: Exists",
            "key: b, operator: Exists",
        ),
        owner_select(
            "workflowFinalizer.owners[].selector.matchExpressions[].operator",
            "key: a, operator: Exists",
            "key: a, operator: DoesNotExist",
        ),
        owner_select(
            "workflowFinalizer.owners[].selector.matchExpressions[].values",
            "key: a, operator: In, values: [x]",
            "key: a, operator: In, values: [y]",
        ),
        owner(
            "workflowFinalizer.owners[].namespaces.include",
            "",
            "namespaces: {include: [ci]}",
        ),
        owner(
            "workflowFinalizer.owners[].namespaces.exclude",
            "",
            "namespaces: {exclude: [ci]}",
        ),
        plain("podRecreation.workers", "7"),
        plain("podRecreation.selectors", "[{matchLabels: {a: b}}]"),
        case(
            "podRecreation.selectors[].matchLabels",
            "podRecreation: {selectors: [{matchLabels: {a: b}}]}",
            "podRecreation: {selectors: [{matchLabels: {a: c}}]}",
        ),
        plain("podRecreation.owners", "[Workspace.example.com]"),
        case(
            "podRecreation.allowArgo",
            "podRecreation: {owners: [Workflow.argoproj.io]}",
            "podRecreation: {owners: [Workflow.argoproj.io], allowArgo: true}",
        ),
        plain("podRecreation.namespaces.include", "[ci]"),
        plain("podRecreation.namespaces.exclude", "[ci]"),
        plain("podRecreation.maxRetries", "7"),
        plain("podRecreation.backoffSeconds", "7"),
        plain("podRecreation.backoff.initial", "7s"),
        plain("podRecreation.backoff.factor", "1"),
        plain("podRecreation.backoff.max", "7m"),
        plain("podRecreation.backoff.jitter", "0.5"),
        plain("podRecreation.carry.managers", "[platform]"),
        plain("podRecreation.carry.keep", "[example.com/a]"),
        plain("podRecreation.carry.drop", "[example.com/a]"),
        plain("podRecreation.wipeTimeoutSeconds", "7"),
        plain("podRecreation.onWipeTimeout", "fail"),
        plain("podRecreation.avoidRejectedNode", "true"),
        plain("podRecreation.classes", "{Custom: race}"),
        plain("podRecreation.recordTtlSeconds", "7"),
        storm(
            "podRecreation.storm.perOwner.perSecond",
            "perOwner",
            "perSecond: 7, burst: 50",
        ),
        storm(
            "podRecreation.storm.perOwner.burst",
            "perOwner",
            "perSecond: 5, burst: 7",
        ),
        storm(
            "podRecreation.storm.perNamespace.perSecond",
            "perNamespace",
            "perSecond: 7, burst: 250",
        ),
        storm(
            "podRecreation.storm.perNamespace.burst",
            "perNamespace",
            "perSecond: 25, burst: 7",
        ),
        storm(
            "podRecreation.storm.perNode.perSecond",
            "perNode",
            "perSecond: 7, burst: 50",
        ),
        storm(
            "podRecreation.storm.perNode.burst",
            "perNode",
            "perSecond: 5, burst: 7",
        ),
        storm(
            "podRecreation.storm.cluster.perSecond",
            "cluster",
            "perSecond: 7, burst: 500",
        ),
        storm(
            "podRecreation.storm.cluster.burst",
            "cluster",
            "perSecond: 50, burst: 7",
        ),
        storm(
            "podRecreation.storm.breaker.rejections",
            "breaker",
            "rejections: 7, withinSeconds: 60, openSeconds: 30",
        ),
        storm(
            "podRecreation.storm.breaker.withinSeconds",
            "breaker",
            "rejections: 100, withinSeconds: 7, openSeconds: 30",
        ),
        storm(
            "podRecreation.storm.breaker.openSeconds",
            "breaker",
            "rejections: 100, withinSeconds: 60, openSeconds: 7",
        ),
        storm(
            "podRecreation.storm.breaker.namespaces",
            "breaker",
            "rejections: 100, withinSeconds: 60, openSeconds: 30, namespaces: [ci]",
        ),
        plain("nodeAgent.roots", "[/var/lib/x]"),
        plain("nodeAgent.paths", "['state/{podUID}']"),
        plain("nodeAgent.hostRoot", "/host"),
        plain("nodeAgent.workers", "7"),
        plain("nodeAgent.handlers", "[{command: [/bin/x]}]"),
        program("nodeAgent.handlers[].name", "name: x, command: [/bin/x]"),
        program("nodeAgent.handlers[].command", "command: [/bin/y]"),
        program(
            "nodeAgent.handlers[].timeoutSeconds",
            "command: [/bin/x], timeoutSeconds: 7",
        ),
        plain("nodeAgent.hooks", "[{command: [/bin/x]}]"),
        program("nodeAgent.hooks[].name", "name: x, command: [/bin/x]"),
        program("nodeAgent.hooks[].command", "command: [/bin/y]"),
        program(
            "nodeAgent.hooks[].timeoutSeconds",
            "command: [/bin/x], timeoutSeconds: 7",
        ),
        plain("pvcProtection.workers", "7"),
        plain("pvcProtection.finalizer", "kubernetes.io/pvc-protection"),
    ]
}

#[test]
fn every_key_takes_effect_or_requires_a_restart() {
    let cases = cases();
    for key in keys::all() {
        // Another version or kind is another format: the file is rejected.
        let is_head = matches!(key.path, "apiVersion" | "kind");
        let tried = cases.iter().any(|case| case.path == key.path);
        assert!(tried || is_head, "{}: no case changes it", key.path);
    }
    for Case {
        path,
        before,
        after,
    } in &cases
    {
        let changes = Changes::between(&source(before), &source(after));
        let (old, new) = (settings(before), settings(after));
        match keys::entry(path).unwrap().reload {
            Reload::Live => {
                assert!(changes.restart.is_empty(), "{path}: {changes:?}");
                assert_eq!(changes.live.len(), 1, "{path}: {changes:?}");
                assert_ne!(in_force(&old), in_force(&new), "{path} changes nothing");
            }
            Reload::Restart => {
                assert_eq!(changes.live, Vec::<String>::new(), "{path}");
                let named = &changes.restart[0];
                let is_it = named.starts_with(path) || path.starts_with(named.as_str());
                assert!(is_it, "{path}: {changes:?}");
            }
        }
    }
}

#[test]
fn a_key_that_needs_a_restart_keeps_its_value_when_others_change() {
    for Case {
        path,
        before,
        after,
    } in cases()
    {
        if keys::entry(path).unwrap().reload == Reload::Live {
            continue;
        }
        let with = |body: &str| {
            let set = "podFinalizer.resync=1h".parse().unwrap();
            let text = format!("apiVersion: {API_VERSION}\n{body}\n");
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("b.yaml");
            std::fs::write(&file, text).unwrap();
            Source::of(Some(&file), &[set]).unwrap_or_else(|error| panic!("{body}: {error}"))
        };
        let (running, new) = (source(&before), with(&after));
        let changes = Changes::between(&running, &new);
        assert!(
            !changes.restart.is_empty() && changes.live.len() == 1,
            "{path}: {changes:?}"
        );
        let kept = new.keeping(&changes.restart, &running);
        let kept = kept.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(
            Changes::between(&running, &kept),
            Changes {
                live: changes.live,
                restart: Vec::new()
            },
            "{path}"
        );
    }
}

#[test]
fn writing_a_default_out_changes_nothing() {
    let written = "podFinalizer: {workers: 64, maxUnselected: 10%}\nleaderElection: {leaseDuration: 15s}\nlimits: {}";
    let changes = Changes::between(&source(""), &source(written));
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn a_change_and_its_reversal_are_both_detected() {
    let changed = source("podFinalizer: {resync: 1h}\nlogging: {level: debug}");
    for changes in [
        Changes::between(&source(""), &changed),
        Changes::between(&changed, &source("")),
    ] {
        assert_eq!(changes.live, ["podFinalizer.resync"]);
        assert_eq!(changes.restart, ["logging.level"]);
    }
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_an_invalid_one_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let write = |body: &str| {
        // As a mounted ConfigMap changes: another file under the same name.
        let new = dir.path().join("new");
        std::fs::write(&new, format!("apiVersion: {API_VERSION}\n{body}\n")).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    write("podFinalizer: {workers: 1}");
    let first = Source::load(&path).unwrap();
    let sets = ["podFinalizer.resync=1h".parse().unwrap()];
    let mut watcher = Watcher::new(&first, &sets).unwrap();
    write("podFinalizer: {workers: 2}");
    let second = watcher.changed().await.unwrap();
    assert_eq!(second.value()["podFinalizer"]["workers"].as_u64(), Some(2));
    // Flags apply to the new file as well.
    assert_eq!(
        second.value()["podFinalizer"]["resync"].as_str(),
        Some("1h")
    );
    write("podFinalizer: {worker: 3}");
    let error = watcher.changed().await.unwrap_err().to_string();
    assert!(error.contains("did you mean `workers`?"), "{error}");
    write("podFinalizer: {workers: 3}");
    let third = watcher.changed().await.unwrap();
    assert_eq!(third.value()["podFinalizer"]["workers"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_any_more_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let text = format!("apiVersion: {API_VERSION}\n");
    std::fs::write(&path, &text).unwrap();
    let source = Source::load(&path).unwrap();
    let mut watcher = Watcher::new(&source, &[]).unwrap();
    std::fs::remove_file(&path).unwrap();
    let minute = Duration::from_secs(60);
    let reported = tokio::time::timeout(minute, watcher.changed()).await;
    let error = reported.unwrap().unwrap_err().to_string();
    assert!(error.contains("config.yaml"), "{error}");
    let again = tokio::time::timeout(minute, watcher.changed()).await;
    assert!(again.is_err(), "it is reported once");
    // It is as before, and no longer refused.
    std::fs::write(&path, &text).unwrap();
    let restored = watcher.changed().await.unwrap();
    assert!(Changes::between(&source, &restored).is_empty());
}
