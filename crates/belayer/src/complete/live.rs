//! Candidates from the cluster, with the kubeconfig of the command line.

use std::path::Path;
use std::time::Duration;

use belayer_core::http::{METADATA_ONLY_LIST, Request};
use belayer_core::object::Resource;
use belayer_inspect::kinds::discover;
use belayer_inspect::reader::{PAGE, Reader};
use serde::Deserialize;

use super::Candidate;
use super::line::{Line, Wanted};
use crate::arguments::{ClusterArguments, namespace};
use crate::inspect::connect;
use crate::kubeconfig::{Sources, contexts};

/// Someone waits at a prompt.
const WITHIN: Duration = Duration::from_secs(3);

/// What the cluster has; nothing if it cannot be read in time.
pub(super) async fn find(line: &Line<'_>, wanted: &Wanted) -> Vec<Candidate> {
    let found = tokio::time::timeout(WITHIN, read(line, wanted)).await;
    found.ok().flatten().unwrap_or_default()
}

async fn read(line: &Line<'_>, wanted: &Wanted) -> Option<Vec<Candidate>> {
    let file = line.value("kubeconfig").map(Path::new);
    let cluster = ClusterArguments {
        kubeconfig: file.map(Into::into),
        context: line.value("context").map(Into::into),
    };
    let connected = async || connect(&cluster).await.ok();
    match wanted {
        Wanted::Contexts => {
            let contexts = contexts(file, &Sources::from_env());
            Some(contexts.into_iter().map(Candidate::new).collect())
        }
        Wanted::Namespaces => names(&connected().await?.0, &Resource::namespaces(), None).await,
        Wanted::Kinds => kinds(&connected().await?.0).await,
        Wanted::Names(kind) => {
            let (reader, current, _) = connected().await?;
            let discovered = discover(&reader).await.ok()?;
            let kind = discovered.find(kind)?;
            let place = namespace(line.value("namespace").unwrap_or(&current)).ok()?;
            names(&reader, &kind.resource, kind.namespaced.then_some(&*place)).await
        }
    }
}

/// The kinds that can be listed, as kubectl names them.
async fn kinds(reader: &Reader) -> Option<Vec<Candidate>> {
    let discovered = discover(reader).await.ok()?;
    let kinds = discovered.kinds.iter();
    Some(kinds.map(|kind| Candidate::new(kind.name())).collect())
}

/// The first page of names.
async fn names(
    reader: &Reader,
    kind: &Resource,
    namespace: Option<&str>,
) -> Option<Vec<Candidate>> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Object>,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    let request = Request::get(kind.path(namespace))
        .query("limit", PAGE.to_string())
        .accept(METADATA_ONLY_LIST);
    let list: List = reader.json(&request).await.ok()?;
    let names = list.items.into_iter().map(|object| object.metadata.name);
    Some(names.map(Candidate::new).collect())
}
