//! Combines the reads into a [`Status`]: what is held where, by which component, and warnings.

use std::collections::{BTreeMap, HashSet};

use futures::StreamExt as _;
use jiff::Timestamp;

use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::object::ObjectKey;
use belayer_core::words::one_or_many;
use belayer_holds::gate::GateObject;
use belayer_holds::names;

use super::count::{count, denied};
use super::installation::{installation, own};
use super::{
    API_VERSION, Component, HeldObject, Installation, Numbers, Place, Query, Status, Versions,
};
use crate::reader::{Reader, explain};
use crate::untrusted::word;

/// Kinds that are listed at once.
const PARALLEL: usize = 4;

/// Reads the status of Belayer in a cluster. The [module's example](crate::status) prints it.
///
/// # Errors
///
/// As [`Reader::server_version`]. A kind that cannot be listed is part of the answer.
pub async fn status(
    reader: &Reader,
    query: &Query,
    clock: impl Fn() -> Timestamp,
) -> Result<Status, RequestError> {
    let (status, _) = with_objects(reader, query, clock).await?;
    Ok(status)
}

/// The same, with the held objects that the query asks for.
pub(super) async fn with_objects(
    reader: &Reader,
    query: &Query,
    clock: impl Fn() -> Timestamp,
) -> Result<(Status, Vec<HeldObject>), RequestError> {
    let server = reader.server_version().await?;
    let mut unknown = Vec::new();
    let denied = denied(reader, query.namespace.as_deref())
        .await
        .unwrap_or_else(|error| {
            let why = explain(&error);
            unknown.push(format!("whether releases are denied: events: {why}"));
            HashSet::new()
        });
    let counts: Vec<_> = query
        .holds
        .iter()
        .map(|hold| count(reader, hold, query, &denied))
        .collect();
    let counted: Vec<_> = futures::stream::iter(counts)
        .buffered(PARALLEL)
        .collect()
        .await;
    let now = clock();
    let mut components: Vec<Component> = Vec::new();
    let mut objects = Vec::new();
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
            Ok(counted) => {
                objects.extend(counted.objects);
                counted.places
            }
            Err(error) => {
                component.complete = false;
                unknown.push(format!(
                    "what {} holds: {}: {}",
                    hold.component,
                    hold.kind,
                    explain(&error)
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
    let mut notes = Vec::new();
    let key = GateObject::key(&query.own_namespace);
    let gate = gate(reader, &key).await.unwrap_or_else(|error| {
        let why = explain(&error);
        unknown.push(format!(
            "whether holds may be added, and which other Leases there are: gate {key}: {why}"
        ));
        GateObject::default()
    });
    let mut installation = installation(reader, query, &gate, now, &mut unknown).await;
    if gate.is_draining() {
        notes.push(format!(
            "gate {key}: mode is draining: no hold is added until it is normal again"
        ));
    }
    let only = query.namespace.as_deref();
    let closed = gate
        .closed()
        .filter(|(namespace, _)| only.is_none_or(|only| only == *namespace));
    let closed: BTreeMap<&str, &str> = closed.collect();
    let all_closed = gate.is_closed_by_backlog();
    let asked = own(reader, &mut installation, &mut components, &mut notes).await;
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
        // Namespaces with waiting deletions first, the oldest deletion first.
        let since = since(place);
        (since.is_none(), since, place.namespace.clone())
    });
    let mut warnings = warnings(query, &installation, &components, all_closed);
    warnings.extend(closed_by_backlog(all_closed, &closed));
    notes.extend(closed_by_hand(&closed));
    let status = Status {
        api_version: API_VERSION,
        kind: "Status",
        versions: Versions {
            server,
            client: query.client,
        },
        namespace: query.namespace.clone(),
        installation,
        components,
        namespaces,
        closed_namespaces: closed.into_keys().map(str::to_owned).collect(),
        warnings,
        unknown,
        notes,
        asked,
    };
    Ok((status, objects))
}

/// The gate; one without keys if there is none, or if its kind is not installed.
async fn gate(reader: &Reader, key: &ObjectKey) -> Result<GateObject, RequestError> {
    let path = belayer_holds::gate::resource().object_path(key);
    match reader.json(&Request::get(path)).await {
        Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => {
            Ok(GateObject::default())
        }
        read => read,
    }
}

/// At most this many namespaces are named.
const NAMED: usize = 5;

fn closed_by_backlog(all: bool, closed: &BTreeMap<&str, &str>) -> Option<String> {
    let belayers: Vec<&str> = names_by(closed, |value| value == names::GATE_CLOSED_BY_BACKLOG);
    if all {
        let (above, place) = match belayers.first() {
            Some(first) => {
                let above = format!("; closed by their own backlog: {}", named(&belayers));
                (above, format!(" -n {first}"))
            }
            None => Default::default(),
        };
        return Some(format!(
            "no hold is added to any pod: too many held pods in the whole cluster are being deleted{above}; `belayer \
             explain pod/NAME{place}` shows what one waits for"
        ));
    }
    let first = belayers.first()?;
    Some(format!(
        "no hold is added to pods of {}: too many held pods there are being deleted; `belayer explain pod/NAME -n \
         {first}` shows what one waits for; other namespaces are not affected",
        named(&belayers)
    ))
}

fn closed_by_hand(closed: &BTreeMap<&str, &str>) -> Option<String> {
    let by_hand: Vec<&str> = names_by(closed, |value| value != names::GATE_CLOSED_BY_BACKLOG);
    (!by_hand.is_empty()).then(|| {
        format!(
            "an admin closed {} in the gate {}: the admission policy adds no hold there",
            named(&by_hand),
            names::GATE
        )
    })
}

fn names_by<'a>(closed: &BTreeMap<&'a str, &str>, by: impl Fn(&str) -> bool) -> Vec<&'a str> {
    let named = closed.iter().filter(|(_, value)| by(value));
    named.map(|(name, _)| *name).collect()
}

fn named(namespaces: &[&str]) -> String {
    let more = namespaces.len().saturating_sub(NAMED);
    let shown = namespaces[..namespaces.len() - more].join(", ");
    match (namespaces.len(), more) {
        (1, _) => format!("namespace {shown}"),
        (_, 0) => format!("namespaces {shown}"),
        (_, more) => format!("namespaces {shown} and {more} more"),
    }
}

fn warnings(
    query: &Query,
    installation: &Installation,
    components: &[Component],
    all_closed: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let held: u64 = components.iter().map(|each| each.numbers.held).sum();
    let namespace = &installation.namespace;
    let none_ready = installation
        .pods
        .as_ref()
        .is_some_and(|pods| !pods.iter().any(|pod| pod.ready));
    let lease = query.lease.as_deref().unwrap_or_default();
    match &installation.leader {
        _ if none_ready && !installation.may_be_led() && held > 0 => warnings.push(format!(
            "{} held and no pod in {namespace} is ready to release {}: start one, or remove every hold with \
             `belayer drain`",
            one_or_many(held, "object is", "objects are"),
            if held == 1 { "it" } else { "them" }
        )),
        Some(leader) if leader.lapsed && held > 0 => warnings.push(format!(
            "no leader: {} has not renewed lease {lease} in time",
            leader.identity
        )),
        _ => {}
    }
    for other in &installation.other_leases {
        let lapsed = other.leader.as_ref().is_none_or(|leader| leader.lapsed);
        if lapsed && held > 0 && !none_ready {
            warnings.push(format!(
                "no replica holds lease {}: what its controllers hold is not released",
                other.lease
            ));
        }
    }
    for component in components {
        let name = component.component;
        let Numbers { denied, .. } = component.numbers;
        if denied > 0 {
            warnings.push(format!(
                "{name} is not allowed to release {}: see the Event ReleaseDenied on each; \
                 `belayer check --service-account` lists missing permissions",
                one_or_many(denied, "object", "objects")
            ));
        }
        let Some(own) = component.own else { continue };
        if own.unselected_kept > 0 {
            warnings.push(keeps(name, own.unselected_kept, query));
        }
        // The gate has more details and is readable without a leader.
        if own.backlog_gate_closed && !all_closed {
            warnings.push(format!(
                "{name} adds no holds: its backlog limit is reached, until enough waiting objects are released"
            ));
        }
    }
    warnings
}

/// The warning that a component keeps unselected objects held, and what to do.
pub(super) fn keeps(component: &str, count: u64, query: &Query) -> String {
    let release = match &query.config {
        Some(path) => format!(
            "`belayer drain --unselected --config {}` releases them",
            word(path)
        ),
        None => names::RELEASE_UNSELECTED.to_owned(),
    };
    format!(
        "{component} keeps {} held: that many at once look like a mistyped selector; if this is intended, {release}",
        one_or_many(count, "unselected object", "unselected objects")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t4_closed_namespaces_are_named() {
        let teams: Vec<String> = (0..7).map(|n| format!("team-{n}")).collect();
        let closed: BTreeMap<&str, &str> = teams
            .iter()
            .map(|team| (&**team, "backlog"))
            .chain([("by-hand", "maintenance")])
            .collect();
        for all_closed in [false, true] {
            let text = closed_by_backlog(all_closed, &closed).unwrap();
            assert!(
                text.contains("namespaces team-0, team-1, team-2, team-3, team-4 and 2 more"),
                "{text}"
            );
            assert!(text.contains("-n team-0"), "{text}");
            assert_eq!(text.contains("any pod"), all_closed, "{text}");
            assert_eq!(text.contains("not affected"), !all_closed, "{text}");
        }
        let text = closed_by_hand(&closed).unwrap();
        assert!(text.contains("closed namespace by-hand in"), "{text}");
        let none = BTreeMap::new();
        let text = closed_by_backlog(true, &none).unwrap();
        assert!(
            text.contains("deleted; `belayer explain pod/NAME` shows"),
            "{text}"
        );
        assert_eq!(closed_by_backlog(false, &none), None);
        assert_eq!(closed_by_hand(&none), None);
    }
}
