//! The explainers of the controllers of this build.

use std::sync::Arc;

use belayer_controller::{Configured, Site};
use belayer_core::object::Resource;
use belayer_holds::gate::GateObject;
use belayer_inspect::explain::{Belayer, ExplainError, Explainer, Explaining};
use belayer_inspect::preflight::with_configuration_file;
use belayer_inspect::reader::Reader;
use futures::FutureExt as _;
use tokio::sync::OnceCell;

use super::lease;
use crate::arguments::ReadArguments;
use crate::config::Source;
use crate::exit::Failure;

/// The rule of an object that is held and not selected, in the tables of all controllers that select.
const UNSELECTED: &str = "unselected";

/// The controllers of this build, for a Belayer in `own_namespace`.
///
/// # Errors
///
/// If the configuration is invalid.
pub(super) fn belayer(
    reader: &Reader,
    arguments: &ReadArguments,
    own_namespace: &str,
) -> Result<Belayer, Failure> {
    let source = arguments.source()?;
    let config = arguments.config.as_deref();
    let configured = source.configured().map_err(Failure::configuration)?;
    let owners: Vec<Resource> = configured
        .iter()
        .flat_map(|one| one.needs().owners)
        .collect();
    let site = Site {
        reader,
        namespace: own_namespace,
        config,
        owners: &owners,
    };
    let explainers = configured.iter().flat_map(|one| one.explainers(&site));
    Ok(Belayer {
        explainers: match config {
            Some(_) => explainers.collect(),
            None => {
                let deployment = Arc::default();
                explainers
                    .map(|one| without_a_file(one, own_namespace, Arc::clone(&deployment)))
                    .collect()
            }
        },
        lease: lease(&source, own_namespace)?,
        gate: Some(GateObject::key(own_namespace)),
        switches: configured
            .iter()
            .map(|one| (one.controller().name, one.controller().switch))
            .collect(),
        config: config.map(|path| path.display().to_string()),
        known: Arc::default(),
    })
}

/// An explainer by the default configuration. It does not prove that nothing selects an object that Belayer holds if Belayer
/// runs with a configuration file: that may select it. The `deployment` with such a file is read once for all objects.
fn without_a_file(
    explainer: Explainer,
    own_namespace: &str,
    deployment: Arc<OnceCell<Option<String>>>,
) -> Explainer {
    let explain = explainer.explain;
    let namespace: Arc<str> = own_namespace.into();
    let explain = move |kind, key, reader: Reader| -> Explaining {
        let (explained, namespace) = (explain(kind, key, reader.clone()), Arc::clone(&namespace));
        let deployment = Arc::clone(&deployment);
        async move {
            let explained = explained.await?;
            if !explained.held || explained.row.name != UNSELECTED {
                return Ok(explained);
            }
            let read = || with_configuration_file(&reader, &namespace);
            match deployment.get_or_init(read).await {
                Some(name) => Err(ExplainError::NotTheConfiguration {
                    deployment: format!("{namespace}/{name}"),
                }),
                None => Ok(explained),
            }
        }
        .boxed()
    };
    Explainer {
        explain: Box::new(explain),
        ..explainer
    }
}

/// Number of objects that this controller keeps held although they are not selected any more; `None` if it never
/// keeps any.
pub(super) async fn kept(
    reader: &Reader,
    source: &Source,
    controller: &str,
) -> Option<anyhow::Result<usize>> {
    let configured = match source.configured() {
        Ok(configured) => configured,
        Err(error) => return Some(Err(error.into())),
    };
    let one = configured
        .into_iter()
        .find(|one| one.controller().name == controller)?;
    one.kept(reader).await.map(|kept| Ok(kept?))
}

/// `namespace/name` of the newest record of a pod that does not exist.
pub(super) async fn record_of(
    reader: &Reader,
    what: &str,
    namespace: &str,
    pod: &str,
) -> Option<String> {
    if !what.starts_with("pods ") {
        return None;
    }
    let configured: Vec<Arc<dyn Configured>> = Source::default().configured().ok()?;
    for one in configured {
        if let Some(record) = one.record_of(reader, namespace, pod).await {
            return Some(record);
        }
    }
    None
}
