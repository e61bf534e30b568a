//! `belayer drain`: parses arguments and prints the result. `belayer-drain` does the work.

mod arguments;
mod confirm;
mod progress;
mod selection;
pub mod switched_off;

use std::sync::Arc;
use std::time::Duration;

use belayer_controller::Configured;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::report::Report;
use belayer_drain::run::{Drain, DrainError, DrainParts, Kinds, Resumed};
use belayer_drain::selection::{NoSelection, Selection};
use belayer_drain::text;
use belayer_holds::names::{FIELD_MANAGER, GATE, KUBERNETES_PVC_PROTECTION};
use belayer_inspect::preflight::with_configuration_file;
use belayer_inspect::reader::Reader;

pub use arguments::DrainArguments;
pub(crate) use arguments::HELP;
pub use switched_off::OnDisable;

use crate::config::Source;
use crate::exit::Failure;
use crate::kubeconfig::{self, Sources};
use crate::reach::Server;
use crate::screen::Screen;
use crate::signals;
use progress::ProgressPrinter;

/// The controller of Kubernetes that Belayer may replace.
const PVC_CONTROLLER: &str =
    "persistentvolumeclaim-protection-controller of kube-controller-manager";

/// Limits of all requests but releases: the cluster must stay usable during a drain.
const QPS: f64 = 100.0;
const BURST: u32 = 200;

/// `belayer drain`.
///
/// # Errors
///
/// If the cluster cannot be reached; and, with an exit code of its own, if a hold stays or a request was denied
/// or failed.
pub async fn run(arguments: DrainArguments) -> Result<(), Failure> {
    let sources = Sources::from_env();
    let namespace = arguments.read.own.name(&sources)?;
    let source = arguments.read.source()?;
    let configured = source.configured().map_err(Failure::configuration)?;
    let selection = selection(&arguments, &source)?;
    let hands_over =
        !arguments.unselected && configured.iter().any(|one| replaces_kubernetes(&**one));
    let kinds = kinds(&arguments, &configured);
    let config = arguments.read.cluster.find(&sources).await?;
    let server = Server::of(&config);
    let client = kubeconfig::connect(config)?;
    let bounds = Bounds {
        qps: QPS,
        burst: BURST,
        concurrent_releases: usize::try_from(arguments.concurrent_releases).unwrap_or(usize::MAX),
    };
    let reader = Reader::new(client.clone(), bounds);
    if arguments.unselected && arguments.read.config.is_none() {
        let has_none = must_have_no_file(&reader, &namespace);
        server.wait(&reader, has_none).await?;
    }
    if !confirm::is_confirmed(&arguments, &server).map_err(anyhow::Error::from)? {
        return Err(Failure::configuration(anyhow::anyhow!(
            "not confirmed: nothing was changed"
        )));
    }
    let writes = if arguments.dry_run {
        Writes::DryRun
    } else {
        Writes::Sent
    };
    let order = Order::of_the_admin();
    let drain = Drain::new(DrainParts {
        executor: Arc::new(Executor::new(client, FIELD_MANAGER, bounds, writes)),
        reader,
        namespace: namespace.clone(),
        purpose: if arguments.unselected {
            Purpose::Unselected(order)
        } else {
            Purpose::Everything(order)
        },
        kinds,
        selection,
        timeout: arguments.timeout,
        except_namespaces: arguments.except_namespace.clone(),
    });
    let progress = ProgressPrinter::on_stderr(server.clone());
    if arguments.resume {
        return resume(&drain, &namespace, &server, arguments.timeout, &progress).await;
    }
    let sets_the_gate = !arguments.dry_run && !arguments.unselected;
    let interrupted = async { Ok::<_, Failure>(signals::next_end()?.await) };
    let ran = tokio::select! {
        ran = drain.run(&progress) => ran,
        code = interrupted, if sets_the_gate => {
            progress.interrupted();
            return Err(Failure::Found(code?));
        }
    };
    progress.end();
    let mut report = ran.map_err(|error| failed(error, &server, arguments.timeout))?;
    let decided_by = decided_by_default(&arguments);
    report.notes.extend(decided_by.map(str::to_owned));
    if hands_over {
        report.notes.push(format!(
            "{}: enable {PVC_CONTROLLER} before you remove Belayer",
            kept_for_kubernetes(&report)
        ));
    }
    let screen = Screen::of_stdout(arguments.read.output);
    screen.show(&report, |screen| {
        text::report(&report, screen.style().width)
    })?;
    match report.exit_code {
        0 => Ok(()),
        code => Err(Failure::Found(code)),
    }
}

/// Whether this controller manages the finalizer of Kubernetes' own controller.
pub(crate) fn replaces_kubernetes(configured: &dyn Configured) -> bool {
    let holds = configured.holds();
    let mut finalizers = holds.iter().flat_map(|hold| &hold.finalizers);
    finalizers.any(|name| *name == KUBERNETES_PVC_PROTECTION)
}

/// What only Kubernetes' own controller removes once Belayer has stopped doing it in its place.
fn kept_for_kubernetes(report: &Report) -> String {
    match report.kubernetes_finalizers {
        // New ones get it by an admission plugin.
        0 => format!(
            "Belayer managed {KUBERNETES_PVC_PROTECTION} in place of Kubernetes' own controller"
        ),
        pvcs => format!(
            "{} {KUBERNETES_PVC_PROTECTION}, which Belayer managed in place of Kubernetes' own controller",
            one_or_many(pvcs, "PVC keeps", "PVCs keep")
        ),
    }
}

fn failed(error: DrainError, server: &Server, timeout: Duration) -> Failure {
    match error {
        DrainError::Unreachable { trouble } => server.silent(trouble.as_ref(), timeout),
        DrainError::Discovery(error) | DrainError::Gate(error) => server.failed(&error),
    }
}

/// Every kind that can have a hold by the configuration, whichever controllers run, or every kind at all.
fn kinds(arguments: &DrainArguments, configured: &[Arc<dyn Configured>]) -> Kinds {
    if !arguments.configured_kinds {
        return Kinds::Served;
    }
    let holds = configured.iter().flat_map(|one| one.holds());
    let kinds = holds.map(|hold| hold.kind);
    Kinds::Among(kinds.chain([Resource::pods()]).collect())
}

/// What the user must know if the default configuration decides which objects are selected: where Belayer runs with
/// a file, it selects others, and their results would be lost.
fn decided_by_default(arguments: &DrainArguments) -> Option<&'static str> {
    (arguments.unselected && arguments.read.config.is_none()).then_some(
        "Decided by the default configuration. If Belayer runs with a configuration file, give it: --config FILE",
    )
}

/// Refuses to use the defaults if a Deployment in Belayer's `namespace` runs with a configuration file. The defaults may not
/// select what that Belayer holds. Without an answer the drain goes on.
async fn must_have_no_file(reader: &Reader, namespace: &str) -> Result<(), Failure> {
    let Some(name) = with_configuration_file(reader, namespace).await else {
        return Ok(());
    };
    Err(Failure::configuration(anyhow::anyhow!(
        "the Deployment {namespace}/{name} runs with a configuration file; give the same file with --config FILE"
    )))
}

fn selection(arguments: &DrainArguments, source: &Source) -> Result<Box<dyn Selection>, Failure> {
    if !arguments.unselected {
        return Ok(Box::new(NoSelection));
    }
    let profiles = selection::Profiles::of(source).map_err(Failure::configuration)?;
    Ok(Box::new(profiles))
}

async fn resume(
    drain: &Drain,
    namespace: &str,
    server: &Server,
    timeout: Duration,
    progress: &ProgressPrinter,
) -> Result<(), Failure> {
    let ended = drain.resume(progress).await;
    progress.end();
    let ended = ended.map_err(|error| {
        let failure = failed(error, server, timeout);
        Failure::Error(anyhow::anyhow!(
            "{failure}; draining was not ended: run `belayer drain --resume` again"
        ))
    })?;
    let screen = Screen::of_stdout(None);
    let print = |text: &str| screen.text(&format!("{}\n", screen.fitted(text)));
    let stay_off = match ended {
        Resumed::NoGate => {
            return Err(Failure::Error(anyhow::anyhow!(
                "no gate {namespace}/{GATE} exists: nothing was changed; if Belayer runs in another namespace, set it \
                 with --own-namespace"
            )));
        }
        Resumed::NotDraining => {
            return print("Belayer is not in draining mode: nothing had to be changed.");
        }
        Resumed::Ended(stay_off) => stay_off,
    };
    print(
        "Draining ended: a running Belayer adds holds again. To restore the admission policies that drain removed, \
         apply the manifests again, or run `helm upgrade` (after a failed uninstall `helm rollback`).",
    )?;
    for (switch, word) in stay_off {
        print(&format!(
            "The gate belayer-gate still has {switch}: {word}, as before the drain: the admission policy that this key \
             controls adds no holds."
        ))?;
    }
    Ok(())
}
