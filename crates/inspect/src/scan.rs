//! The scan: lists every kind, metadata only, in pages, several kinds concurrently.
//! [`Inspector`](crate::Inspector) scans all kinds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use jiff::Timestamp;

use belayer_core::http::{
    Answer, ErrorClass, METADATA_ONLY, METADATA_ONLY_LIST, Request, RequestError,
};
use belayer_core::object::ObjectKey;

use crate::kinds::{DeadApi, Discovered, Kind};
use crate::object::{Item, ObjectRef, Terminating};
use crate::reader::{Page, Reader, again_if_expired};
use crate::report::{Unseen, UnseenReason};

/// Kinds that are listed concurrently.
const PARALLEL: usize = 8;

/// Names kept per kind and namespace.
const SAMPLES: usize = 3;

/// The namespaces to read. Part of a [`Query`](crate::Query); without it, as in the [crate's
/// example](crate), the whole cluster is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster.
    #[default]
    Cluster,
    /// One namespace, and the namespace itself.
    Namespace(String),
}

/// Receives the progress of the scan. [`Inspector`](crate::Inspector) reports to it.
pub trait Progress: Send + Sync {
    /// Kinds were found.
    fn kinds(&self, _count: usize) {}
    /// A kind has been listed; `_objects` is the total so far.
    fn listed(&self, _kind: &Kind, _objects: u64) {}
}

/// Ignores the progress. The progress of the [crate's example](crate).
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}

/// The objects of one kind in one namespace. Part of a [`Report`](crate::Report)'s evidence: how
/// many objects were seen, whether stuck or not. A scan is part of every
/// [report](crate::text::report).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Population {
    /// Their number.
    pub count: u64,
    /// Some of their names.
    pub samples: Vec<String>,
}

/// The result of the scan. [`Inspector`](crate::Inspector) diagnoses it.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// The kinds that were listed.
    pub kinds: Vec<Arc<Kind>>,
    /// All objects with a deletion timestamp.
    pub terminating: Vec<Terminating>,
    /// Objects that block the deletion of an owner, by the owner's UID.
    pub dependents: HashMap<String, Vec<ObjectRef>>,
    /// Objects by namespace (empty for cluster-scoped kinds) and kind.
    pub population: BTreeMap<String, BTreeMap<String, Population>>,
    /// Kinds that could not be listed.
    pub unseen: Vec<Unseen>,
    /// Number of objects that were listed.
    pub objects: u64,
}

/// The result for one kind.
#[derive(Default)]
struct Part {
    terminating: Vec<Terminating>,
    dependents: Vec<(String, ObjectRef)>,
    population: BTreeMap<String, Population>,
    objects: u64,
}

/// Lists every kind whose objects can be deleted: the controllers of Kubernetes wait for no other.
/// [`Inspector`](crate::Inspector) calls it.
pub async fn scan(
    reader: &Reader,
    discovered: &Discovered,
    scope: &Scope,
    progress: &dyn Progress,
) -> Scan {
    let kinds: Vec<_> = discovered
        .kinds
        .iter()
        .filter(|kind| kind.deletable && (*scope == Scope::Cluster || kind.namespaced))
        .cloned()
        .collect();
    progress.kinds(kinds.len());
    let total = AtomicU64::new(0);
    let parts: Vec<_> = futures::stream::iter(kinds)
        .map(|kind| {
            let total = &total;
            async move {
                let part = list(reader, &kind, scope).await;
                let objects = part.as_ref().map_or(0, |part| part.objects);
                let sum = total.fetch_add(objects, Ordering::Relaxed) + objects;
                progress.listed(&kind, sum);
                (kind, part)
            }
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let mut scan = merge(parts);
    scan.unseen.extend(discovered.dead.iter().map(dead));
    if let Scope::Namespace(name) = scope {
        add_namespace(reader, discovered, name, &mut scan).await;
    }
    sort(&mut scan);
    scan
}

fn dead(api: &DeadApi) -> Unseen {
    Unseen {
        resource: api.group_version.clone(),
        reason: UnseenReason::Failed,
        message: api.why.clone(),
        cluster_scoped: false,
    }
}

fn merge(parts: Vec<(Arc<Kind>, Result<Part, RequestError>)>) -> Scan {
    let mut scan = Scan::default();
    for (kind, part) in parts {
        match part {
            Ok(part) => {
                scan.objects += part.objects;
                scan.terminating.extend(part.terminating);
                for (owner, object) in part.dependents {
                    scan.dependents.entry(owner).or_default().push(object);
                }
                for (namespace, population) in part.population {
                    let kinds = scan.population.entry(namespace).or_default();
                    kinds.insert(kind.name(), population);
                }
                scan.kinds.push(kind);
            }
            // The kind was deleted after discovery: it has no objects.
            Err(error) if error.class() == ErrorClass::NotServed => {}
            Err(error) => scan.unseen.push(Unseen {
                cluster_scoped: !kind.namespaced,
                ..Unseen::new(kind.name(), &error)
            }),
        }
    }
    scan
}

/// Makes the order independent of the order of the answers.
fn sort(scan: &mut Scan) {
    scan.kinds.sort_by_key(|kind| kind.name());
    scan.unseen.sort_by(|a, b| a.resource.cmp(&b.resource));
    let place = |object: &ObjectRef| (object.kind.name(), object.key.clone());
    scan.terminating.sort_by_key(|found| place(&found.object));
    for dependents in scan.dependents.values_mut() {
        dependents.sort_by_key(place);
    }
}

/// Adds the namespace itself to a scan of one namespace.
async fn add_namespace(reader: &Reader, discovered: &Discovered, name: &str, scan: &mut Scan) {
    let Some(kind) = discovered
        .kinds
        .iter()
        .find(|kind| kind.resource.group.is_empty() && *kind.resource.plural == *"namespaces")
    else {
        return;
    };
    let key = ObjectKey::cluster(name);
    let found = match get_terminating(reader, kind, &key).await {
        Err(error) if error.is_gone(&kind.resource, &key) => return,
        // A role may allow to list namespaces and not to read one.
        Err(error) if error.class() == ErrorClass::Forbidden => {
            list_terminating(reader, kind, name).await
        }
        read => read,
    };
    match found {
        Ok(found) => scan.terminating.extend(found),
        Err(error) => scan.unseen.push(Unseen {
            cluster_scoped: true,
            ..Unseen::new(format!("{} {name}", kind.name()), &error)
        }),
    }
}

/// Reads one object; `None` if it is not being deleted.
async fn get_terminating(
    reader: &Reader,
    kind: &Arc<Kind>,
    key: &ObjectKey,
) -> Result<Option<Terminating>, RequestError> {
    let request = Request::get(kind.resource.object_path(key)).accept(METADATA_ONLY);
    let answer = reader.read(&request).await?;
    let item: Item<'_> = serde_json::from_slice(&answer.body)
        .map_err(|error| RequestError::Decode(error.to_string()))?;
    Ok(item.metadata.terminating(kind))
}

/// The same by a list that selects the object by its name.
async fn list_terminating(
    reader: &Reader,
    kind: &Arc<Kind>,
    name: &str,
) -> Result<Option<Terminating>, RequestError> {
    let request = Request::get(kind.resource.path(None))
        .accept(METADATA_ONLY_LIST)
        .query("fieldSelector", format!("metadata.name={name}"));
    let answer = reader.read(&request).await?;
    let page: Page<Item<'_>> = Page::read(&answer)?;
    let mut items = page.items.iter().flatten();
    let found = items.find(|item| *item.metadata.name == *name);
    Ok(found.and_then(|item| item.metadata.terminating(kind)))
}

async fn list(reader: &Reader, kind: &Arc<Kind>, scope: &Scope) -> Result<Part, RequestError> {
    let path = match scope {
        Scope::Cluster => kind.resource.path(None),
        Scope::Namespace(name) => kind.resource.path(Some(name)),
    };
    again_if_expired(|| async {
        let mut part = Part::default();
        reader
            .pages(&path, METADATA_ONLY_LIST, None, |answer| {
                part.take(kind, answer)
            })
            .await?;
        Ok(part)
    })
    .await
}

impl Part {
    fn take(&mut self, kind: &Arc<Kind>, answer: &Answer) -> Result<Option<String>, RequestError> {
        let page: Page<Item<'_>> = Page::read(answer)?;
        for item in page.items.iter().flatten() {
            self.note(kind, item);
        }
        Ok(page.metadata.continue_token)
    }

    fn note(&mut self, kind: &Arc<Kind>, item: &Item<'_>) {
        let meta = &item.metadata;
        self.objects += 1;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        // No allocation for the many objects of a known namespace.
        match self.population.get_mut(namespace) {
            Some(population) => population.count(&meta.name),
            None => {
                let mut population = Population::default();
                population.count(&meta.name);
                self.population.insert(namespace.to_owned(), population);
            }
        }
        for owner in meta.owner_references.iter().flatten() {
            if owner.block_owner_deletion == Some(true) {
                self.dependents
                    .push(((*owner.uid).to_owned(), meta.object(kind)));
            }
        }
        self.terminating.extend(meta.terminating(kind));
    }
}

impl Population {
    fn count(&mut self, name: &str) {
        self.count += 1;
        if self.samples.len() < SAMPLES {
            self.samples.push(name.to_owned());
        }
    }
}

impl Scan {
    /// Total number of objects of a kind.
    pub fn total(&self, kind: &str) -> u64 {
        self.population
            .values()
            .filter_map(|kinds| kinds.get(kind))
            .map(|population| population.count)
            .sum()
    }

    /// The object of this UID, if it is being deleted.
    pub fn terminating_with(&self, uid: &str) -> Option<&Terminating> {
        self.terminating
            .iter()
            .find(|found| found.object.uid.as_str() == uid)
    }

    /// The objects past their grace period for at least `older_than` whose labels match.
    pub fn stuck<'a>(
        &'a self,
        now: Timestamp,
        older_than: std::time::Duration,
        selector: &'a belayer_holds::selection::Selector,
    ) -> impl Iterator<Item = &'a Terminating> {
        self.terminating.iter().filter(move |found| {
            let past = now.duration_since(found.since);
            !past.is_negative()
                && past.unsigned_abs() >= older_than
                && selector.matches(&found.labels)
        })
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::executor::Bounds;
    use belayer_core::object::Resource;
    use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};

    use super::*;

    /// Neither the namespace controller nor the garbage collector waits for its objects.
    #[tokio::test]
    async fn a_kind_whose_objects_cannot_be_deleted_is_not_listed() {
        let sandbox = Sandbox::builder().build();
        sandbox
            .load_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
            .unwrap();
        let secrets = Match::verb(Verb::List).resource("secrets");
        let no = Fault::on(secrets).answer(Answer::forbidden("no"));
        sandbox.faults().inject(no);
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let kinds = [
            Resource::config_maps(),
            Resource::new("", "v1", "Secret", "secrets"),
        ];
        for deletable in [true, false] {
            let kinds = kinds.iter().map(|resource| {
                Arc::new(Kind {
                    resource: resource.clone(),
                    versions: Vec::new(),
                    namespaced: true,
                    singular: String::new(),
                    short_names: Vec::new(),
                    deletable,
                })
            });
            let discovered = Discovered {
                kinds: kinds.collect(),
                dead: Vec::new(),
            };
            let found = scan(&reader, &discovered, &Scope::Cluster, &Silent).await;
            let seen = (found.total("configmaps"), found.unseen.len());
            assert_eq!(seen, if deletable { (1, 1) } else { (0, 0) });
        }
    }
}
