//! API discovery: aggregated if the server supports it, else one request per group and version.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use serde::Deserialize;

use belayer_core::http::{Request, RequestError};
use belayer_core::object::{Resource, path};

use crate::reader::{Reader, explain};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Concurrent requests of unaggregated discovery.
const PARALLEL: usize = 8;

/// A kind that can be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Group, version and plural.
    pub resource: Resource,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// The singular, such as `pod`.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
}

impl Kind {
    /// The name for kubectl and for people: `pods`, `scaledobjects.keda.sh`.
    pub fn name(&self) -> String {
        self.resource.to_string()
    }

    /// Whether `word` names this kind: plural, singular, short name or kind, each
    /// with or without its group.
    pub fn is_called(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (word.as_str(), None),
        };
        let named = *self.resource.plural == *name
            || self.singular == name
            || self.resource.kind.eq_ignore_ascii_case(name)
            || self.short_names.iter().any(|short| short == name);
        let grouped = group.is_none_or(|group| {
            *self.resource.group == *group
                || group.strip_prefix(&*self.resource.version)
                    == Some(&format!(".{}", self.resource.group))
        });
        named && grouped
    }
}

/// A group and version that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadApi {
    /// `metrics.example.com/v1`.
    pub group_version: String,
    /// The error message.
    pub why: String,
}

/// The result of discovery.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// Kinds that can be listed, each in the version that the server prefers.
    pub kinds: Vec<Arc<Kind>>,
    /// APIs that do not answer.
    pub dead: Vec<DeadApi>,
}

impl Discovered {
    /// The kind that `word` names. Kubernetes' own kinds take precedence, as in kubectl.
    pub fn find(&self, word: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|kind| kind.is_called(word))
    }
}

/// Reads the kinds of the server.
///
/// # Errors
///
/// When the list of groups cannot be read.
pub async fn discover(reader: &Reader) -> Result<Discovered, RequestError> {
    let mut versions = Vec::new();
    for root in ["/api", "/apis"] {
        let answer = reader
            .read(&Request::get(root).accept(AGGREGATED))
            .await?
            .json::<Root>()?;
        if answer.kind == "APIGroupDiscoveryList" {
            versions.extend(answer.items.into_iter().flat_map(Aggregated::versions));
        } else {
            versions.extend(plain(reader, answer).await);
        }
    }
    Ok(select(versions))
}

/// One group and version, with its resources or the error.
struct Version {
    group: String,
    version: String,
    served: Result<Vec<Served>, String>,
}

struct Served {
    plural: String,
    kind: String,
    namespaced: bool,
    singular: String,
    short_names: Vec<String>,
    verbs: Vec<String>,
}

/// Each resource once, in the first version that has it; the server orders versions by preference.
fn select(versions: Vec<Version>) -> Discovered {
    let mut discovered = Discovered::default();
    let mut seen = BTreeSet::new();
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
            let listed = served.verbs.iter().any(|verb| verb == "list");
            if !listed || served.plural.contains('/') || is_left_out(&version.group, &served.plural)
            {
                continue;
            }
            if !seen.insert((version.group.clone(), served.plural.clone())) {
                continue;
            }
            discovered.kinds.push(Arc::new(Kind {
                resource: Resource::new(
                    &version.group,
                    &version.version,
                    &served.kind,
                    &served.plural,
                ),
                namespaced: served.namespaced,
                singular: if served.singular.is_empty() {
                    served.kind.to_lowercase()
                } else {
                    served.singular
                },
                short_names: served.short_names,
            }));
        }
    }
    discovered
}

/// Kinds that duplicate others or are not stored.
fn is_left_out(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("events.k8s.io", "events") | ("", "componentstatuses")
    ) || group == "metrics.k8s.io"
        || group.ends_with(".metrics.k8s.io")
}

async fn plain(reader: &Reader, root: Root) -> Vec<Version> {
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
            let served = match reader.json::<Resources>(&Request::get(path)).await {
                Ok(list) => Ok(list.resources.into_iter().map(Served::from).collect()),
                Err(error) => Err(explain(&error)),
            };
            Version {
                group,
                version,
                served,
            }
        })
        .buffered(PARALLEL)
        .collect()
        .await
}

#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Aggregated>,
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

impl From<PlainResource> for Served {
    fn from(from: PlainResource) -> Self {
        Self {
            plural: from.name,
            kind: from.kind,
            namespaced: from.namespaced,
            singular: from.singular_name,
            short_names: from.short_names,
            verbs: from.verbs,
        }
    }
}

#[derive(Deserialize)]
struct Aggregated {
    #[serde(default)]
    metadata: AggregatedName,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Deserialize, Default)]
struct AggregatedName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}

impl Aggregated {
    fn versions(self) -> impl Iterator<Item = Version> {
        let group = self.metadata.name;
        self.versions.into_iter().map(move |version| {
            let served = if version.freshness == "Stale" {
                Err("the API behind it does not answer".to_owned())
            } else {
                Ok(version.resources.into_iter().filter_map(served).collect())
            };
            Version {
                group: group.clone(),
                version: version.version,
                served,
            }
        })
    }
}

fn served(from: AggregatedResource) -> Option<Served> {
    Some(Served {
        plural: from.resource,
        kind: from.response_kind?.kind,
        namespaced: from.scope == "Namespaced",
        singular: from.singular_resource,
        short_names: from.short_names,
        verbs: from.verbs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Kind {
        Kind {
            resource: Resource::pods(),
            namespaced: true,
            singular: "pod".into(),
            short_names: vec!["po".into()],
        }
    }

    #[test]
    fn a_kind_is_found_as_kubectl_finds_it() {
        for word in ["pods", "pod", "po", "Pod", "POD"] {
            assert!(pods().is_called(word), "{word}");
        }
        let scaled = Kind {
            resource: Resource::new("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
            namespaced: true,
            singular: "scaledobject".into(),
            short_names: vec!["so".into()],
        };
        for word in [
            "so",
            "scaledobject.keda.sh",
            "scaledobjects.v1alpha1.keda.sh",
        ] {
            assert!(scaled.is_called(word), "{word}");
        }
        assert!(!scaled.is_called("scaledobjects.example.com"));
    }

    #[test]
    fn a_stale_version_is_a_dead_api() {
        let root: Root = serde_json::from_value(serde_json::json!({
            "kind": "APIGroupDiscoveryList",
            "items": [{"metadata": {"name": "metrics.example.com"},
                "versions": [{"version": "v1", "freshness": "Stale"}]}],
        }))
        .unwrap();
        let found = select(
            root.items
                .into_iter()
                .flat_map(Aggregated::versions)
                .collect(),
        );
        assert!(found.kinds.is_empty());
        assert_eq!(found.dead[0].group_version, "metrics.example.com/v1");
    }
}
