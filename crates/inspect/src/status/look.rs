//! The looks: metadata of the kinds that are held, the pods that run Belayer, its Lease, and the
//! Events by which it tells what it may not do.

use std::collections::{BTreeMap, HashSet};

use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;

use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::names;
use belayer_core::object::{ObjectKey, Resource};

use super::own::{ask, leader_of};
use super::{
    API_VERSION, Component, Hold, Installation, Leader, Numbers, Oldest, Place, Replica, Status,
    Versions,
};
use crate::evidence::lease;
use crate::object::Item;
use crate::reader::{Look, Reader, explain};
use crate::scan::METADATA_LIST;

/// Kinds that are listed at once.
const PARALLEL: usize = 4;

/// The Lease's name.
const LEASE: &str = "belayer";

/// What is asked.
#[derive(Debug, Clone)]
pub struct Query {
    /// Belayer's own namespace.
    pub own_namespace: String,
    /// Look at objects of this namespace only.
    pub namespace: Option<String>,
    /// What is held.
    pub holds: Vec<Hold>,
    /// Version of this command.
    pub client: &'static str,
}

/// Looks at a cluster.
///
/// # Errors
///
/// When the API server does not even say its version: then nothing can be known. A kind that
/// cannot be listed is part of the answer.
pub async fn status(
    reader: &Reader,
    query: &Query,
    clock: impl Fn() -> Timestamp,
) -> Result<Status, RequestError> {
    let server = reader.json::<Version>(&Request::get("/version")).await;
    let server = match server {
        Ok(version) => Some(version.git_version),
        // Not everybody may ask.
        Err(error) if error.api().is_some() => None,
        Err(error) => return Err(error),
    };
    let mut unknown = Vec::new();
    let denied = denied(reader, query.namespace.as_deref())
        .await
        .unwrap_or_else(|why| {
            unknown.push(format!("whether releases are denied: events: {why}"));
            HashSet::new()
        });
    let counted: Vec<_> = futures::stream::iter(&query.holds)
        .map(|hold| count(reader, hold, query.namespace.as_deref(), &denied))
        .buffered(PARALLEL)
        .collect()
        .await;
    let now = clock();
    let mut components: Vec<Component> = Vec::new();
    let mut namespaces: BTreeMap<(String, &'static str), Numbers> = BTreeMap::new();
    for (hold, counted) in query.holds.iter().zip(counted) {
        let at = match components
            .iter()
            .position(|known| known.component == hold.component)
        {
            Some(at) => at,
            None => {
                components.push(Component {
                    component: hold.component,
                    holds: Vec::new(),
                    numbers: Numbers::default(),
                    complete: true,
                    own: None,
                });
                components.len() - 1
            }
        };
        let component = &mut components[at];
        for finalizer in &hold.finalizers {
            if !component.holds.contains(finalizer) {
                component.holds.push(finalizer);
            }
        }
        let places = match counted {
            Ok(places) => places,
            Err(why) => {
                component.complete = false;
                unknown.push(format!(
                    "what {} holds: {}: {why}",
                    hold.component, hold.kind
                ));
                continue;
            }
        };
        for (namespace, mut numbers) in places {
            if let Some(oldest) = &mut numbers.oldest {
                let past = now.duration_since(oldest.deletion_timestamp).as_secs();
                oldest.age_seconds = past.max(0);
            }
            component.numbers.add(&numbers);
            namespaces
                .entry((namespace, hold.component))
                .or_default()
                .add(&numbers);
        }
    }
    let mut installation = installation(reader, &query.own_namespace, now, &mut unknown).await;
    let mut notes = Vec::new();
    notes.extend(draining(reader, &query.own_namespace).await);
    own(reader, &mut installation, &mut components, &mut notes).await;
    let mut namespaces: Vec<Place> = namespaces
        .into_iter()
        .map(|((namespace, component), numbers)| Place {
            namespace,
            component,
            numbers,
        })
        .collect();
    let since = |place: &Place| place.numbers.oldest.as_ref().map(|o| o.deletion_timestamp);
    namespaces.sort_by_key(|place| {
        // Those that wait first, the longest of them first of all.
        let since = since(place);
        (since.is_none(), since, place.namespace.clone())
    });
    let warnings = warnings(&installation, &components);
    Ok(Status {
        api_version: API_VERSION,
        kind: "Status",
        versions: Versions {
            server,
            client: query.client,
        },
        installation,
        components,
        namespaces,
        warnings,
        unknown,
        notes,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl Numbers {
    fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.denied += other.denied;
        let older = match (&self.oldest, &other.oldest) {
            (Some(a), Some(b)) => b.deletion_timestamp < a.deletion_timestamp,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if older {
            self.oldest.clone_from(&other.oldest);
        }
    }
}

type Places = BTreeMap<String, Numbers>;

/// Counts the holds of one component on one kind, by namespace.
async fn count(
    reader: &Reader,
    hold: &Hold,
    namespace: Option<&str>,
    denied: &HashSet<String>,
) -> Result<Places, String> {
    let mut places = Places::new();
    let mut listed = list(reader, hold, namespace, denied, &mut places).await;
    // The pages took longer than the server keeps a version: once more from the start.
    if matches!(&listed, Err(error) if error.class() == ErrorClass::Gone) {
        places.clear();
        listed = list(reader, hold, namespace, denied, &mut places).await;
    }
    match listed {
        Ok(()) => Ok(places),
        // A kind that is not installed has no objects.
        Err(error) if error.class() == ErrorClass::NotServed => Ok(Places::new()),
        Err(error) => Err(explain(&error)),
    }
}

async fn list(
    reader: &Reader,
    hold: &Hold,
    namespace: Option<&str>,
    denied: &HashSet<String>,
    places: &mut Places,
) -> Result<(), RequestError> {
    let path = hold.kind.path(namespace);
    reader
        .pages(&path, METADATA_LIST, |answer| {
            let read = serde_json::from_slice::<Page<'_>>(&answer.body)
                .map_err(|error| RequestError::Decode(error.to_string()))
                .and_then(|page| {
                    let items = page.items.ok_or_else(|| {
                        RequestError::Decode("a list without its items".to_owned())
                    })?;
                    for item in &items {
                        note(hold, item, denied, places);
                    }
                    Ok(page.metadata.continue_token)
                });
            async move { read }
        })
        .await
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<Item<'a>>>,
}

#[derive(Deserialize, Default)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
}

fn note(hold: &Hold, item: &Item<'_>, denied: &HashSet<String>, places: &mut Places) {
    let meta = &item.metadata;
    let mut finalizers = meta.finalizers.iter().flatten();
    if !finalizers.any(|name| hold.finalizers.contains(&&**name)) {
        return;
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let numbers = places.entry(namespace.to_owned()).or_default();
    numbers.held += 1;
    let Some(since) = meta.deletion_timestamp else {
        return;
    };
    numbers.waiting += 1;
    if denied.contains(&*meta.uid) {
        numbers.denied += 1;
    }
    let older = numbers
        .oldest
        .as_ref()
        .is_none_or(|oldest| since < oldest.deletion_timestamp);
    if older {
        numbers.oldest = Some(Oldest {
            resource: hold.kind.to_string(),
            namespace: namespace.to_owned(),
            name: (*meta.name).to_owned(),
            deletion_timestamp: since,
            age_seconds: 0,
        });
    }
}

/// UIDs of objects whose release was refused, by the Events that say so. Those live for an hour,
/// and are written anew as long as the refusal lasts.
async fn denied(reader: &Reader, namespace: Option<&str>) -> Result<HashSet<String>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        #[serde(default)]
        reason: String,
        #[serde(default)]
        involved_object: Involved,
    }
    #[derive(Deserialize, Default)]
    struct Involved {
        #[serde(default)]
        uid: String,
    }
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Event>>,
    }
    let path = match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/events"),
        None => "/api/v1/events".to_owned(),
    };
    let request = Request::get(path).query("fieldSelector", "reason=ReleaseDenied");
    let list: List = reader
        .json(&request)
        .await
        .map_err(|error| explain(&error))?;
    Ok(list
        .items
        .ok_or("the answer is no list")?
        .into_iter()
        .filter(|event| event.reason == "ReleaseDenied")
        .map(|event| event.involved_object.uid)
        .collect())
}

/// Whether the gate says that no hold is to be added any more.
async fn draining(reader: &Reader, namespace: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Gate {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let maps = Resource::config_maps();
    let key = ObjectKey::new(namespace, names::GATE_CONFIG_MAP);
    // What cannot be seen here is no news: the switch is nearly always where it should be.
    let look = reader.object::<Gate>(&maps, &key).await;
    let mode = look.found()?.data.get("mode")?;
    (mode == "draining").then(|| {
        format!("configmap {key} says draining: no hold is added until it says normal again")
    })
}

async fn installation(
    reader: &Reader,
    namespace: &str,
    now: Timestamp,
    unknown: &mut Vec<String>,
) -> Installation {
    let leader = match lease(reader, format!("{namespace}/{LEASE}")).await {
        Look::Found(lease) => leader_of(&lease, now),
        Look::Absent => None,
        Look::Unknown(why) => {
            unknown.push(format!("who leads: lease {namespace}/{LEASE}: {why}"));
            None
        }
    };
    let pods = match replicas(reader, namespace, leader.as_ref()).await {
        Ok(pods) => Some(pods),
        Err(why) => {
            unknown.push(format!(
                "which pods run Belayer: pods of {namespace}: {why}"
            ));
            None
        }
    };
    Installation {
        namespace: namespace.to_owned(),
        leader,
        pods,
    }
}

async fn replicas(
    reader: &Reader,
    namespace: &str,
    leader: Option<&Leader>,
) -> Result<Vec<Replica>, String> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Pod>>,
    }
    #[derive(Deserialize)]
    struct Pod {
        metadata: Metadata,
        #[serde(default)]
        spec: Spec,
        #[serde(default)]
        status: PodStatus,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    #[derive(Deserialize, Default)]
    struct Spec {
        #[serde(default)]
        containers: Vec<Container>,
    }
    #[derive(Deserialize)]
    struct Container {
        #[serde(default)]
        image: String,
    }
    #[derive(Deserialize, Default)]
    struct PodStatus {
        #[serde(default)]
        conditions: Option<Vec<Condition>>,
    }
    #[derive(Deserialize)]
    struct Condition {
        #[serde(rename = "type")]
        kind: String,
        status: String,
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let request = Request::get(path).query("labelSelector", "app.kubernetes.io/name=belayer");
    let list: List = reader
        .json(&request)
        .await
        .map_err(|error| explain(&error))?;
    let mut replicas: Vec<Replica> = list
        .items
        .ok_or("the answer is no list")?
        .into_iter()
        // The node agent runs beside, and never leads.
        .filter(|pod| !pod.metadata.labels.contains_key("belayer.dev/node-agent"))
        .map(|pod| Replica {
            ready: pod
                .status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.kind == "Ready" && condition.status == "True"),
            leads: leader.is_some_and(|leader| !leader.lapsed && is(leader, &pod.metadata.name)),
            version: pod
                .spec
                .containers
                .first()
                .map_or_else(String::new, |container| tag(&container.image)),
            name: pod.metadata.name,
        })
        .collect();
    replicas.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(replicas)
}

/// An identity is the pod's name, perhaps with something behind it.
fn is(leader: &Leader, pod: &str) -> bool {
    match leader.identity.strip_prefix(pod) {
        Some("") => true,
        Some(rest) => rest.starts_with(['_', '/', '.']),
        None => false,
    }
}

/// `0.1.0` of `registry.example/belayer/belayer:0.1.0`; the digest of one that has only that.
pub(super) fn tag(image: &str) -> String {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag.to_owned(),
        (None, Some(digest)) => digest.chars().take("sha256:".len() + 12).collect(),
        (None, None) => "latest".to_owned(),
    }
}

/// What only the process knows that works: the leader, or the only one where nobody is elected.
async fn own(
    reader: &Reader,
    installation: &mut Installation,
    components: &mut [Component],
    notes: &mut Vec<String>,
) {
    let elected = installation.leader.is_some();
    let pods = installation.pods.iter_mut().flatten();
    let mut asked: Vec<&mut Replica> = pods
        .filter(|pod| pod.ready && (pod.leads || !elected))
        .collect();
    let [pod] = asked.as_mut_slice() else {
        return;
    };
    match ask(reader, &installation.namespace, &pod.name).await {
        Ok(said) => {
            if let Some(version) = said.version {
                pod.version = version;
            }
            for component in components {
                component.own = said.own.get(component.component).copied();
            }
        }
        Err(why) => notes.push(format!(
            "what pod {} counts itself (missed, kept back, gate): its metrics by the API server's proxy: {why}",
            pod.name
        )),
    }
}

fn warnings(installation: &Installation, components: &[Component]) -> Vec<String> {
    let mut warnings = Vec::new();
    let held: u64 = components.iter().map(|each| each.numbers.held).sum();
    let namespace = &installation.namespace;
    let none_ready = installation
        .pods
        .as_ref()
        .is_some_and(|pods| !pods.iter().any(|pod| pod.ready));
    match &installation.leader {
        _ if none_ready && held > 0 => warnings.push(format!(
            "{held} objects are held and no pod in {namespace} is ready to release them: make one run, or \
             `belayer drain` takes every hold off"
        )),
        Some(leader) if leader.lapsed && held > 0 => warnings.push(format!(
            "nobody leads: {} has not renewed lease {namespace}/{LEASE} in time",
            leader.identity
        )),
        _ => {}
    }
    for component in components {
        let name = component.component;
        let Numbers { denied, .. } = component.numbers;
        if denied > 0 {
            warnings.push(format!(
                "{name} may not release {denied}: an Event ReleaseDenied on each says why; \
                 `belayer check --service-account` names rights that are missing"
            ));
        }
        let Some(own) = component.own else { continue };
        if own.unselected_kept > 0 {
            warnings.push(format!(
                "{name} keeps {} holds back: so many unselected objects at once look like a mistyped selector; \
                 if it is meant, `belayer drain --unselected` releases them",
                own.unselected_kept
            ));
        }
        if own.backlog_gate_closed {
            warnings.push(format!(
                "{name} adds no holds: its backlog gate is closed until enough of what waits is released"
            ));
        }
    }
    warnings
}
