//! The explainers of the controllers of this build.

use std::sync::Arc;

use belayer_controller::{Configured, Site};
use belayer_core::object::Resource;
use belayer_holds::gate::GateObject;
use belayer_inspect::explain::Belayer;
use belayer_inspect::reader::Reader;

use super::lease;
use crate::arguments::ReadArguments;
use crate::config::Source;
use crate::exit::Failure;

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
    Ok(Belayer {
        explainers: configured
            .iter()
            .flat_map(|one| one.explainers(&site))
            .collect(),
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
