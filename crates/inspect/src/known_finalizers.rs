//! Known finalizers: data from `known_finalizers/finalizers.yaml`. The [crate's example](crate)
//! adds entries of another project.

use std::sync::LazyLock;

use serde::Deserialize;

/// The known finalizers of this build.
pub static KNOWN_FINALIZERS: LazyLock<KnownFinalizers> = LazyLock::new(|| {
    // A test checks that the file can be parsed; a file that cannot be parsed counts as empty.
    let entries = serde_saphyr::from_str(include_str!("known_finalizers/finalizers.yaml"));
    KnownFinalizers(entries.unwrap_or_default())
});

/// Prefix of the owner of Belayer's own entries; the component's name follows.
const BELAYERS: &str = "Belayer ";

/// Known finalizers; by default those of this build. The [crate's example](crate) adds an entry.
#[derive(Debug, Clone)]
pub struct KnownFinalizers(Vec<Entry>);

/// The text is not a list of entries. Returned by
/// [`KnownFinalizers::with_yaml`](crate::KnownFinalizers::with_yaml), as in the [crate's
/// example](crate).
#[derive(Debug, thiserror::Error)]
#[error("invalid list of known finalizers: {0}")]
pub struct InvalidEntries(serde_saphyr::Error);

impl Default for KnownFinalizers {
    fn default() -> Self {
        KNOWN_FINALIZERS.clone()
    }
}

/// One known finalizer, or a family of them. The [crate's example](crate) has one in YAML.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The name on objects; `*` stands for any text.
    pub finalizer: String,
    /// Its controller.
    pub owner: String,
    /// What it is for.
    pub guards: String,
    /// What is lost if it is removed by force.
    pub lost: String,
    /// Whether its controller may run outside the cluster.
    pub hosted: bool,
    /// Whether each API group has another controller. It is recognised by its image alone, whose name must consist of
    /// words of the group: `provider-aws-s3` of `s3.aws.upbound.io`.
    #[serde(default)]
    pub by_group: bool,
    /// The workloads that remove it.
    pub controllers: Vec<Controller>,
    /// Substrings of the names of their images.
    pub images: Vec<String>,
    /// Source of these facts.
    pub source: String,
}

/// A workload that removes a finalizer. Part of an [`Entry`], as
/// in the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controller {
    /// Its usual name.
    pub name: String,
    /// Its usual namespace; empty if that varies.
    pub namespace: String,
    /// Its leader election Lease.
    #[serde(default)]
    pub lease: Option<String>,
    /// Name of the controller that removes the finalizer, as the flag `--controllers` of a workload with many
    /// controllers has it.
    #[serde(default)]
    pub switch: Option<String>,
    /// How its name is matched.
    #[serde(default, rename = "match")]
    pub matching: Matching,
    /// The kinds it handles; empty for all.
    #[serde(default)]
    pub kinds: Vec<String>,
}

/// How a workload's name is matched with the usual one. Part of a
/// [`Entry`], as in the [crate's example](crate).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Matching {
    /// Equal, or ending in it after a hyphen, as in Helm releases.
    #[default]
    Suffix,
    /// Beginning with it, in the usual namespace.
    Prefix,
    /// Equal, in the usual namespace: the name alone is ambiguous.
    Exact,
}

impl KnownFinalizers {
    /// Adds the entries of another project. An entry replaces one of the same finalizer.
    #[must_use]
    pub fn with(self, entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut all: Vec<Entry> = entries.into_iter().collect();
        all.extend(self.0);
        Self(all)
    }

    /// Adds entries from YAML, in the form of this crate's own
    /// [file](https://github.com/belayer/belayer/blob/main/crates/inspect/src/known_finalizers/finalizers.yaml).
    ///
    /// ```
    /// use belayer_inspect::known_finalizers::KnownFinalizers;
    ///
    /// let known = KnownFinalizers::default().with_yaml(
    ///     "
    /// - finalizer: shop.example.com/invoices
    ///   owner: invoice-operator
    ///   guards: invoices that were not sent
    ///   lost: those invoices
    ///   hosted: false
    ///   controllers: [{name: invoice-operator, namespace: shop}]
    ///   images: [invoice-operator]
    ///   source: https://shop.example.com/docs
    /// ",
    /// )?;
    /// let entry = known.find("shop.example.com/invoices").expect("it was added");
    /// assert_eq!(entry.lost, "those invoices");
    /// # Ok::<(), belayer_inspect::known_finalizers::InvalidEntries>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not a list of entries.
    pub fn with_yaml(self, entries: &str) -> Result<Self, InvalidEntries> {
        let entries: Vec<Entry> = serde_saphyr::from_str(entries).map_err(InvalidEntries)?;
        Ok(self.with(entries))
    }

    /// The entry of a finalizer; an exact name takes precedence over a pattern.
    pub fn find(&self, finalizer: &str) -> Option<&Entry> {
        let exact = self.0.iter().find(|entry| entry.finalizer == finalizer);
        exact.or_else(|| {
            let patterns = self.0.iter().filter(|entry| entry.finalizer.contains('*'));
            patterns
                .into_iter()
                .find(|entry| fits(&entry.finalizer, finalizer))
        })
    }

    /// The entry of this component of Belayer's. A component may be configured to use the finalizer of another
    /// controller; that controller's entry does not apply then.
    pub fn of_component(&self, component: &str) -> Option<&Entry> {
        self.0
            .iter()
            .find(|entry| entry.component() == Some(component))
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
}

impl Entry {
    /// Whether it belongs to one of Belayer's components.
    pub fn is_belayers(&self) -> bool {
        self.component().is_some()
    }

    /// The component of Belayer's that it belongs to.
    pub(crate) fn component(&self) -> Option<&str> {
        self.owner.strip_prefix(BELAYERS)
    }

    /// Whether a workload of this image may remove it from objects of an API group.
    pub(crate) fn has_image(&self, image: &str, group: &str) -> bool {
        self.images.iter().any(|part| image.contains(&**part))
            && (!self.by_group || is_of_group(image, group))
    }

    /// The workloads that remove it from objects of a kind.
    pub fn controllers_of(&self, kind: &str) -> Vec<&Controller> {
        let fitting = |controller: &&Controller| {
            controller.kinds.is_empty() || controller.kinds.iter().any(|known| known == kind)
        };
        self.controllers.iter().filter(fitting).collect()
    }
}

impl Controller {
    /// Whether a workload of this namespace and name matches.
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        match self.matching {
            Matching::Suffix => {
                name == self.name
                    || name
                        .strip_suffix(&self.name)
                        .is_some_and(|rest| rest.ends_with('-'))
            }
            Matching::Prefix => namespace == self.namespace && name.starts_with(&self.name),
            Matching::Exact => namespace == self.namespace && name == self.name,
        }
    }
}

/// Words in the names of images that say nothing about the API group.
const GENERAL: &[&str] = &["controller", "family", "provider", "upjet"];

/// Whether the name of an image consists of words of an API group.
fn is_of_group(image: &str, group: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split([':', '@']).next().unwrap_or_default();
    let words = name.split('-').filter(|word| !GENERAL.contains(word));
    let mut words = words.peekable();
    words.peek().is_some() && words.all(|word| group.split('.').any(|label| label == word))
}

/// Whether `text` matches a pattern in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    if rest.is_empty() {
        return true;
    }
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.into_iter().any(|at| fits(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use rstest::rstest;

    fn known() -> KnownFinalizers {
        let entries = serde_saphyr::from_str(include_str!("known_finalizers/finalizers.yaml"));
        KnownFinalizers(entries.unwrap())
    }

    #[test]
    fn the_file_can_be_parsed_and_has_many_entries() {
        assert!(known().0.len() >= 60, "{}", known().0.len());
    }

    #[test]
    fn every_entry_is_complete_and_unique() {
        let mut seen = BTreeSet::new();
        for entry in known().iter() {
            let name = &entry.finalizer;
            assert!(seen.insert(name.clone()), "duplicate entry {name}");
            for text in [&entry.finalizer, &entry.owner, &entry.guards, &entry.lost] {
                assert!(
                    !text.trim().is_empty() && !text.ends_with('.'),
                    "{name}: {text:?}"
                );
            }
            assert!(
                entry.source.starts_with("https://"),
                "{name}: {}",
                entry.source
            );
            assert!(!name.contains(char::is_whitespace), "{name:?}");
            for controller in &entry.controllers {
                assert!(!controller.name.is_empty(), "{name}");
                let switch = controller.switch.as_deref().unwrap_or("-controller");
                assert!(switch.ends_with("-controller"), "{name}: {switch}");
                let needs_place =
                    controller.matching != Matching::Suffix || controller.lease.is_some();
                assert!(!needs_place || !controller.namespace.is_empty(), "{name}");
            }
            assert!(!entry.by_group || entry.controllers.is_empty(), "{name}");
            for image in &entry.images {
                assert!(image.len() > 6, "{name}: {image:?} matches too much");
            }
        }
    }

    #[test]
    fn no_pattern_hides_another_entry() {
        let known = known();
        for entry in known.iter().filter(|entry| !entry.finalizer.contains('*')) {
            assert_eq!(known.find(&entry.finalizer).unwrap(), entry);
        }
    }

    #[rstest]
    #[case("external-attacher/ebs-csi-aws-com", "CSI external-attacher")]
    #[case(
        "finalizers.s3.services.k8s.aws/Bucket",
        "AWS Controllers for Kubernetes"
    )]
    #[case("cephcluster.ceph.rook.io", "Rook")]
    #[case("chains.tekton.dev/pipelinerun", "Tekton Chains")]
    #[case("post-delete-finalizer.argocd.argoproj.io/cleanup", "Argo CD")]
    #[case("belayer.dev/pod-status", "Belayer pod-finalizer")]
    fn families_are_found(#[case] finalizer: &str, #[case] owner: &str) {
        assert_eq!(known().find(finalizer).unwrap().owner, owner);
    }

    #[test]
    fn every_hold_of_belayer_has_an_entry() {
        let known = known();
        for controller in belayer_holds::names::CONTROLLERS {
            let (name, hold) = (controller.name, controller.finalizer);
            let entry = known
                .find(hold)
                .unwrap_or_else(|| panic!("{hold} has no entry"));
            assert!(entry.is_belayers(), "{hold}: {}", entry.owner);
            assert!(known.of_component(name).is_some(), "{name}");
        }
    }

    #[rstest]
    #[case("example.com/cleanup")]
    #[case("ceph.rook.io")]
    #[case("")]
    fn an_unknown_finalizer_is_not_found(#[case] finalizer: &str) {
        assert_eq!(known().find(finalizer), None);
    }

    #[test]
    fn a_workload_is_recognised_by_its_name() {
        let known = known();
        let argo = &known
            .find("workflows.argoproj.io/status")
            .unwrap()
            .controllers[0];
        assert!(argo.is("argo", "workflow-controller"));
        assert!(argo.is("ci", "my-release-argo-workflows-workflow-controller"));
        assert!(!argo.is("argo", "workflow-controller-metrics"));
    }

    /// The Helm chart and the overlays of kustomize replace the registry.
    #[rstest]
    #[case::of_the_manifests("registry.invalid/belayer/belayer:0.1.0", true)]
    #[case::as_the_installation_guide_names_it("registry.example.com/team/belayer:0.1.0", true)]
    #[case::by_digest("registry.example.com/belayer@sha256:00", true)]
    #[case::of_another_project("registry.example.com/belayer-exporter:1", false)]
    fn every_entry_of_belayer_has_its_image(#[case] image: &str, #[case] expected: bool) {
        for entry in known().iter().filter(|entry| entry.is_belayers()) {
            let matches = entry.images.iter().any(|part| image.contains(&**part));
            assert_eq!(matches, expected, "{}", entry.finalizer);
        }
    }
}
