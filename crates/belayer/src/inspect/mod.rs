//! The commands that only read: parse arguments and print the result. `belayer-inspect` does the work; each
//! controller has an explainer.

mod arguments;
mod changes;
mod check;
mod explainers;
mod parts;
mod progress;
mod serve;
mod status;

use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;

use belayer_core::executor::Bounds;
use belayer_core::object::{ObjectKey, Resource};
use belayer_inspect::explain::{Explanation, Subject};
use belayer_inspect::reader::{ReadResult, Reader, Trouble};
use belayer_inspect::report::{Report, UnseenReason};
use belayer_inspect::scan::{Scope, Silent};
use belayer_inspect::stuck::{InspectError, Query, explain, stuck};
use belayer_inspect::text;

pub(crate) use arguments::{CHECK_HELP, EXPLAIN_HELP, STATUS_HELP, STUCK_HELP};
pub use arguments::{CheckArguments, ExplainArguments, StatusArguments, StuckArguments};
pub use check::run_check;
pub use parts::parts;
pub(crate) use serve::status_page;
pub(crate) use status::query as status_query;
pub use status::run_status;

use crate::arguments::ClusterArguments;
use crate::config::Source;
use crate::election::{Election, ElectionArguments};
use crate::exit::Failure;
use crate::kubeconfig::{self, Sources};
use crate::reach::Server;
use crate::screen::{self, Screen};
use crate::signals;

/// Exit code if an object is stuck.
pub const STUCK: u8 = 3;

/// Exit code if nothing was found to be stuck, but not everything could be checked.
pub const INCOMPLETE: u8 = 4;

/// Limits of requests: kubectl's. A cluster with fewer kinds than the burst is listed without a wait.
const BOUNDS: Bounds = Bounds {
    qps: 50.0,
    burst: 300,
    concurrent_releases: 1,
};

/// Interval of `explain --watch`.
const WATCH: Duration = Duration::from_secs(2);

/// Interval of `stuck --watch`: it lists every kind.
const WATCH_ALL: Duration = Duration::from_secs(10);

/// `belayer stuck`.
///
/// # Errors
///
/// If the cluster cannot be reached; and, with an exit code of its own, if an object is stuck.
pub async fn run_stuck(arguments: StuckArguments) -> Result<(), Failure> {
    let (reader, _, server) = connect(&arguments.read.cluster).await?;
    let query = Query {
        scope: match arguments.namespace.clone() {
            Some(namespace) if !arguments.all_namespaces => Scope::Namespace(namespace),
            _ => Scope::Cluster,
        },
        selector: arguments.selector.clone().unwrap_or_default(),
        older_than: arguments.older_than,
    };
    let own_namespace = arguments.read.own.name(&Sources::from_env())?;
    let belayer = explainers::belayer(&reader, &arguments.read, &own_namespace)?;
    let progress = progress::on_stderr();
    let found = server.ask(&reader, async {
        if let Scope::Namespace(namespace) = &query.scope {
            must_exist(&reader, namespace).await?;
        }
        let found = stuck(&reader, &query, &belayer, &progress, Timestamp::now).await;
        found.map_err(|error| failed(error, &server))
    });
    let found = found.await;
    progress.bar.finish_and_clear();
    let mut report = found?;
    let screen = Screen::of_stdout(arguments.read.output);
    show_report(&screen, &report)?;
    if !arguments.watch {
        return verdict_of_all(&report);
    }
    let mut failures = ReadFailures::default();
    let mut ended = std::pin::pin!(signals::next_end()?);
    loop {
        let read = async {
            tokio::time::sleep(WATCH_ALL).await;
            stuck(&reader, &query, &belayer, &Silent, Timestamp::now).await
        };
        let read = tokio::select! {
            _ = &mut ended => return Ok(()),
            () = screen::reader_gone() => return Ok(()),
            read = read => read,
        };
        match read {
            Err(error) if failures.goes_on(&error, &server) => continue,
            Err(error) => return Err(failed(error, &server)),
            Ok(now) if changes::of_report(&now, &report) => {
                screen.separate()?;
                show_report(&screen, &now)?;
                report = now;
            }
            Ok(_) => {}
        }
        failures = ReadFailures::default();
    }
}

fn show_report(screen: &Screen, report: &Report) -> Result<(), Failure> {
    screen.show(report, |screen| {
        if screen.shows_names() {
            text::names(report)
        } else {
            text::report(report, screen.style(), screen)
        }
    })
}

fn verdict_of_all(report: &Report) -> Result<(), Failure> {
    let failing = report
        .unseen
        .iter()
        .any(|unseen| unseen.reason == UnseenReason::Failed);
    match () {
        () if report.summary.stuck > 0 || !report.groups.is_empty() || failing => {
            Err(Failure::Found(STUCK))
        }
        () if !report.summary.complete => Err(Failure::Found(INCOMPLETE)),
        () => Ok(()),
    }
}

/// `belayer explain`.
///
/// # Errors
///
/// If the object cannot be read; and, with an exit code of its own, if it is stuck.
pub async fn run_explain(arguments: ExplainArguments) -> Result<(), Failure> {
    let (kind, name) = arguments.object()?;
    let (reader, current, server) = connect(&arguments.read.cluster).await?;
    let namespace = arguments.namespace.clone().unwrap_or(current);
    let own_namespace = arguments.read.own.name(&Sources::from_env())?;
    let belayer = explainers::belayer(&reader, &arguments.read, &own_namespace)?;
    let screen = Screen::of_stdout(arguments.read.output);
    let read_object = || {
        explain(
            &reader,
            (&kind, &name),
            &namespace,
            &belayer,
            Timestamp::now,
        )
    };
    let first = server.ask(&reader, async {
        match read_object().await {
            Ok(shown) => Ok(shown),
            Err(InspectError::Absent(what)) => {
                let record = explainers::record_of(&reader, &what, &namespace, &name).await;
                Err(absent(&what, record.as_deref()))
            }
            Err(error) => Err(failed(error, &server)),
        }
    });
    let mut shown = first.await?;
    show(&screen, &shown)?;
    if !arguments.watch {
        return verdict(&shown);
    }
    let mut failures = ReadFailures::default();
    let mut ended = std::pin::pin!(signals::next_end()?);
    loop {
        let read = async {
            tokio::time::sleep(WATCH).await;
            read_object().await
        };
        let read = tokio::select! {
            _ = &mut ended => return Ok(()),
            () = screen::reader_gone() => return Ok(()),
            read = read => read,
        };
        match read {
            Err(error) if failures.goes_on(&error, &server) => continue,
            Ok(now) if now.object.uid != shown.object.uid => {
                let what = place(&now.object);
                let sentence = format!("{what} is deleted; another object of this name exists.");
                return screen.conclude(&sentence);
            }
            Ok(now) if changes::of_explanation(&now, &shown) => {
                screen.separate()?;
                show(&screen, &now)?;
                shown = now;
            }
            Ok(_) => {}
            Err(InspectError::Absent(what)) => {
                return screen.conclude(&format!("{what} is deleted."));
            }
            Err(InspectError::UnknownKind(_)) => {
                let sentence = format!("{kind} {name} is deleted, and so is its kind.");
                return screen.conclude(&sentence);
            }
            Err(error) => return Err(failed(error, &server)),
        }
        failures = ReadFailures::default();
    }
}

/// A time in which a watch cannot read.
#[derive(Debug, Default)]
struct ReadFailures {
    is_reported: bool,
}

impl ReadFailures {
    /// Whether the same read may succeed later. Reports that once, on standard error.
    fn goes_on(&mut self, error: &InspectError, server: &Server) -> bool {
        let (InspectError::Discovery(error) | InspectError::Unreadable { error, .. }) = error
        else {
            return false;
        };
        let may_end = error.class().is_transient();
        if may_end && !self.is_reported {
            server.report(Some(&Trouble::from(error)));
            self.is_reported = true;
        }
        may_end
    }
}

/// `pods shop/web-0`, or `nodes node-1`.
fn place(object: &Subject) -> String {
    let Subject {
        resource,
        namespace,
        name,
        ..
    } = object;
    let key = if namespace.is_empty() {
        ObjectKey::cluster(name.as_str())
    } else {
        ObjectKey::new(namespace.as_str(), name.as_str())
    };
    format!("{resource} {key}")
}

fn verdict(explanation: &Explanation) -> Result<(), Failure> {
    if explanation.object.stuck {
        Err(Failure::Found(STUCK))
    } else {
        Ok(())
    }
}

fn show(screen: &Screen, explanation: &Explanation) -> Result<(), Failure> {
    screen.show(explanation, |screen| {
        text::explanation(explanation, Timestamp::now(), screen.style(), screen)
    })
}

/// Fails if the namespace does not exist: otherwise a mistyped name would look like a namespace without
/// problems. If it may not be read it may exist.
async fn must_exist(reader: &Reader, namespace: &str) -> Result<(), Failure> {
    let key = ObjectKey::cluster(namespace);
    let found: ReadResult<IgnoredAny> = reader.object(&Resource::namespaces(), &key).await;
    match found {
        ReadResult::Absent => Err(Failure::Error(anyhow::anyhow!(
            "namespace {namespace} does not exist"
        ))),
        ReadResult::Found(_) | ReadResult::Unknown(_) => Ok(()),
    }
}

/// The Lease of the leader election in the configuration; `None` if that is off.
fn lease(source: &Source, own_namespace: &str) -> Result<Option<String>, Failure> {
    let election = Election::resolve(&ElectionArguments::default(), source, own_namespace)?;
    Ok(election.map(|election| election.lease.to_string()))
}

pub(crate) async fn connect(
    cluster: &ClusterArguments,
) -> Result<(Reader, String, Server), Failure> {
    let config = cluster.find(&Sources::from_env()).await?;
    let server = Server::of(&config);
    let namespace = config.default_namespace.clone();
    let client = kubeconfig::connect(config)?;
    Ok((reader(client), namespace, server))
}

/// A reader with the limits of these commands.
pub(crate) fn reader(client: kube::Client) -> Reader {
    Reader::new(client, BOUNDS)
}

/// The error for a missing object. It names the record of a pod that is being re-created.
fn absent(what: &str, record: Option<&str>) -> Failure {
    let record = record.map_or_else(String::new, |key| {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        format!(
            "; see the record of its re-creation: belayer explain podrecreation/{name} -n {namespace}"
        )
    });
    Failure::Error(anyhow::anyhow!("{what} does not exist{record}"))
}

fn failed(error: InspectError, server: &Server) -> Failure {
    match error {
        InspectError::Discovery(error) => server.failed(&error),
        InspectError::UnknownKind(_) => Failure::configuration(error),
        error => Failure::Error(error.into()),
    }
}
