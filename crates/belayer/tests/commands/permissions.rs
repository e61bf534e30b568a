//! The permissions that each component requires, those that the manifests grant, and what `check` reports if one
//! is removed.

use std::collections::{BTreeMap, BTreeSet};

use belayer::config::Source;
use belayer::controllers::Controllers;
use belayer::election::{Election, ElectionArguments};
use belayer::inspect::parts;
use belayer_core::client;
use belayer_core::executor::Bounds;
use belayer_holds::permissions::{Permission, Place};
use belayer_inspect::preflight::{About, Authorizer, Level, Part, Query, Ruling, Subject, check};
use belayer_inspect::reader::Reader;
use belayer_sandbox::Sandbox;
use futures::future::BoxFuture;
use serde_json::Value;

/// A grant of a role: namespace, group, resource with subresource, name, verb.
type Grant = (Place, String, String, Option<String>, String);

/// Permissions that the manifests grant and that no component requires, each with its reason.
const AHEAD: &[(&str, &str)] = &[];

fn election(source: &Source) -> Election {
    let flags = ElectionArguments::default();
    let election = Election::resolve(&flags, source, "belayer-system");
    election.unwrap().unwrap()
}

fn everything() -> Vec<Part> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("belayer.yaml");
    std::fs::write(
        &path,
        "apiVersion: config.belayer.dev/v1alpha1\nendpoints:\n  metricsAuthorization: true\npodFinalizer:\n  profiles:\n  - builtIn: argo\n    capture: true\n    cleanup: argo\n",
    )
    .unwrap();
    let source = Source::load(&path).unwrap();
    let all = Controllers::parse(&["*", "pod-recreation"]).unwrap();
    let mut parts = parts(&source, &all, Some(&election(&source))).unwrap();
    // T2: it runs in a process of its own.
    parts.push(Part::new(
        "leader election of pod-recreation",
        "Role belayer-pod-recreation-leader-election",
        belayer_holds::permissions::election("belayer-pod-recreation"),
    ));
    parts
}

/// The grants of each role of the manifests, by kind and name.
fn roles() -> BTreeMap<String, BTreeSet<Grant>> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests");
    let mut roles = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // The node agent has a ServiceAccount and roles of its own.
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let place = match object["kind"].as_str() {
                Some("ClusterRole") => Place::Cluster,
                Some("Role") => Place::OwnNamespace,
                _ => continue,
            };
            let name = object["metadata"]["name"].as_str().unwrap();
            // Those of this file are for people, and bound to no ServiceAccount.
            if path.ends_with("rbac-users.yaml") {
                continue;
            }
            let kind = object["kind"].as_str().unwrap();
            roles.insert(format!("{kind} {name}"), grants(place, &object));
        }
    }
    roles
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

fn grants(place: Place, role: &Value) -> BTreeSet<Grant> {
    let mut grants = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let names = texts(&rule["resourceNames"]);
        let names: Vec<Option<String>> = if names.is_empty() {
            vec![None]
        } else {
            names.into_iter().map(Some).collect()
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        grants.insert((
                            place,
                            group.clone(),
                            resource.clone(),
                            name.clone(),
                            verb.clone(),
                        ));
                    }
                }
            }
        }
    }
    grants
}

fn grant(permission: &Permission) -> Grant {
    let resource = if permission.subresource.is_empty() {
        permission.resource.to_string()
    } else {
        format!("{}/{}", permission.resource, permission.subresource)
    };
    (
        permission.place,
        permission.group.to_string(),
        resource,
        permission.name.as_deref().map(str::to_owned),
        permission.verb.to_owned(),
    )
}

/// Roles as RBAC evaluates them: a grant for all objects includes each, a ClusterRole every namespace.
struct Rules(BTreeSet<Grant>);

impl Rules {
    fn allow(&self, permission: &Permission) -> bool {
        let (place, group, resource, name, verb) = grant(permission);
        self.0.iter().any(|granted| {
            (granted.0 == place || granted.0 == Place::Cluster)
                && granted.1 == group
                && granted.2 == resource
                && (granted.3.is_none() || granted.3 == name)
                && granted.4 == verb
        })
    }
}

impl Authorizer for Rules {
    fn ask<'a>(
        &'a self,
        permission: &'a Permission,
        _: &'a Subject,
        _: &'a str,
    ) -> BoxFuture<'a, Ruling> {
        let ruling = if self.allow(permission) {
            Ruling::Granted
        } else {
            Ruling::Refused
        };
        Box::pin(std::future::ready(ruling))
    }
}

/// The missing permissions that `check` reports, by component.
async fn missing(rules: &Rules) -> BTreeSet<(String, String)> {
    let sandbox = Sandbox::builder().build();
    let reader = Reader::new(
        client::in_process(sandbox.service("viewer"), belayer_holds::names::USER_AGENT),
        Bounds::default(),
    );
    let query = Query {
        own_namespace: "belayer-system".to_owned(),
        subject: Subject::Own,
        parts: everything(),
        client: "test",
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let report = check(&reader, rules, &query).await.unwrap();
    let mut missing = BTreeSet::new();
    for part in &report.parts {
        let findings = part
            .findings
            .iter()
            .filter(|finding| finding.about == About::Permission);
        for finding in findings {
            assert_eq!(finding.level, Level::Missing);
            assert!(!finding.consequence.is_empty(), "{}", finding.what);
            assert!(finding.fix.as_deref().unwrap().contains("Role belayer-"));
            missing.insert((part.name.clone(), finding.what.clone()));
        }
    }
    missing
}

/// The missing permissions according to the components.
fn expected(rules: &Rules) -> BTreeSet<(String, String)> {
    let mut expected = BTreeSet::new();
    for part in everything() {
        for permission in part
            .permissions
            .iter()
            .filter(|permission| !rules.allow(permission))
        {
            let place = match permission.place {
                Place::Cluster => "",
                Place::OwnNamespace => " in belayer-system",
            };
            expected.insert((part.name.clone(), format!("{permission}{place}")));
        }
    }
    expected
}

/// Every grant is required, and every requirement is granted.
#[test]
fn the_manifests_grant_exactly_what_the_components_require() {
    let roles = roles();
    let mut named = BTreeSet::new();
    for part in everything() {
        let mut granted = BTreeSet::new();
        for role in part.granted_by.split(" and ") {
            named.insert(role.to_owned());
            granted.extend(
                roles
                    .get(role)
                    .unwrap_or_else(|| panic!("no {role}"))
                    .clone(),
            );
        }
        let needed: BTreeSet<Grant> = part.permissions.iter().map(grant).collect();
        let spare: Vec<&Grant> = granted
            .difference(&needed)
            .filter(|(_, _, resource, _, verb)| {
                !AHEAD.contains(&(resource.as_str(), verb.as_str()))
            })
            .collect();
        assert_eq!(
            spare,
            Vec::<&Grant>::new(),
            "{}: granted and not needed",
            part.name
        );
        let lacking: Vec<&Grant> = needed.difference(&granted).collect();
        assert_eq!(
            lacking,
            Vec::<&Grant>::new(),
            "{}: needed and not granted",
            part.name
        );
    }
    let unnamed: Vec<&String> = roles.keys().filter(|role| !named.contains(*role)).collect();
    assert_eq!(
        unnamed,
        Vec::<&String>::new(),
        "roles that belong to no part"
    );
}

/// What each part of the default configuration needs, for readers of the chart; the Roles are compared with the same list
/// above.
fn requires_yaml() -> String {
    let controllers = Controllers::parse(&["*", "pod-recreation"]).unwrap();
    let source = Source::default();
    let parts = parts(&source, &controllers, Some(&election(&source))).unwrap();
    let mut text = String::from(
        "# What each controller needs with the default configuration. Written by\n\
         # UPDATE_SNAPSHOTS=1 cargo test --workspace --test commands\n",
    );
    for part in parts {
        text += &format!("{}:\n  permissions:\n", part.name);
        let mut permissions: Vec<_> = part.permissions.iter().map(grant).collect();
        permissions.sort();
        for (place, group, resource, name, verb) in permissions {
            let place = match place {
                Place::Cluster => "cluster",
                Place::OwnNamespace => "own namespace",
            };
            let name = name.map_or(String::new(), |name| format!(", name: {name}"));
            text += &format!(
                "  - {{verb: {verb}, group: {group:?}, resource: {resource}{name}, in: {place}}}\n"
            );
        }
        if !part.kinds.is_empty() {
            text += "  kinds:\n";
        }
        for kind in part.kinds {
            text += &format!("  - {}\n", kind.resource);
        }
    }
    text
}

#[test]
fn chart_requires_yaml_is_what_the_code_requires() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/charts/belayer/files/requires.yaml"
    );
    let expected = requires_yaml();
    serde_saphyr::from_str::<Value>(&expected).unwrap();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let now = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        now == expected,
        "{path} is not up to date: run with UPDATE_SNAPSHOTS=1"
    );
}

#[tokio::test]
async fn with_all_roles_nothing_is_missing() {
    let all = Rules(roles().into_values().flatten().collect());
    assert_eq!(missing(&all).await, BTreeSet::new());
}

#[tokio::test]
async fn with_a_single_role_the_rest_is_reported() {
    for (role, granted) in roles() {
        let rules = Rules(granted);
        let missing = missing(&rules).await;
        assert!(!missing.is_empty(), "{role}");
        assert_eq!(missing, expected(&rules), "{role}");
    }
}

/// Roles overlap: another role may grant the same permission.
#[tokio::test]
async fn without_a_role_its_exclusive_grants_are_reported() {
    for left_out in roles().into_keys() {
        let rest = roles().into_iter().filter(|(role, _)| *role != left_out);
        let rules = Rules(rest.flat_map(|(_, granted)| granted).collect());
        let missing = missing(&rules).await;
        assert_eq!(missing, expected(&rules), "{left_out}");
    }
}

#[tokio::test]
async fn a_single_missing_permission_is_reported_exactly() {
    let all: BTreeSet<Grant> = roles().into_values().flatten().collect();
    assert!(all.len() > 25, "the roles were not found");
    for taken in &all {
        let mut rest = all.clone();
        rest.remove(taken);
        // `get` of a Lease is also granted in every namespace, to read the clocks of nodes: to another account.
        let (_, group, resource, _, verb) = taken.clone();
        if rest.contains(&(Place::Cluster, group, resource, None, verb)) {
            continue;
        }
        let rules = Rules(rest);
        let missing = missing(&rules).await;
        // Exactly this permission, for each component that requires it.
        let (_, group, resource, name, verb) = taken;
        let dot = if group.is_empty() { "" } else { "." };
        let (resource, sub) = match resource.split_once('/') {
            Some((resource, sub)) => (resource, format!("/{sub}")),
            None => (resource.as_str(), String::new()),
        };
        let mut what = format!("{verb} {resource}{dot}{group}{sub}");
        if let Some(name) = name {
            what = format!("{what} {name}");
        }
        assert!(!missing.is_empty(), "{what}: no component needs it");
        for (part, named) in &missing {
            let named = named.trim_end_matches(" in belayer-system");
            assert_eq!(named, what, "{part}");
        }
        assert_eq!(missing, expected(&rules), "{what}");
    }
}
