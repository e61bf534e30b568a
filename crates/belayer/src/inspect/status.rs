//! `belayer status`.

use jiff::Timestamp;

use belayer_core::events::namespace_of_events;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::{self, GateObject};
use belayer_inspect::reader::{Reader, explain};
use belayer_inspect::status::{Hold, Kept, Query, Status, reported, status, text};

use super::arguments::StatusArguments;
use super::{INCOMPLETE, connect, explainers, lease, must_exist, serve};
use crate::config::Source;
use crate::exit::Failure;
use crate::kubeconfig::Sources;
use crate::screen::Screen;

/// Exit code if something requires action: a release is denied, holds are kept back, or no replica can
/// release.
pub(super) const NEEDS_ACTION: u8 = 3;

/// `belayer status`.
///
/// # Errors
///
/// If the cluster cannot be reached; and, with an exit code of its own, if something requires action.
pub async fn run_status(arguments: StatusArguments) -> Result<(), Failure> {
    let source = arguments.read.source()?;
    let (reader, _, server) = connect(&arguments.read.cluster).await?;
    let own_namespace = arguments.read.own.name(&Sources::from_env())?;
    let lease = lease(&source, &own_namespace)?;
    let query = Query {
        namespace: arguments.namespace,
        objects: arguments.serve.as_ref().map_or(0, |_| serve::OBJECTS),
        ..query(&source, own_namespace, lease)?
    };
    if let Some(address) = &arguments.serve {
        return serve::run(reader, query, address).await;
    }
    let found = server.ask(&reader, async {
        if let Some(namespace) = &query.namespace {
            must_exist(&reader, namespace).await?;
        }
        let found = status(&reader, &query, Timestamp::now).await;
        let mut found = found.map_err(|error| server.failed(&error))?;
        let by = arguments.read.config.is_some().then_some(&source);
        query_the_cluster(&reader, by, &query, &mut found).await;
        Ok(found)
    });
    let found = found.await?;
    let screen = Screen::of_stdout(arguments.read.output);
    screen.show(&found, |screen| text(&found, screen.style(), screen))?;
    match () {
        () if found.needs_attention() => Err(Failure::Found(NEEDS_ACTION)),
        () if !found.is_complete() => Err(Failure::Found(INCOMPLETE)),
        () => Ok(()),
    }
}

/// The query of the status page for all namespaces.
///
/// # Errors
///
/// If the configuration is invalid.
pub(crate) fn query(
    source: &Source,
    own_namespace: String,
    lease: Option<String>,
) -> Result<Query, Failure> {
    Ok(Query {
        lease,
        own_namespace,
        namespace: None,
        holds: holds(source)?,
        config: source.path().map(|path| path.display().to_string()),
        client: env!("CARGO_PKG_VERSION"),
        objects: serve::OBJECTS,
    })
}

/// An object of Belayer's: its kind, and its key for a Belayer in this namespace.
type OwnObject = (fn() -> Resource, fn(&str) -> ObjectKey);

/// The controllers that keep unselected objects held, and the object on which each records the Event about it. Each has a separate
/// object, because a second Event of one reason on one object is left out for some minutes: the Event of one controller
/// would suppress that of the other.
const HELD_BACK_EVENTS: [(&str, OwnObject); 2] = [
    ("pod-finalizer", (gate::resource, GateObject::key)),
    (
        "workflow-finalizer",
        (Resource::namespaces, |own| ObjectKey::cluster(own)),
    ),
];

/// Determines which holds are kept back if no running Belayer could be queried: from its configuration if given,
/// otherwise from its Events.
async fn query_the_cluster(
    reader: &Reader,
    by: Option<&Source>,
    query: &Query,
    found: &mut Status,
) {
    let own_namespace = &query.own_namespace;
    for (component, (kind, key)) in HELD_BACK_EVENTS {
        if !found.needs_count(component) {
            continue;
        }
        let kept = match by {
            Some(source) => match explainers::kept(reader, source, component).await {
                Some(Ok(count)) => Kept::Counted(u64::try_from(count).unwrap_or(u64::MAX)),
                Some(Err(error)) => Kept::Unknown(error.to_string()),
                None => continue,
            },
            None => match reported(reader, &kind(), &key(own_namespace)).await {
                Ok(Some(message)) => Kept::Reported(message),
                Ok(None) => Kept::Unknown(
                    "could not query a pod of Belayer; with --config FILE, status counts the unselected \
                     objects itself"
                        .to_owned(),
                ),
                Err(error) => Kept::Unknown(format!(
                    "events of {}: {}",
                    namespace_of_events(&key(own_namespace)),
                    explain(&error)
                )),
            },
        };
        found.note_kept(component, kept, query);
    }
}

/// The holds of the controllers of this build under the configuration. An invalid configuration is an error
/// even if the invalid key does not affect finalizers.
fn holds(source: &Source) -> Result<Vec<Hold>, Failure> {
    let configured = source.configured().map_err(Failure::configuration)?;
    let holds = configured.iter().flat_map(|one| {
        let component = one.controller().name;
        one.holds().into_iter().map(move |hold| Hold {
            component,
            finalizers: hold.finalizers,
            kind: hold.kind,
        })
    });
    Ok(holds.collect())
}
