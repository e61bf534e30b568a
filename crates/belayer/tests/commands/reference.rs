//! The page of names that Belayer writes into a cluster: Events, evidence, annotations, label values of metrics.
//! The names come from the code; a name without a text here fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use belayer::cli::Cli;
use belayer_holds::{names, owned};
use belayer_metrics::{ALL, Values};
use clap::CommandFactory as _;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/src/reference/names.md"
);

/// Reason, type, object, when, what to do.
#[rustfmt::skip]
const EVENTS: &[[&str; 5]] = &[
    ["BacklogGateClosed", "Warning", "Gate `belayer-gate`", "More held pods are being deleted than `podFinalizer.backlogThreshold`. Belayer adds no hold to any pod until there are half as many.", "Find out why releases wait: the consumer is down, a release is denied, or the API server answers 429. `belayer status` names the namespaces."],
    ["BacklogNamespaceClosed", "Warning", "Gate `belayer-gate`", "The same in one namespace, at a quarter of that number.", "`belayer explain pod/NAME -n NAMESPACE` shows what a pod there waits for."],
    ["BoundByUser", "Normal", "pod", "The node rejected a pod whose user chose that node (`spec.nodeName`). It is re-created on the same node.", "Leave the node to the scheduler, or set `podRecreation.avoidRejectedNode`."],
    ["CleanupDenied", "Warning", "pod", "`cleanup` deletes the pod, or Belayer deletes a pod that was re-created after its record was deleted, and the API server denies that.", "Apply `rbac-pod-cleanup.yaml`, or change the policy or webhook that the Event quotes."],
    ["CreatorUnknown", "Normal", "pod", "A rejected pod is recorded whose `managedFields` do not show who created it. The re-created pod has all its annotations, except well-known ones of networks and schedulers.", "List annotations that must not be carried in `podRecreation.carry.drop`."],
    ["DeletionWaits", "Normal", "pod, workflow, PVC", "A deletion waits for Belayer: a pod for more than 10 s, a PVC for more than 5 s, a workflow while its pods are held or it is not archived. The message says for what.", "Usually nothing. `belayer explain KIND/NAME` shows the rule and what is missing."],
    ["FinalizerKept", "Normal", "PVC", "pvc-protection only reports, and a PVC in use has `belayer.dev/pvc-protection` of an earlier configuration and no finalizer of Kubernetes.", "Nothing: Belayer removes it when no pod uses the PVC."],
    ["HeldPodsWait", "Normal", "Node", "Pods of the node have ended and are being deleted, and wait until their results are read. It shows why `kubectl drain` waits.", "Check that the consumer runs. To give up the results: annotate the pods with `belayer.dev/release=true`."],
    ["HoldDenied", "Warning", "pod, workflow, PVC", "The API server denies the patch that adds a hold, or refuses it for a minute with another error, such as the 500 of a webhook that is down.", "`belayer check --service-account`; the Event quotes the policy or webhook."],
    ["Ignored", "Warning", "PodRecreation, pod", "A new record names a pod, by name and UID, that does not exist: the pod was deleted before its re-creation began, or the record was restored from a backup or created by another client. Belayer creates no pod from it, and deletes it after `podRecreation.recordTtlSeconds`.", "Delete the record."],
    ["MassReleaseHeldBack", "Warning", "Gate `belayer-gate` (pods), namespace of Belayer (workflows)", "A change unselects more held objects than `maxUnselected` (a percentage allows at least 20). They stay held.", "Correct the selector. If the change is intended: `belayer drain --unselected --config FILE`, where FILE is the configuration that Belayer runs with, left out if it runs without one."],
    ["NameTaken", "Warning", "PodRecreation, pod", "A pod that Belayer did not create has the name of the pod to re-create. The re-creation ends.", "Find out who created that pod."],
    ["NotRecreated", "Warning", "PodRecreation, pod", "A rejected pod is not re-created. The message says why: its reason is permanent or unknown, it may have run, its spec was changed, the API server denied it for an hour, or the node was not wiped in time.", "Create the pod again yourself, or change `podRecreation.classes`."],
    ["OutcomeNotRecorded", "Warning", "pod", "The API server refuses the `PodOutcome` of the pod.", "Apply the CRD (`belayer crds`) and `rbac-outcome-capture.yaml`. The other rules release the pod."],
    ["Recreated", "Normal", "PodRecreation, pod", "Belayer has created the rejected pod again. The message says which attempt it is.", "Nothing."],
    ["RecreatedPodStarted", "Normal", "PodRecreation, pod", "A re-created pod has started. The record has ended.", "Nothing."],
    ["RecreationCancelled", "Normal", "PodRecreation, pod", "The rejected or the re-created pod, its owner or its namespace was deleted. The record has ended.", "Nothing, if that was intended."],
    ["RecreationDenied", "Warning", "PodRecreation, pod", "The API server denies the record, the re-created pod or another request of the re-creation, such as the deletion of the rejected pod: a quota, a policy, RBAC. Belayer tries again.", "Remove the cause that the message quotes."],
    ["RecreationExhausted", "Warning", "PodRecreation, pod", "Every allowed re-creation was rejected too.", "Make room, or correct the requests: the message quotes the kubelet."],
    ["ReleaseDenied", "Warning", "pod, workflow, PVC", "The API server denies the patch that removes a hold, or refuses it for a minute with another error, such as the 500 of a webhook that is down. Belayer retries after 30 s to 10 min, in the second case within 30 s.", "`belayer check --service-account`; the Event quotes the policy or webhook."],
    ["ReleasedWithoutEvidence", "Warning", "pod", "`releaseAfter` of the profile has passed, and the pod is released although its result was not read.", "Find out why the consumer did not read it. Without the key `releaseAfter` this never happens."],
    ["WipeTimedOut", "Warning", "PodRecreation, pod", "A re-creation with `wipe` waited for `podRecreation.wipeTimeoutSeconds`, and `onWipeTimeout` is `proceed`. The pod is re-created, but never again on that node: Belayer adds a required node affinity. The message quotes the report of the node agent.", "Remove what the message names. If the pod must return to that node, create it again once its directories are removed."],
    ["WorkflowStatusTooLarge", "Warning", "pod", "The status of the workflow exceeds Belayer's limits, so that it proves nothing.", "Nothing: the pod is released by its label or at the end of the workflow, or by `belayer.dev/release=true`."],
];

/// Evidence and what it means.
#[rustfmt::skip]
const EVIDENCE: &[[&str; 2]] = &[
    ["AdminAsked", "The pod has the annotation `belayer.dev/release: \"true\"`."],
    ["Adopted", "Only in the metric: a finalizer of another controller was removed together with Belayer's, by the key `adopt`."],
    ["Captured", "The pod's outcome is stored in a `PodOutcome`, and the profile's consumer reads these."],
    ["Consumed", "The consumer has read the result: by the pod's label, the owner's labels or the owner's status."],
    ["DeletedFirst", "Another client deleted the pod before it was recorded."],
    ["Drained", "`belayer drain` removed the hold (in its report; not in the metric)."],
    ["EarlierRun", "The pod belongs to a run of its workflow before `argo retry`."],
    ["Ended", "The pod has ended and is not re-created."],
    ["EndedByDeletion", "The pod was deleted before it had a result."],
    ["HandedOver", "The PVC also has `kubernetes.io/pvc-protection`, which keeps protecting it."],
    ["KeptRunning", "Another controller's finalizer keeps the workflow, and Argo goes on running it; its pods stay held."],
    ["Leftover", "The pod is being deleted, and the attempt that created it was given up."],
    ["NamespaceTerminating", "The namespace is being deleted, by a live read."],
    ["NeverHeld", "An agent pod or an artifact garbage collection pod of Argo."],
    ["NoOwner", "The profile requires an owner, and the pod has none."],
    ["NoPodHeld", "No pod of the workflow is held any more, by a live list."],
    ["NodeLost", "The pod's node is gone or lost, by a live read."],
    ["OwnerDeleting", "The owner has a deletion timestamp."],
    ["OwnerFinished", "The workflow that owns the PVC has finished, and all pods that use the PVC have ended."],
    ["OwnerGone", "The owner's UID does not exist any more, by a live read."],
    ["RecordEnded", "The `PodRecreation` of the pod has ended."],
    ["RecordGone", "The `PodRecreation` of the pod does not exist, by a live read."],
    ["Recreating", "The pod's spec is stored in its record, and Belayer has deleted the pod to create it again."],
    ["ReleaseAfter", "No evidence: the time of the key `releaseAfter` has passed. Off by default; see the Event `ReleasedWithoutEvidence`."],
    ["Started", "The pod has started, so it is not re-created."],
    ["SwitchedOff", "The controller of the hold is switched off."],
    ["Unselected", "No profile or rule selects the object any more, or its namespace has the label `belayer.dev/ignore=true`."],
    ["Unused", "No pod uses the PVC, by a live list begun after its deletion was seen."],
];

/// Name, what it is, on which objects, who writes it, meaning.
#[rustfmt::skip]
const NAMES: &[[&str; 5]] = &[
    ["belayer.dev/pod-status", "finalizer", "pod", "Belayer", "Hold of pod-finalizer."],
    ["belayer.dev/pod-recreation", "finalizer", "pod", "Belayer", "Hold of pod-recreation, until the pod has started."],
    ["belayer.dev/workflow-cleanup", "finalizer", "workflow", "Belayer", "Hold of workflow-finalizer."],
    ["belayer.dev/pvc-protection", "finalizer", "PVC", "Belayer", "Hold of pvc-protection, only if it is configured."],
    ["belayer.dev/release", "annotation", "pod", "you", "`\"true\"` releases the pod at once, without evidence."],
    ["belayer.dev/recreate", "annotation", "pod", "you", "`\"true\"` requests re-creation if the node rejects the pod; `\"false\"` refuses it."],
    ["belayer.dev/wipe", "annotation", "pod", "you", "`\"true\"`: the node agent must first remove the pod's directories."],
    ["belayer.dev/ignore", "label", "namespace", "you", "`\"true\"`: Belayer leaves pods and workflows of the namespace alone."],
    ["belayer.dev/recreation", "annotation", "re-created pod", "Belayer", "Name of its `PodRecreation`."],
    ["belayer.dev/recreation-uid", "annotation", "re-created pod", "Belayer", "UID of its `PodRecreation`."],
    ["belayer.dev/recreation-attempt", "annotation", "re-created pod", "Belayer", "Which attempt it is, from 1."],
    ["belayer.dev/recreation-ended", "annotation", "rejected pod", "Belayer", "Why the pod is not re-created."],
    ["belayer.dev/namespaces", "annotation", "`belayer-pod-writes`, `belayer-owner-writes`", "the chart", "Comma-separated list of the only namespaces in which the `*-hold` policies add finalizers ([gate](../concepts/gate.md#the-gate))."],
    ["belayer.dev/expires", "label", "PodOutcome without owner", "Belayer", "When the record may be deleted, in seconds since 1970."],
    ["belayer.dev/not-final", "label", "PodOutcome", "Belayer", "The outcome was not final when it was recorded."],
];

/// Values of the label `outcome` of `belayer_recreations_total`.
#[rustfmt::skip]
const OUTCOMES: &[[&str; 2]] = &[
    ["rejected", "a node rejected a pod that is to be re-created"],
    ["recreated", "the pod was created again"],
    ["started", "the re-created pod has started; the record ends"],
    ["exhausted", "every allowed re-creation was rejected; the record ends"],
    ["cancelled", "the pod was deleted by another client, or its owner or namespace ended; the record ends"],
    ["denied", "the API server denied the record's pod; Belayer tries again"],
    ["name_taken", "a pod of another client has the name; the record ends"],
    ["reported", "not re-created; an Event says why; the record ends, if the pod has one"],
    ["wipe_failed", "the node was not wiped in time and `onWipeTimeout` is `fail`; the record ends"],
];

/// Variables that no flag declares.
#[rustfmt::skip]
const VARIABLES: &[[&str; 2]] = &[
    ["KUBECONFIG", "Kubeconfig files, as for kubectl. `--kubeconfig` takes precedence."],
    ["POD_NAMESPACE", "Belayer's own namespace, if neither `--own-namespace` nor `BELAYER_NAMESPACE` is set."],
    ["KUBERNETES_SERVICE_HOST", "Set by the kubelet in a pod: Belayer then uses the pod's service account, if `KUBECONFIG` names no file that exists."],
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "Switches traces on; see [Traces](metrics.md#traces) for the others."],
    ["NO_COLOR", "Plain text without colours."],
    ["TOKIO_WORKER_THREADS", "Number of worker threads. Default: one per processor, at most 4."],
    ["HOSTNAME", "Part of the replica's identity in the Lease; in a container usually the name of the pod. Default: the host name."],
    ["COLUMNS", "Width of texts if there is no terminal, at most 80. Default: 80."],
];

fn rows<const N: usize>(page: &mut String, head: [&str; N], rows: &[[&str; N]]) {
    let _ = writeln!(page, "| {} |", head.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(N));
    for (name, rest) in rows.iter().filter_map(|row| row.split_first()) {
        let _ = writeln!(page, "| `{name}` | {} |", rest.join(" | "));
    }
}

/// Names of evidence, and the components that use each.
fn evidence() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let lists: [(&str, &[&str]); 7] = [
        (
            "pod-finalizer",
            belayer_pod_finalizer::evidence::EVIDENCE_NAMES,
        ),
        (
            "workflow-finalizer",
            belayer_workflow_finalizer::evidence::EVIDENCE_NAMES,
        ),
        ("workflow-finalizer", owned::NAMES),
        (
            "pvc-protection",
            belayer_pvc_protection::evidence::EVIDENCE_NAMES,
        ),
        (
            "pod-recreation",
            belayer_pod_recreation::evidence::EVIDENCE_NAMES,
        ),
        (
            "a controller that is switched off",
            belayer_drain::evidence::SWITCHED_OFF,
        ),
        (
            "`belayer drain`",
            &["Drained", "Unselected", "HandedOver", "Unused"],
        ),
    ];
    for (component, names) in lists {
        for name in names {
            all.entry(*name).or_default().push(component);
        }
    }
    all.entry("Adopted").or_default().push("pod-finalizer");
    all
}

/// Lists of label values, by metric and label.
fn label_values(page: &mut String) {
    for metric in ALL {
        for label in metric.labels {
            if let Values::Fixed(values) = label.values {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                let _ = writeln!(
                    page,
                    "| `{}` | `{}` | {} |",
                    metric.name,
                    label.name,
                    values.join(", ")
                );
            }
        }
    }
}

/// Variables of flags: name, flag, commands.
fn variables(page: &mut String) {
    let mut all: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let command = Cli::command();
    let shared = command
        .get_arguments()
        .map(|argument| ("every command", argument));
    let own = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .flat_map(|command| {
            let name = command.get_name();
            command
                .get_arguments()
                .map(move |argument| (name, argument))
        });
    for (command, argument) in shared.chain(own) {
        let (Some(variable), Some(flag)) = (argument.get_env(), argument.get_long()) else {
            continue;
        };
        let variable = variable.to_string_lossy().into_owned();
        let entry = all
            .entry(variable)
            .or_insert_with(|| (format!("--{flag}"), Vec::new()));
        entry.1.push(match command {
            "every command" => command.to_owned(),
            command => format!("`{command}`"),
        });
    }
    for (variable, (flag, commands)) in all {
        let _ = writeln!(
            page,
            "| `{variable}` | `{flag}` | {} |",
            commands.join(", ")
        );
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Events, evidence and names\n\nEverything that Belayer writes into a cluster, by name. The names of this page come from the \
         code, and a test fails if one is missing.\n\n## Events\n\n\
         `kubectl get events -A --field-selector reportingComponent=belayer` shows them. Kubernetes deletes Events after an \
         hour by default.\n\n",
    );
    rows(
        &mut page,
        ["reason", "type", "object", "when", "what to do"],
        EVENTS,
    );
    page.push_str(
        "\n## Evidence\n\nA hold (a finalizer of Belayer) is released only with one of these. The name is in the log line, in the trace, \
         and in the label `evidence` of `belayer_releases_total`.\n\n",
    );
    let users = evidence();
    let described: Vec<[&str; 3]> = Vec::new();
    rows(&mut page, ["evidence", "meaning", "used by"], &described);
    for [name, meaning] in EVIDENCE {
        let by = users.get(name).map_or_else(String::new, |by| by.join(", "));
        let _ = writeln!(page, "| `{name}` | {meaning} | {by} |");
    }
    page.push_str("\n## Finalizers, annotations and labels\n\n");
    rows(
        &mut page,
        ["name", "what", "on", "written by", "meaning"],
        NAMES,
    );
    page.push_str(
        "\n`kubernetes.io/pvc-protection` is Kubernetes' own finalizer; Belayer manages it only if `pvcProtection.finalizer` \
         names it.\n\n## Results of a re-creation\n\nThe label `outcome` of `belayer_recreations_total`:\n\n",
    );
    rows(&mut page, ["outcome", "meaning"], OUTCOMES);
    page.push_str(
        "\n## Fixed label values of metrics\n\n| metric | label | values |\n| --- | --- | --- |\n",
    );
    label_values(&mut page);
    page.push_str(
        "\n## Environment variables\n\nA flag takes precedence over its variable, and a variable over the configuration file. A flag \
         that is not listed here has no variable.\n\n| variable | flag | commands |\n| --- | --- | --- |\n",
    );
    variables(&mut page);
    page.push('\n');
    rows(&mut page, ["other variable", "meaning"], VARIABLES);
    page
}

/// After a change of a name or text run this test with `UPDATE_SNAPSHOTS=1`.
#[test]
fn the_page_of_names_matches_the_code() {
    let page = page();
    let now = fs::read_to_string(PAGE).unwrap_or_default();
    if now != page && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(PAGE, &page).unwrap();
        return;
    }
    assert!(
        now == page,
        "{PAGE} is not up to date: run UPDATE_SNAPSHOTS=1 cargo test --workspace --test commands"
    );
}

fn first<const N: usize>(rows: &[[&'static str; N]]) -> BTreeSet<&'static str> {
    let names: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names.len(), rows.len(), "a name is listed twice");
    names
}

#[test]
fn every_kind_of_evidence_is_described_and_no_other() {
    let known: BTreeSet<&str> = evidence().into_keys().collect();
    assert_eq!(first(EVIDENCE), known);
}

#[test]
fn every_result_of_a_recreation_is_described_and_no_other() {
    let metric = ALL
        .iter()
        .find(|metric| metric.name == "belayer_recreations_total")
        .unwrap();
    let label = metric.labels.iter().find(|label| label.name == "outcome");
    let Values::Fixed(values) = label.unwrap().values else {
        panic!("the label is not fixed")
    };
    assert_eq!(first(OUTCOMES), values.iter().copied().collect());
}

/// The source of a crate's components, without tests.
fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in [
        "drain",
        "holds",
        "pod-finalizer",
        "pod-recreation",
        "pvc-protection",
        "workflow-finalizer",
    ] {
        collect(&crates.join(name).join("src"), &mut sources);
    }
    sources
}

fn collect(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            collect(&path, into);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            into.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
        }
    }
}

/// Texts in quotation marks.
fn literals(source: &str) -> impl Iterator<Item = &str> {
    source
        .lines()
        .flat_map(|line| line.split('"').skip(1).step_by(2))
}

/// Whether a text can be the reason of an Event.
fn is_reason(text: &&str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric())
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().any(|c| c.is_ascii_lowercase())
}

/// The reasons that are written where a notice is made.
fn reasons_of_notices(source: &str) -> impl Iterator<Item = &str> {
    ["reason: ", "otice(", "Notice::normal(", "Notice::warning("]
        .into_iter()
        .flat_map(|place| source.split(place).skip(1))
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .filter(is_reason)
}

#[test]
fn every_reason_of_an_event_is_described_and_no_other() {
    /// Names in the same files that are not reasons of Events.
    const OTHERS: &[&str] = &[
        "AlreadyExists",
        "DrainReport",
        "GivenUp",
        "NodeGone",
        "Refused",
    ];
    // Elsewhere in these files a single word is usually something else.
    let is_long = |text: &&str| text.chars().filter(char::is_ascii_uppercase).count() > 1;
    let sources = sources();
    let mut found = BTreeSet::from([names::HELD_BACK]);
    for source in sources.iter().filter(|source| source.contains("otice")) {
        found.extend(literals(source).filter(is_reason).filter(is_long));
        found.extend(reasons_of_notices(source));
    }
    let evidence = evidence();
    found.retain(|name| !evidence.contains_key(name) && !OTHERS.contains(name));
    assert_eq!(first(EVENTS), found);
}

#[test]
fn reasons_of_one_word_are_found() {
    let source = "with_notice(Notice::warning(\n  \"One\", x)) Notice { reason: \"Two\", y } notice(\"Three\", z)";
    let found: BTreeSet<&str> = reasons_of_notices(source).collect();
    assert_eq!(found, BTreeSet::from(["One", "Two", "Three"]));
}

#[test]
fn every_name_of_belayer_is_described_and_no_other() {
    let is_name = |text: &&str| {
        text.strip_prefix("belayer.dev/")
            .is_some_and(|name| !name.is_empty() && !name.starts_with("v1") && !name.contains(' '))
    };
    let sources = sources();
    let lines = sources.iter().flat_map(|source| source.lines());
    let constants = lines.filter(|line| line.contains("const "));
    let found: BTreeSet<&str> = constants.flat_map(literals).filter(is_name).collect();
    assert_eq!(first(NAMES), found);
}

/// The fields of serialized structs, as they are in JSON.
fn fields(source: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let (mut serialized, mut renamed) = (false, None);
    for line in source.lines() {
        if line.starts_with("#[derive(") {
            serialized = line.contains("Serialize");
        }
        if let Some((_, rest)) = line.split_once("rename = \"") {
            renamed = rest.split('"').next().map(str::to_owned);
        }
        if line.contains("#[serde(flatten)]") || line.contains("#[serde(skip)]") {
            renamed = Some(String::new());
        }
        let field = line.strip_prefix("    pub ").unwrap_or_default();
        let Some((name, _)) = field.split_once(": ") else {
            continue;
        };
        let name = renamed.take().unwrap_or_else(|| camel_case(name));
        if serialized && !name.is_empty() && name.chars().all(char::is_alphanumeric) {
            fields.push(name);
        }
    }
    fields
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |so_far, word| {
        let (initial, rest) = word.split_at(1);
        so_far + &initial.to_uppercase() + rest
    })
}

#[test]
fn every_field_of_the_json_output_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/src/reference/output.md")).unwrap();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for file in [
        "drain/src/report.rs",
        "inspect/src/explain.rs",
        "inspect/src/preflight/report.rs",
        "inspect/src/report.rs",
        "inspect/src/status/mod.rs",
    ] {
        let source = fs::read_to_string(root.join("crates").join(file)).unwrap();
        let fields = fields(&source);
        assert!(fields.len() > 8, "{file}: {fields:?}");
        for field in fields {
            assert!(
                words.contains(&*field),
                "{file}: {field} is not in output.md"
            );
        }
    }
}
