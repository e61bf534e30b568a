//! API discovery: aggregated if the server supports it, else one request per group and version.
//!
//! ```no_run
//! use belayer_inspect::{Reader, kinds};
//!
//! # async fn print(reader: &Reader) -> Result<(), belayer_core::RequestError> {
//! for kind in kinds::discover(reader).await?.kinds {
//!     println!("{kind:?}");
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery, GroupVersionKind};
use serde::Deserialize;

use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::object::{Resource, path};

use crate::reader::{Reader, explain};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// The scope of a kind whose objects are in namespaces.
const NAMESPACED: &str = "Namespaced";

/// Concurrent requests of unaggregated discovery.
const PARALLEL: usize = 8;

/// A kind that can be listed. The [module's example](self) prints each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Group, preferred version and plural.
    pub resource: Resource,
    /// The versions that the server serves; those of another version name the same objects.
    pub versions: Vec<String>,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// The singular, such as `pod`.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Whether the server deletes its objects. Objects of another kind keep no namespace and no owner.
    pub deletable: bool,
}

impl Kind {
    /// The name for kubectl and for people: `pods`, `scaledobjects.keda.sh`.
    pub fn name(&self) -> String {
        self.resource.to_string()
    }

    /// Whether `word` names this kind: plural, singular, short name or kind, alone or with its group, or with a version
    /// and its group.
    pub fn is_called(&self, word: &str) -> bool {
        self.is_called_with(word, |group| group == &*self.resource.group)
    }

    /// The same, with the beginning of its group.
    fn is_called_in_short(&self, word: &str) -> bool {
        let is_start = |group: &str| !group.is_empty() && self.resource.group.starts_with(group);
        self.is_called_with(word, is_start)
    }

    fn is_called_with(&self, word: &str, is_group: impl Fn(&str) -> bool) -> bool {
        let word = word.to_ascii_lowercase();
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (word.as_str(), None),
        };
        let named = *self.resource.plural == *name
            || self.singular == name
            || self.resource.kind.eq_ignore_ascii_case(name)
            || self.short_names.iter().any(|short| short == name);
        let without = |group: &str, version: &str| {
            let rest = group.strip_prefix(version)?.strip_prefix('.')?;
            Some(is_group(rest))
        };
        let grouped = group.is_none_or(|group| {
            let mut versions = self.versions.iter();
            is_group(group) || versions.any(|version| without(group, version) == Some(true))
        });
        named && grouped
    }
}

/// A group and version that does not answer. Part of what [`discover`]
/// returns; the [example](self) prints the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadApi {
    /// `metrics.example.com/v1`.
    pub group_version: String,
    /// The error message.
    pub why: String,
}

/// The result of discovery. The [module's example](self) prints the kinds.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// Kinds that can be listed, each in the version that the server prefers.
    pub kinds: Vec<Arc<Kind>>,
    /// APIs that do not answer.
    pub dead: Vec<DeadApi>,
}

impl Discovered {
    /// The kind that `word` names. As in kubectl, Kubernetes' own kinds take precedence, and a whole group takes precedence
    /// over the beginning of one.
    pub fn find(&self, word: &str) -> Option<&Arc<Kind>> {
        let mut kinds = self.kinds.iter();
        let found = kinds.find(|kind| kind.is_called(word));
        found.or_else(|| {
            let mut kinds = self.kinds.iter();
            kinds.find(|kind| kind.is_called_in_short(word))
        })
    }
}

/// Reads the kinds of the server. The [module's example](self) prints the kinds.
///
/// # Errors
///
/// When the list of groups cannot be read, or the kinds of a group for another reason than that the API behind it
/// does not answer.
pub async fn discover(reader: &Reader) -> Result<Discovered, RequestError> {
    let mut versions = Vec::new();
    for root in ["/api", "/apis"] {
        let answer = reader
            .read(&Request::get(root).accept(AGGREGATED))
            .await?
            .json::<Root>()?;
        if answer.kind == "APIGroupDiscoveryList" {
            versions.extend(answer.items.into_iter().flat_map(aggregated));
        } else {
            versions.extend(plain(reader, answer).await?);
        }
    }
    Ok(select(versions))
}

/// One group and version, with its resources or the error.
struct Version {
    group: String,
    version: String,
    served: Result<Vec<APIResourceDiscovery>, String>,
}

/// Each resource once, in the first version that has it; the server orders versions by preference.
fn select(versions: Vec<Version>) -> Discovered {
    let mut discovered = Discovered::default();
    let mut kinds: Vec<Kind> = Vec::new();
    let mut seen = BTreeMap::new();
    for version in versions {
        let served = match version.served {
            Ok(served) => served,
            Err(why) => {
                let group_version = format!("{}/{}", version.group, version.version);
                discovered.dead.push(DeadApi { group_version, why });
                continue;
            }
        };
        for served in served {
            let kind = served.response_kind.and_then(|kind| kind.kind);
            let (Some(plural), Some(kind)) = (served.resource, kind) else {
                continue;
            };
            let may = |verb: &str| served.verbs.iter().any(|served| served == verb);
            if !may("list") || plural.contains('/') || is_left_out(&version.group, &plural) {
                continue;
            }
            let at = seen.entry((version.group.clone(), plural.clone()));
            let at = *at.or_insert(kinds.len());
            if let Some(known) = kinds.get_mut(at) {
                known.versions.push(version.version.clone());
                continue;
            }
            let deletable = may("delete");
            let singular = served.singular_resource.filter(|name| !name.is_empty());
            kinds.push(Kind {
                resource: Resource::new(&version.group, &version.version, &kind, &plural),
                versions: vec![version.version.clone()],
                namespaced: served.scope.as_deref() == Some(NAMESPACED),
                singular: singular.unwrap_or_else(|| kind.to_lowercase()),
                short_names: served.short_names,
                deletable,
            });
        }
    }
    discovered.kinds = kinds.into_iter().map(Arc::new).collect();
    discovered
}

/// Kinds that duplicate others or are not stored.
fn is_left_out(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("events.k8s.io", "events")
            | ("", "componentstatuses")
            // OpenShift's views of namespaces and of RBAC.
            | ("project.openshift.io", "projects")
            | ("authorization.openshift.io", _)
    ) || group == "metrics.k8s.io"
        || group.ends_with(".metrics.k8s.io")
}

async fn plain(reader: &Reader, root: Root) -> Result<Vec<Version>, RequestError> {
    let core = root
        .versions
        .iter()
        .map(|version| (String::new(), version.clone()));
    let groups = root.groups.iter().flat_map(|group| {
        let preferred = group
            .preferred_version
            .as_ref()
            .map(|version| version.version.clone());
        let first = preferred.clone().into_iter();
        let rest = group
            .versions
            .iter()
            .map(|version| version.version.clone())
            .filter(move |version| Some(version) != preferred.as_ref());
        first
            .chain(rest)
            .map(|version| (group.name.clone(), version))
    });
    let all: Vec<_> = core.chain(groups).collect();
    futures::stream::iter(all)
        .map(|(group, version)| async move {
            let path = path::of_version(&group, &version);
            let served = match reader.json::<APIResourceList>(&Request::get(path)).await {
                Ok(list) => Ok(list.resources.into_iter().map(resource).collect()),
                // Of an API behind it the server answers 503. Any other failure says nothing about the kinds.
                Err(error)
                    if error.class().is_transient() && error.class() != ErrorClass::Unavailable =>
                {
                    return Err(error);
                }
                Err(error) => Err(explain(&error)),
            };
            Ok(Version {
                group,
                version,
                served,
            })
        })
        .buffered(PARALLEL)
        .try_collect()
        .await
}

/// What `/api` and `/apis` answer: a list of groups with their kinds, or only their names.
#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<APIGroupDiscovery>,
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    groups: Vec<APIGroup>,
}

fn aggregated(from: APIGroupDiscovery) -> impl Iterator<Item = Version> {
    let group = from.metadata.and_then(|meta| meta.name).unwrap_or_default();
    from.versions.into_iter().map(move |version| Version {
        group: group.clone(),
        version: version.version.unwrap_or_default(),
        served: match version.freshness.as_deref() {
            Some("Stale") => Err("the API behind it does not answer".to_owned()),
            _ => Ok(version.resources),
        },
    })
}

fn resource(from: APIResource) -> APIResourceDiscovery {
    let kind = GroupVersionKind {
        kind: Some(from.kind),
        ..GroupVersionKind::default()
    };
    APIResourceDiscovery {
        resource: Some(from.name),
        response_kind: Some(kind),
        scope: from.namespaced.then(|| NAMESPACED.to_owned()),
        singular_resource: Some(from.singular_name),
        verbs: from.verbs,
        short_names: from.short_names.unwrap_or_default(),
        ..APIResourceDiscovery::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn pods() -> Kind {
        Kind {
            resource: Resource::pods(),
            versions: vec!["v1".into()],
            namespaced: true,
            singular: "pod".into(),
            short_names: vec!["po".into()],
            deletable: true,
        }
    }

    #[test]
    fn a_kind_is_found_as_kubectl_finds_it() {
        for word in ["pods", "pod", "po", "Pod", "POD"] {
            assert!(pods().is_called(word), "{word}");
        }
        let scaled = Kind {
            resource: Resource::new("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
            versions: vec!["v1alpha1".into(), "v1beta1".into()],
            namespaced: true,
            singular: "scaledobject".into(),
            short_names: vec!["so".into()],
            deletable: true,
        };
        for word in [
            "so",
            "scaledobject.keda.sh",
            "scaledobjects.v1alpha1.keda.sh",
            "scaledobjects.v1beta1.keda.sh",
        ] {
            assert!(scaled.is_called(word), "{word}");
        }
        for word in ["so.keda", "so.v1beta1.keda"] {
            assert!(!scaled.is_called(word), "{word}");
            assert!(scaled.is_called_in_short(word), "{word}");
        }
        for word in [
            "scaledobjects.example.com",
            "so.v2.keda.sh",
            "so.v1beta1.eda",
        ] {
            let found = scaled.is_called(word) || scaled.is_called_in_short(word);
            assert!(!found, "{word}");
        }
        assert!(!pods().is_called_in_short("pods.v"));
    }

    #[test]
    fn every_served_version_names_the_kind_and_a_whole_group_takes_precedence() {
        let served = |group: &str, version: &str| {
            let kind = resource(APIResource {
                name: "gadgets".to_owned(),
                kind: "Gadget".to_owned(),
                verbs: vec!["list".to_owned()],
                ..APIResource::default()
            });
            Version {
                group: group.to_owned(),
                version: version.to_owned(),
                served: Ok(vec![kind]),
            }
        };
        let all = [("two.io", "v1"), ("two.io", "v1beta1"), ("two", "v1")];
        let found = select(all.map(|(group, version)| served(group, version)).into());
        for (word, expected) in [
            ("gadgets.v1beta1.two.io", Some("two.io")),
            ("gadgets.two", Some("two")),
            ("gadgets.tw", Some("two.io")),
            ("gadgets.v2.two.io", None),
        ] {
            let group = found.find(word).map(|kind| &*kind.resource.group);
            assert_eq!(group, expected, "{word}");
        }
        assert_eq!(&*found.find("gadgets").unwrap().resource.version, "v1");
    }

    /// OLM's package manifests are computed in every namespace.
    #[rstest]
    #[case(&["get", "list"], false)]
    #[case(&["get", "list", "delete"], true)]
    fn a_kind_without_the_verb_delete_is_not_deletable(
        #[case] verbs: &[&str],
        #[case] expected: bool,
    ) {
        let served = resource(APIResource {
            name: "packagemanifests".to_owned(),
            kind: "PackageManifest".to_owned(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..APIResource::default()
        });
        let version = Version {
            group: "packages.operators.coreos.com".to_owned(),
            version: "v1".to_owned(),
            served: Ok(vec![served]),
        };
        assert_eq!(select(vec![version]).kinds[0].deletable, expected);
    }

    /// OpenShift shows namespaces as projects, with their UIDs and without their finalizers.
    #[rstest]
    #[case("project.openshift.io", "projects", false)]
    #[case("authorization.openshift.io", "rolebindings", false)]
    #[case("events.k8s.io", "events", false)]
    #[case("project.openshift.io", "helmchartrepositories", true)]
    #[case("rbac.authorization.k8s.io", "rolebindings", true)]
    fn duplicates_of_other_kinds_are_left_out(
        #[case] group: &str,
        #[case] plural: &str,
        #[case] listed: bool,
    ) {
        let root: Root = serde_json::from_value(serde_json::json!({
            "kind": "APIGroupDiscoveryList",
            "items": [{ "metadata": { "name": group }, "versions": [{ "version": "v1", "resources": [{
                "resource": plural, "responseKind": { "kind": "Any" }, "verbs": ["list"],
            }] }] }],
        }))
        .unwrap();
        let found = select(root.items.into_iter().flat_map(aggregated).collect());
        assert_eq!(!found.kinds.is_empty(), listed);
    }

    #[test]
    fn a_stale_version_is_a_dead_api() {
        let root: Root = serde_json::from_value(serde_json::json!({
            "kind": "APIGroupDiscoveryList",
            "items": [{"metadata": {"name": "metrics.example.com"},
                "versions": [{"version": "v1", "freshness": "Stale"}]}],
        }))
        .unwrap();
        let found = select(root.items.into_iter().flat_map(aggregated).collect());
        assert!(found.kinds.is_empty());
        assert_eq!(found.dead[0].group_version, "metrics.example.com/v1");
    }
}
