//! The book of well-known finalizers: data, in `book/finalizers.yaml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// The book as it is part of this build.
pub static BOOK: LazyLock<Book> = LazyLock::new(|| {
    // Checked by a test; a book that cannot be read would be an empty one.
    serde_saphyr::from_str(include_str!("book/finalizers.yaml")).unwrap_or_default()
});

/// What the owner of each entry of Belayer's own begins with; the component's name follows.
const OURS: &str = "Belayer ";

/// Well-known finalizers.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Book(Vec<Entry>);

/// One well-known finalizer, or a family of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The name on objects; `*` stands for any text.
    pub finalizer: String,
    /// Whose it is.
    pub owner: String,
    /// What it is for.
    pub guards: String,
    /// What forcing it off loses.
    pub lost: String,
    /// Whether its controller may run where it cannot be seen.
    pub hosted: bool,
    /// The workloads that take it off.
    pub controllers: Vec<Controller>,
    /// Parts of the names of their images.
    pub images: Vec<String>,
    /// Where these facts come from.
    pub source: String,
}

/// A workload that takes a finalizer off.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controller {
    /// Its usual name.
    pub name: String,
    /// Its usual namespace; empty if that varies.
    pub namespace: String,
    /// The Lease it leads by.
    #[serde(default)]
    pub lease: Option<String>,
    /// How its flag `--controllers` names the part that takes the finalizer off, where it has many.
    #[serde(default)]
    pub switch: Option<String>,
    /// How its name is compared.
    #[serde(default, rename = "match")]
    pub matching: Matching,
    /// The kinds it is about; all of them if none is named.
    #[serde(default)]
    pub kinds: Vec<String>,
}

/// How a workload's name is compared with the usual one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Matching {
    /// Equal, or ending in it after a hyphen, as Helm names things.
    #[default]
    Suffix,
    /// Beginning with it, in the usual namespace.
    Prefix,
    /// Equal, in the usual namespace: the name alone says too little.
    Exact,
}

impl Book {
    /// The entry of a finalizer; an exact name goes before a pattern.
    pub fn find(&self, finalizer: &str) -> Option<&Entry> {
        let exact = self.0.iter().find(|entry| entry.finalizer == finalizer);
        exact.or_else(|| {
            let patterns = self.0.iter().filter(|entry| entry.finalizer.contains('*'));
            patterns
                .into_iter()
                .find(|entry| fits(&entry.finalizer, finalizer))
        })
    }

    /// The entry of what this component of Belayer's holds by its own name. It may hold by the name
    /// of another, whose entry is then not the one to go by.
    pub fn of_component(&self, component: &str) -> Option<&Entry> {
        let is_its = |entry: &&Entry| entry.owner.strip_prefix(OURS) == Some(component);
        self.0.iter().find(is_its)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
}

impl Entry {
    /// Whether it is of one of Belayer's components.
    pub fn is_ours(&self) -> bool {
        self.owner.starts_with(OURS)
    }

    /// The workloads that take it off objects of a kind.
    pub fn controllers_of(&self, kind: &str) -> Vec<&Controller> {
        let fitting = |controller: &&Controller| {
            controller.kinds.is_empty() || controller.kinds.iter().any(|known| known == kind)
        };
        self.controllers.iter().filter(fitting).collect()
    }
}

impl Controller {
    /// Whether a workload of this name and place is the one.
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

/// Whether `text` fits a pattern in which `*` stands for any text.
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

    fn book() -> Book {
        serde_saphyr::from_str(include_str!("book/finalizers.yaml")).unwrap()
    }

    #[test]
    fn the_book_can_be_read_and_is_not_thin() {
        assert!(book().0.len() >= 60, "{}", book().0.len());
    }

    #[test]
    fn every_entry_is_complete_and_stands_there_once() {
        let mut seen = BTreeSet::new();
        for entry in book().iter() {
            let name = &entry.finalizer;
            assert!(seen.insert(name.clone()), "{name} stands there twice");
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
            for image in &entry.images {
                assert!(image.len() > 6, "{name}: {image:?} fits too much");
            }
        }
    }

    #[test]
    fn a_pattern_hides_no_other_entry() {
        let book = book();
        for entry in book.iter().filter(|entry| !entry.finalizer.contains('*')) {
            assert_eq!(book.find(&entry.finalizer).unwrap(), entry);
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
        assert_eq!(book().find(finalizer).unwrap().owner, owner);
    }

    #[test]
    fn every_hold_of_ours_is_in_it() {
        use belayer_holds::names::{OWNER_HOLDS, POD_HOLDS, PVC_PROTECTION_HOLD};
        let book = book();
        let holds = POD_HOLDS.iter().chain(OWNER_HOLDS);
        for hold in holds.chain([&PVC_PROTECTION_HOLD]) {
            let entry = book.find(hold).unwrap_or_else(|| panic!("{hold} is not"));
            assert!(entry.is_ours(), "{hold}: {}", entry.owner);
        }
        for component in [
            "pod-finalizer",
            "workflow-finalizer",
            "pod-recreation",
            "pvc-protection",
        ] {
            assert!(book.of_component(component).is_some(), "{component}");
        }
    }

    #[rstest]
    #[case("example.com/cleanup")]
    #[case("ceph.rook.io")]
    #[case("")]
    fn what_nobody_knows_is_not_found(#[case] finalizer: &str) {
        assert_eq!(book().find(finalizer), None);
    }

    #[test]
    fn a_workload_is_recognised_by_its_name() {
        let book = book();
        let argo = &book
            .find("workflows.argoproj.io/status")
            .unwrap()
            .controllers[0];
        assert!(argo.is("argo", "workflow-controller"));
        assert!(argo.is("ci", "my-release-argo-workflows-workflow-controller"));
        assert!(!argo.is("argo", "workflow-controller-metrics"));
    }
}
