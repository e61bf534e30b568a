//! Every key of the file: its type, its default, and when a change takes effect. The reference in
//! `docs/src/reference/configuration.md` is generated from this table, and tests compare it with the code.

use std::fmt::Write as _;

pub use belayer_controller::config::{Key, Reload};

use crate::controllers::CONTROLLERS;

/// The keys of the process itself.
const PROCESS: &[Key] = &[
    Key::restart("apiVersion", "text", "", "", "`config.belayer.dev/v1alpha1`. The only required key."),
    Key::restart("kind", "text", "BelayerConfiguration", "", "`BelayerConfiguration`."),
    Key::restart("controllers", "list of names", "[\"*\"]", "--controllers", "Controllers to run: `*` for all but pod-recreation, `name` enables one, `-name` disables one."),
    Key::restart("dryRun", "true or false", "false", "--dry-run", "Decide and report, but send nothing that changes the cluster."),
    Key::restart("featureGates", "name: true or false", "{}", "--feature-gates", "Features that are not stable; `belayer version` lists them."),
    Key::restart("leaderElection.enabled", "true or false", "true", "--leader-elect", "Elect a leader among the replicas; the others stand by with warm caches."),
    Key::restart("leaderElection.leaseDuration", "duration, 1s or more", "15s", "--leader-elect-lease-duration", "How long other replicas wait before they take over from a leader that no longer renews. Must be longer than the renew deadline."),
    Key::restart("leaderElection.renewDeadline", "duration", "10s", "--leader-elect-renew-deadline", "How long the leader keeps writing while it cannot renew. Must be longer than 1.2 times the retry period."),
    Key::restart("leaderElection.retryPeriod", "duration, 10ms or more", "2s", "--leader-elect-retry-period", "How often the leader renews and the others check the Lease."),
    Key::restart("leaderElection.resourceName", "name", "belayer", "--leader-elect-resource-name", "Name of the Lease."),
    Key::restart("leaderElection.resourceNamespace", "name", "", "--leader-elect-resource-namespace", "Namespace of the Lease; Belayer's own if left out. While it does not exist, each replica works without election."),
    Key::live("limits.qps", "1 or more", "100", "Requests to the API server: live reads, holds, records and Events. If all of them wait, live reads get half, writes three tenths and Events the rest; unused shares are available to the others. Namespaces take turns. Releases do not count: `concurrentReleases`, the 64 requests that a process may have in flight, and the server's 429 responses limit them. Lists and watches that fill the caches do not count either; there is one at a time per kind.").flag("--kube-api-qps"),
    Key::live("limits.burst", "1 or more", "200", "Burst of such requests after a pause.").flag("--kube-api-burst"),
    Key::live("limits.concurrentReleases", "1 to 1024", "64", "Releases of one kind in flight at once; fewer while the API server is overloaded.").flag("--concurrent-releases"),
    Key::restart("endpoints.metricsBindAddress", "address", ":8080", "--metrics-bind-address", "Address that serves `/metrics`, `/livez` and `/readyz`: `:8080` is port 8080 of all addresses, `0` alone is off."),
    Key::restart("endpoints.healthProbeBindAddress", "address", "0", "--health-probe-bind-address", "Separate address for `/livez` and `/readyz`, so that a flood of requests for metrics does not block the probes; `0` is off."),
    Key::restart("endpoints.debugBindAddress", "address", "127.0.0.1:8081", "--debug-bind-address", "Address that serves the status page and `/debug/holds`, which name pods; `0` is off."),
    Key::restart("endpoints.tlsCertFile", "file", "", "--tls-cert-file", "Certificate (PEM, with its chain) for serving metrics over TLS. A changed file is read within 10 seconds."),
    Key::restart("endpoints.tlsPrivateKeyFile", "file", "", "--tls-private-key-file", "Private key (PEM) of that certificate."),
    Key::restart("endpoints.metricsAuthorization", "true or false", "false", "--metrics-authorization", "Serve `/metrics` only to clients with a token that may `get` the path `/metrics`, as the API server decides (TokenReview, SubjectAccessReview). Needs TLS. `/livez` and `/readyz` stay open."),
    Key::restart("logging.format", "text or json", "text", "--log-format", "Format of log lines."),
    Key::restart("logging.level", "levels", "info", "--log-level", "Log level, also per target: `info,belayer_core::informer=debug`."),
];

/// The keys of the node agent.
#[rustfmt::skip]
const NODE_AGENT: &[Key] = &[
    Key::restart("nodeAgent.roots", "list of directories", "[]", "", "Directories that the node agent is confined to; `--root` takes precedence."),
    Key::restart("nodeAgent.paths", "list of templates", "[]", "", "Templates of a pod's directories, such as `/state/{podUID}`; default: `{podUID}` in each root. `--path` takes precedence."),
    Key::restart("nodeAgent.hostRoot", "directory", "/", "", "Where the node's `/` is mounted: `proc` and `sys/fs/cgroup` below it show which pods still run. `--host-root` takes precedence."),
    Key::restart("nodeAgent.workers", "1 to 256", "16", "", "Pods wiped concurrently."),
    Key::restart("nodeAgent.handlers", "list", "[]", "", "Programs that are run for a pod while it is starting."),
    Key::restart("nodeAgent.handlers[].name", "text", "", "", "Name in messages; default: the program."),
    Key::restart("nodeAgent.handlers[].command", "list of texts", "", "", "Its absolute path and its arguments, with `{podUID}`, `{podName}` and `{podNamespace}`."),
    Key::restart("nodeAgent.handlers[].timeoutSeconds", "seconds, 1 to 3600", "600", "", "Time limit."),
    Key::restart("nodeAgent.hooks", "list", "[]", "", "Programs that are run before a pod's directories are removed."),
    Key::restart("nodeAgent.hooks[].name", "text", "", "", "Name in messages; default: the program."),
    Key::restart("nodeAgent.hooks[].command", "list of texts", "", "", "Its absolute path and its arguments, with `{podUID}`, `{podName}` and `{podNamespace}`."),
    Key::restart("nodeAgent.hooks[].timeoutSeconds", "seconds, 1 to 10", "5", "", "Time limit."),
];

/// All keys, in the order of the reference.
pub fn all() -> impl Iterator<Item = &'static Key> {
    let controllers = CONTROLLERS.iter().flat_map(|controller| controller.keys);
    PROCESS.iter().chain(controllers).chain(NODE_AGENT)
}

/// The entry of a key of a document: without list indexes, and the entry of the enclosing key if it has
/// none.
pub fn entry(path: &str) -> Option<&'static Key> {
    let plain = plain(path);
    let mut path = plain.as_str();
    loop {
        let found = all().find(|key| key.path == path || key.path.trim_end_matches("[]") == path);
        if found.is_some() {
            return found;
        }
        // A key that only groups others changes like the first of them.
        let grouped = all().find(|key| {
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

/// The reference as Markdown tables, one per group of keys.
pub fn reference() -> String {
    let mut text = String::new();
    let mut group = None;
    for key in all() {
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
