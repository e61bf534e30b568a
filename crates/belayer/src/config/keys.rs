//! Every key of the file: what it takes, its default, and when a change takes effect. The
//! reference in `docs/configuration.md` is made of this table, and tests hold it against the code.

use std::fmt::Write as _;

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// While the process runs.
    Live,
    /// With the next start.
    Restart,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// From the root of the file; `[]` is every item of a list.
    pub path: &'static str,
    /// What it takes, unit included.
    pub takes: &'static str,
    /// What holds where it is left out, as it would be written; empty if nothing does.
    pub default: &'static str,
    /// Its own flag, if it has one; any key can be set by `--set`.
    pub flag: &'static str,
    /// When a change takes effect.
    pub reload: Reload,
    /// What it is for.
    pub about: &'static str,
}

const fn live(
    path: &'static str,
    takes: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key {
        path,
        takes,
        default,
        flag: "",
        reload: Reload::Live,
        about,
    }
}

const fn restart(
    path: &'static str,
    takes: &'static str,
    default: &'static str,
    flag: &'static str,
    about: &'static str,
) -> Key {
    Key {
        path,
        takes,
        default,
        flag,
        reload: Reload::Restart,
        about,
    }
}

impl Key {
    const fn flag(self, flag: &'static str) -> Self {
        Self { flag, ..self }
    }
}

/// All keys, in the order in which people write them.
pub const KEYS: &[Key] = &[
    restart("apiVersion", "text", "", "", "`config.belayer.dev/v1alpha1`. The one key that must be there."),
    restart("kind", "text", "BelayerConfiguration", "", "`BelayerConfiguration`."),
    restart("controllers", "list of names", "[\"*\"]", "--controllers", "Controllers to run: `*` is all of them, `name` switches one on, `-name` switches it off."),
    restart("dryRun", "true or false", "false", "--dry-run", "Decide and report, but send nothing that changes the cluster."),
    restart("featureGates", "name: true or false", "{}", "--feature-gates", "What is not stable yet; `belayer version` lists them."),
    restart("leaderElection.enabled", "true or false", "true", "--leader-elect", "Elect one of several replicas that works; the others stand by with warm caches."),
    restart("leaderElection.leaseDuration", "duration", "15s", "--leader-elect-lease-duration", "How long others wait for a leader that is silent. Longer than the renew deadline."),
    restart("leaderElection.renewDeadline", "duration", "10s", "--leader-elect-renew-deadline", "How long a leader that cannot renew goes on writing. Longer than 1.2 times the retry period."),
    restart("leaderElection.retryPeriod", "duration", "2s", "--leader-elect-retry-period", "How often a leader renews and the others look."),
    restart("leaderElection.resourceName", "name", "belayer", "--leader-elect-resource-name", "Name of the Lease."),
    restart("leaderElection.resourceNamespace", "name", "", "--leader-elect-resource-namespace", "Namespace of the Lease; Belayer's own if left out."),
    live("limits.qps", "requests a second", "100", "Requests to the API server: live reads, holds, records and Events. When all of them wait, live reads get half, writes three tenths and Events the rest; the others may use what one does not need. Namespaces take turns. Releases do not count: only `concurrentReleases` and 429 answers of the server limit them. The lists and watches that fill the caches do not count either; there is one at a time for each kind.").flag("--kube-api-qps"),
    live("limits.burst", "requests", "200", "Such requests that may go at once after a pause.").flag("--kube-api-burst"),
    live("limits.concurrentReleases", "1 to 1024", "32", "Releases under way at once.").flag("--concurrent-releases"),
    restart("endpoints.metricsBindAddress", "address", ":8080", "--metrics-bind-address", "Where `/metrics`, `/livez` and `/readyz` are served: `:8080` is every address, `0` alone is off."),
    restart("endpoints.debugBindAddress", "address", "127.0.0.1:8081", "--debug-bind-address", "Where `/debug/holds` is served, which names pods; `0` is off."),
    restart("logging.format", "text or json", "text", "--log-format", "How log lines look."),
    restart("logging.level", "levels", "info", "--log-level", "How much is logged, and by whom: `info,belayer_core::informer=debug`."),
    live("podFinalizer.workers", "1 to 1024", "32", "Pods worked on at once.").flag("--workers"),
    live("podFinalizer.backlogThreshold", "pods", "4000", "When more held pods than this are being deleted, no holds are added until there are half as many. A namespace with more than a quarter of it (at least 50) gets no holds either, and counts for no more than that quarter in the whole cluster."),
    live("podFinalizer.maxUnselected", "pods or percent", "10%", "When more held pods than this are selected by no profile any more, their holds are kept until there is other evidence, because that many at once look like a mistyped selector. Counted per namespace; pods that a configuration change unselects also over the cluster."),
    live("podFinalizer.resync", "duration, 10s or more", "10m", "How often each pod is looked at without a reason, on average."),
    live("podFinalizer.outcomeTtl", "duration, 1s or more", "7d", "How long a recorded outcome is kept that no owner collects."),
    live("podFinalizer.profiles", "list", "[{builtIn: argo}]", "Which pods are held, for whom, and until when. The first that selects a pod counts."),
    live("podFinalizer.profiles[].builtIn", "argo", "", "The built-in profile that this one starts from; the other keys replace its own, save the selector, which narrows it."),
    live("podFinalizer.profiles[].name", "name", "", "Its name in Events and logs; needed without `builtIn`."),
    live("podFinalizer.profiles[].mode", "enforce or observe", "enforce", "`observe` decides and reports, and writes nothing."),
    live("podFinalizer.profiles[].selector.matchLabels", "label: value", "{}", "Labels of the pods that are held."),
    live("podFinalizer.profiles[].selector.matchExpressions[].key", "label", "", "A label of the pods that are held."),
    live("podFinalizer.profiles[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "What must be true of it."),
    live("podFinalizer.profiles[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    live("podFinalizer.profiles[].namespaces.include", "list of names", "[]", "Only pods in these namespaces; all if empty. A namespace with the label `belayer.dev/ignore=true` is left alone in any case. The admission policy knows nothing of this key: give its `namespaceSelector` the same names, or it ties pods that nothing selects; `belayer check` compares the two."),
    live("podFinalizer.profiles[].namespaces.exclude", "list of names", "[]", "No pods in these namespaces."),
    live("podFinalizer.profiles[].owner.group", "API group", "", "Group of the kind that owns the pods; empty is the core group."),
    live("podFinalizer.profiles[].owner.version", "API version", "", "Version of that kind."),
    live("podFinalizer.profiles[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    live("podFinalizer.profiles[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    live("podFinalizer.profiles[].consumed.labels", "label: value", "", "Labels that say that a pod's result was taken."),
    live("podFinalizer.profiles[].ownerFinished.labels", "label: value", "", "Labels of the owner that say that it has finished."),
    live("podFinalizer.profiles[].releaseAfter", "duration, 1s or more", "", "Release a deleted pod that long after its grace period, whether its result was taken or not, and whether it has ended or not."),
    live("podFinalizer.profiles[].ownerStatus", "none or argo", "", "Whose status is read to learn which results were taken."),
    live("podFinalizer.profiles[].adopt", "list of finalizers", "[]", "Finalizers of others that are released with ours."),
    live("podFinalizer.profiles[].capture", "true or false", "false", "Record each outcome as a `PodOutcome`."),
    live("podFinalizer.profiles[].consumer", "pod or podOutcome", "", "What the consumer reads. `podOutcome`: a pod is released once its record is written. This is the default with `capture: true` if the profile names no owner, or no label that shows that a result was taken. It is refused for Argo Workflows, which reads only pods."),
    live("podFinalizer.profiles[].deletedWhileRunning", "release or hold", "release", "Argo Workflows only: what happens to a pod that was deleted before it had a result. `release`: it is released once it has ended, so that Argo finds what it would find without Belayer. `hold`: it is held until Argo has read how the deletion ended it."),
    live("podFinalizer.profiles[].nodeLostDelay", "duration", "0s", "Argo Workflows only: how long a deleted pod is held after its node was found lost."),
    live("podFinalizer.profiles[].cleanup", "none or argo", "none", "Whether pods are deleted when their workflow asks for it; needs the feature gate PodCleanup."),
    live("workflowFinalizer.workers", "1 to 1024", "16", "Workflows worked on at once, per kind.").flag("--workers"),
    live("workflowFinalizer.maxUnselected", "workflows or percent", "10%", "As `podFinalizer.maxUnselected`."),
    live("workflowFinalizer.resync", "duration, 1s or more", "1m", "How often a deletion that waits is looked at without any event."),
    live("workflowFinalizer.owners", "list", "[{}]", "The kinds that are held; the workflows of Argo Workflows if left out. Of a kind that is taken out `belayer drain --unselected` takes the holds off."),
    live("workflowFinalizer.owners[].owner.group", "API group", "", "Group of a kind that owns pods."),
    live("workflowFinalizer.owners[].owner.version", "API version", "", "Version of that kind."),
    live("workflowFinalizer.owners[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    live("workflowFinalizer.owners[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    live("workflowFinalizer.owners[].podLabel", "label", "", "The label by which pods name their owner, so that a live list need not be of the whole namespace."),
    live("workflowFinalizer.owners[].selector.matchLabels", "label: value", "{}", "Labels of those that are held."),
    live("workflowFinalizer.owners[].selector.matchExpressions[].key", "label", "", "A label of those that are held."),
    live("workflowFinalizer.owners[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "What must be true of it."),
    live("workflowFinalizer.owners[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    live("workflowFinalizer.owners[].namespaces.include", "list of names", "[]", "Only in these namespaces; all if empty."),
    live("workflowFinalizer.owners[].namespaces.exclude", "list of names", "[]", "Not in these namespaces."),
    live("podRecreation.workers", "1 to 1024", "32", "Records worked on at once.").flag("--workers"),
    live("podRecreation.selectors", "list", "[]", "Pods that are re-created beside those that ask by annotation."),
    live("podRecreation.selectors[].matchLabels", "label: value", "", "Labels of such pods; at least one."),
    live("podRecreation.owners", "list of kinds", "[]", "Kinds of controllers whose pods are re-created as well, if they ask for it or are selected, as `Kind` or `Kind.group`; never one that replaces its pods itself."),
    live("podRecreation.maxRetries", "0 to 100", "3", "Re-creations of one pod."),
    live("podRecreation.backoffSeconds", "seconds", "15", "Pause before the first re-creation; it doubles with each."),
    live("podRecreation.wipeTimeoutSeconds", "seconds", "120", "How long the node agent may take to wipe the state of a rejected pod."),
    live("podRecreation.onWipeTimeout", "proceed or fail", "proceed", "What follows when it takes longer: re-create on another node, or not at all."),
    live("podRecreation.avoidRejectedNode", "true or false", "false", "Never go back to a node that rejected the pod."),
    live("podRecreation.classes", "reason: race, transient, permanent or unknown", "{}", "What single reasons of rejections mean; race and transient are re-created."),
    live("podRecreation.allowArgo", "true or false", "false", "Whether `podRecreation.owners` may name workflows of Argo Workflows, which retries its pods itself. If false, such owners are ignored, with a warning."),
    live("podRecreation.recordTtlSeconds", "seconds", "3600", "How long a record is kept after its end."),
    live("podRecreation.storm.perOwner.perSecond", "number above 0", "5", "Re-creations a second of one owner's pods."),
    live("podRecreation.storm.perOwner.burst", "1 or more", "50", "How many of them may go at once after a pause."),
    live("podRecreation.storm.perNode.perSecond", "number above 0", "5", "Re-creations a second after one node's rejections."),
    live("podRecreation.storm.perNode.burst", "1 or more", "50", "How many of them may go at once after a pause."),
    live("podRecreation.storm.cluster.perSecond", "number above 0", "50", "Re-creations a second in all."),
    live("podRecreation.storm.cluster.burst", "1 or more", "500", "How many of them may go at once after a pause."),
    live("podRecreation.storm.breaker.rejections", "1 or more", "100", "So many rejections ..."),
    live("podRecreation.storm.breaker.withinSeconds", "seconds", "60", "... of one node within this time give it a rest ..."),
    live("podRecreation.storm.breaker.openSeconds", "seconds", "30", "... of this length."),
    live("pvcProtection.workers", "1 to 1024", "32", "Claims worked on at once.").flag("--workers"),
    live("pvcProtection.finalizer", "finalizer", "", "The finalizer that PVCs are held by: `belayer.dev/pvc-protection` beside kube-controller-manager's own controller, `kubernetes.io/pvc-protection` in its place. If left out, PVCs get no finalizer: Belayer only reports which pods they wait for.").flag("--pvc-protection-finalizer"),
    restart("nodeAgent.roots", "list of directories", "[]", "", "Directories that the node agent is confined to; `--root` counts more."),
    restart("nodeAgent.paths", "list of templates", "[]", "", "A pod's directories in them, such as `state/{podUID}`; `{podUID}` in each root if left out. `--path` counts more."),
    restart("nodeAgent.hostRoot", "directory", "/", "", "Where the node's `/` is mounted: `proc` and `sys/fs/cgroup` below it show which pods still run. `--host-root` takes precedence."),
    restart("nodeAgent.workers", "1 to 256", "16", "", "Pods wiped at once."),
    restart("nodeAgent.handlers", "list", "[]", "", "Programs that are run for a pod while it is on its way to start."),
    restart("nodeAgent.handlers[].name", "text", "", "", "What messages call it; the program if left out."),
    restart("nodeAgent.handlers[].command", "list of texts", "", "", "Its absolute path and its arguments, with `{podUID}`, `{podName}` and `{podNamespace}`."),
    restart("nodeAgent.handlers[].timeoutSeconds", "seconds, 1 to 3600", "600", "", "How long it may take."),
    restart("nodeAgent.hooks", "list", "[]", "", "Programs that are run before a pod's directories are removed."),
    restart("nodeAgent.hooks[].name", "text", "", "", "What messages call it; the program if left out."),
    restart("nodeAgent.hooks[].command", "list of texts", "", "", "Its absolute path and its arguments, with `{podUID}`, `{podName}` and `{podNamespace}`."),
    restart("nodeAgent.hooks[].timeoutSeconds", "seconds, 1 to 10", "5", "", "How long it may take."),
];

/// The entry of a key as it is in a document: without the indexes of lists, and that of the key
/// around it if it has none of its own.
pub fn entry(path: &str) -> Option<&'static Key> {
    let plain = plain(path);
    let mut path = plain.as_str();
    loop {
        let found = KEYS
            .iter()
            .find(|key| key.path == path || key.path.trim_end_matches("[]") == path);
        if found.is_some() {
            return found;
        }
        // A key that only groups others has the fate of the first of them.
        let grouped = KEYS.iter().find(|key| {
            key.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        });
        if grouped.is_some() {
            return grouped;
        }
        path = path.rsplit_once('.')?.0;
    }
}

/// `a.b[3].c` as `a.b[].c`.
fn plain(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => continue,
            _ => {}
        }
        plain.push(c);
    }
    plain
}

/// The reference as a table in Markdown, one per group of keys.
pub fn reference() -> String {
    let mut text = String::new();
    let mut group = None;
    for key in KEYS {
        let root = key.path.split('.').next().unwrap_or_default();
        let of = if root == key.path { "" } else { root };
        if group != Some(of) {
            let title = if of.is_empty() { "The file" } else { of };
            let _ = write!(
                text,
                "\n### {title}\n\n| key | takes | default | flag | change |\n| --- | --- | --- | --- | --- |\n"
            );
            group = Some(of);
        }
        let code = |text: &str| match text {
            "" => String::new(),
            text => format!("`{text}`"),
        };
        let change = match key.reload {
            Reload::Live => "live",
            Reload::Restart => "restart",
        };
        let _ = writeln!(
            text,
            "| `{}`<br>{} | {} | {} | {} | {change} |",
            key.path,
            key.about,
            key.takes,
            code(key.default),
            code(key.flag),
        );
    }
    text
}

#[cfg(test)]
#[cfg(all(
    target_os = "linux",
    feature = "node-agent",
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pvc-protection",
    feature = "pod-recreation"
))]
mod tests;
