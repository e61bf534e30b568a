//! The sidecars of CSI drivers. Every driver runs the same images, and most name their workloads freely: a sidecar is the
//! controller of an object only if it is tied to the object's driver.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;

use belayer_core::http::{ErrorClass, Request};
use belayer_core::object::Resource;

use super::reads::lease_of;
use super::state::{AttachmentState, VolumeState};
use crate::controller_health::{Lease, Workload};
use crate::details::{Container, LeaseSpec, Object, SnapshotContentSpec, WorkloadObject};
use crate::known_finalizers::{Entry, KnownFinalizers};
use crate::object::Terminating;
use crate::reader::{Page, ReadResult, Reader, explain};

/// The finalizers that sidecars remove, and what the names of their Leases begin with; the driver's name follows.
const SIDECARS: [(&str, &str); 3] = [
    ("external-attacher/*", "external-attacher-leader-"),
    ("external-provisioner.volume.kubernetes.io/finalizer", ""),
    (
        "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
        "external-snapshotter-leader-",
    ),
];

/// Before the name of its driver, in the finalizer of the external-attacher.
const ATTACHER: &str = "external-attacher/";

/// Maximum number of drivers whose Leases are read.
const DRIVERS: usize = 50;

/// Concurrent reads.
const PARALLEL: usize = 8;

/// Words in names of drivers that many drivers have.
const GENERAL: &[&str] = &[
    "block", "com", "csi", "driver", "io", "k8s", "net", "org", "plugin", "storage",
];

/// What the cluster shows about CSI drivers, if a stuck object has a finalizer of a sidecar.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drivers {
    /// The names of all CSIDrivers.
    installed: Option<ReadResult<Vec<String>>>,
    /// The drivers that stuck objects name, by UID.
    of_objects: BTreeMap<String, String>,
    /// The Leases of sidecars in all namespaces, by their name.
    leases: BTreeMap<String, Vec<ReadResult<Lease>>>,
    /// The names in commands and variables of workloads that may be drivers, by `namespace/name`.
    named: BTreeMap<String, BTreeSet<String>>,
}

/// An object, its finalizer that a sidecar removes, and what the name of the sidecar's Lease begins with.
type Held<'a> = (&'a Terminating, &'a str, &'a str);

/// The driver of an object: its name or, if only the finalizer has it, that with hyphens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Driver(pub String);

/// Whether only the sidecars of one CSI driver remove this finalizer.
pub(crate) fn is_of_sidecar(entry: &Entry) -> bool {
    lease_prefix(entry).is_some()
}

fn lease_prefix(entry: &Entry) -> Option<&'static str> {
    let mut all = SIDECARS.into_iter();
    let (_, prefix) = all.find(|(finalizer, _)| *finalizer == entry.finalizer)?;
    Some(prefix)
}

impl Drivers {
    /// Reads what ties sidecars to the drivers of these objects.
    pub(crate) async fn read(
        reader: &Reader,
        stuck: &[Terminating],
        known: &KnownFinalizers,
        volumes: &BTreeMap<String, ReadResult<VolumeState>>,
        attachments: &ReadResult<Vec<AttachmentState>>,
    ) -> Self {
        let held: Vec<Held<'_>> = stuck
            .iter()
            .flat_map(|object| object.finalizers.iter().map(move |name| (object, name)))
            .filter_map(|(object, name)| {
                let prefix = lease_prefix(known.find(name)?)?;
                Some((object, name.as_str(), prefix))
            })
            .collect();
        if held.is_empty() {
            return Self::default();
        }
        let mut drivers = Self {
            of_objects: named_by(reader, &held, volumes, attachments).await,
            ..Self::default()
        };
        let names = held.iter().filter_map(|(object, finalizer, prefix)| {
            let driver = drivers.of(object, finalizer)?;
            Some(format!("{prefix}{}", driver.hyphenated()))
        });
        let names: BTreeSet<String> = names.collect();
        let leases = futures::stream::iter(names.into_iter().take(DRIVERS))
            .map(|name| async move { (name.clone(), leases(reader, &name).await) })
            .buffer_unordered(PARALLEL)
            .collect();
        let (leases, installed, named) = futures::join!(leases, installed(reader), named(reader));
        drivers.leases = leases;
        drivers.installed = Some(installed);
        drivers.named = named;
        drivers
    }

    /// The driver that has to remove this finalizer of a sidecar from an object.
    pub(crate) fn of(&self, object: &Terminating, finalizer: &str) -> Option<Driver> {
        let read = self.of_objects.get(object.object.uid.as_str());
        let read = read.filter(|name| !name.is_empty()).cloned().map(Driver);
        let Some(named) = finalizer.strip_prefix(ATTACHER) else {
            return read;
        };
        let named = Driver(hyphenated(named));
        // The object may name another driver than the finalizer does.
        let same = read.filter(|read| read.hyphenated() == named.0);
        same.or((!named.0.is_empty()).then_some(named))
    }

    /// The Leases of the driver's sidecar.
    pub(crate) fn leases(&self, entry: &Entry, driver: &Driver) -> Vec<&ReadResult<Lease>> {
        let prefix = lease_prefix(entry).unwrap_or_default();
        let name = format!("{prefix}{}", driver.hyphenated());
        self.leases.get(&name).into_iter().flatten().collect()
    }

    /// Whether a sidecar belongs to the driver: a pod of it held the Lease, or it has the driver's name in its commands or
    /// variables, or the words of that name that no other driver has.
    pub(crate) fn is_of(
        &self,
        workload: &Workload,
        driver: &Driver,
        leases: &[&ReadResult<Lease>],
    ) -> bool {
        let mut held = leases.iter().filter_map(|lease| lease.found());
        if held.any(|lease| lease.is_held_by(workload)) || self.has_name(workload, driver) {
            return true;
        }
        let installed = self.installed.as_ref().and_then(ReadResult::found);
        let mut others = installed
            .into_iter()
            .flatten()
            .map(|name| Driver(name.clone()))
            .filter(|other| other.hyphenated() != driver.hyphenated());
        driver.has_words_in(workload)
            && !others.any(|other| self.has_name(workload, &other) || other.has_words_in(workload))
    }

    /// Whether its name, its commands or its variables contain the driver's name.
    fn has_name(&self, workload: &Workload, driver: &Driver) -> bool {
        let driver = driver.hyphenated();
        let place = format!("{}/{}", workload.namespace, workload.name);
        let named = self.named.get(&place).into_iter().flatten();
        let is_its = |name: &String| {
            let rest = name.strip_prefix(&driver);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        named.chain([&hyphenated(&workload.name)]).any(is_its)
    }

    /// Whether there is no CSIDriver of its name. A driver works without one, so this is no proof that it is gone.
    pub(crate) fn has_no_object(&self, driver: &Driver) -> bool {
        let installed = self.installed.as_ref().and_then(ReadResult::found);
        let is_it = |name: &String| hyphenated(name) == driver.hyphenated();
        installed.is_some_and(|all| !all.iter().any(is_it))
    }
}

impl Driver {
    /// As in the names of its finalizer and Leases.
    fn hyphenated(&self) -> String {
        hyphenated(&self.0)
    }

    /// Whether a workload has the words that distinguish the driver, those before `csi` or the first one that is not
    /// general, in its name, its namespace or its images.
    fn has_words_in(&self, workload: &Workload) -> bool {
        let name = self.hyphenated();
        let all: Vec<&str> = name.split('-').collect();
        let before = all.iter().take_while(|word| **word != "csi");
        let before = before.count();
        let specific = |word: &&&str| !GENERAL.contains(*word);
        let words: Vec<&str> = if 0 < before && before < all.len() {
            all[..before].iter().filter(specific).copied().collect()
        } else {
            all.iter().find(specific).into_iter().copied().collect()
        };
        // The host of a registry is of no driver: public.ecr.aws.
        let images = workload.images.iter().map(|image| {
            let (_, path) = image.split_once('/').unwrap_or(("", image));
            path.split(['@', ':']).next().unwrap_or_default()
        });
        let texts = [&*workload.name, &*workload.namespace].into_iter();
        let parts: Vec<&str> = texts
            .chain(images)
            .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()))
            .collect();
        // `disk` is part of `azuredisk`, but `pd` is not of `httpd`.
        let has = |word: &&str| {
            let mut parts = parts.iter();
            parts.any(|part| {
                part == word || word.len() > 2 && (part.starts_with(word) || part.ends_with(word))
            })
        };
        !words.is_empty() && words.iter().all(has)
    }
}

impl Lease {
    /// Whether its holder is a pod of the workload: a sidecar is known by the name of its pod.
    fn is_held_by(&self, workload: &Workload) -> bool {
        let own = self.place.split_once('/');
        let rest = self.holder.strip_prefix(&workload.name);
        own.is_some_and(|(namespace, _)| namespace == workload.namespace)
            && rest.is_some_and(|rest| rest.starts_with('-'))
    }
}

/// The drivers that these objects name in their specs, by UID.
async fn named_by(
    reader: &Reader,
    held: &[Held<'_>],
    volumes: &BTreeMap<String, ReadResult<VolumeState>>,
    attachments: &ReadResult<Vec<AttachmentState>>,
) -> BTreeMap<String, String> {
    let all = attachments.found().into_iter().flatten();
    let attachers: BTreeMap<&str, &str> = all.map(|one| (&*one.name, &*one.attacher)).collect();
    futures::stream::iter(held)
        .map(|(object, ..)| async {
            let object = &object.object;
            let name = object.key.name();
            let driver = match &*object.kind.resource.plural {
                "volumeattachments" => attachers.get(name).map(|driver| (*driver).to_owned()),
                "persistentvolumes" => {
                    let volume = volumes.get(name).and_then(ReadResult::found);
                    volume.map(|volume| volume.driver.clone())
                }
                "volumesnapshotcontents" => {
                    let read: ReadResult<Object<SnapshotContentSpec>> =
                        reader.object(&object.kind.resource, &object.key).await;
                    read.found().map(|content| content.spec.driver.clone())
                }
                _ => None,
            };
            Some((object.uid.as_str().to_owned(), driver?))
        })
        .buffer_unordered(PARALLEL)
        .filter_map(std::future::ready)
        .collect()
        .await
}

/// As the sidecars write the name of a driver in the names of Leases and finalizers.
fn hyphenated(name: &str) -> String {
    let letters = name.chars();
    let mut name: String = letters
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    if name.ends_with('-') {
        name.push('X');
    }
    name
}

/// The Leases of this name in all namespaces.
async fn leases(reader: &Reader, name: &str) -> Vec<ReadResult<Lease>> {
    let request = Request::get(Resource::leases().path(None))
        .query("fieldSelector", format!("metadata.name={name}"));
    match reader.json::<Page<Object<LeaseSpec>>>(&request).await {
        Ok(page) => {
            let all = page.items.into_iter().flatten();
            all.map(|lease| ReadResult::Found(lease_of(lease)))
                .collect()
        }
        Err(error) => vec![ReadResult::Unknown(explain(&error))],
    }
}

async fn installed(reader: &Reader) -> ReadResult<Vec<String>> {
    const PATH: &str = "/apis/storage.k8s.io/v1/csidrivers";
    match reader.all::<Object>(PATH).await {
        // A server that does not serve the kind has none.
        Err(error) if error.class() == ErrorClass::NotServed => ReadResult::Found(Vec::new()),
        read => {
            ReadResult::from(read).map(|all| all.into_iter().map(|one| one.metadata.name).collect())
        }
    }
}

/// The words of commands and variables that may be names of drivers, of each workload that may run one. What cannot be
/// read ties nothing.
async fn named(reader: &Reader) -> BTreeMap<String, BTreeSet<String>> {
    let mut named = BTreeMap::new();
    for plural in ["deployments", "statefulsets", "daemonsets"] {
        let path = format!("/apis/apps/v1/{plural}");
        let all = reader.all::<WorkloadObject<Container>>(&path).await;
        for one in all.into_iter().flatten() {
            let containers = &one.spec.template.spec.containers;
            let is_csi = |text: &str| text.contains("csi");
            let place = format!("{}/{}", one.metadata.namespace, one.metadata.name);
            if is_csi(&place) || containers.iter().any(|one| is_csi(&one.image)) {
                named.insert(place, containers.iter().flat_map(names).collect());
            }
        }
    }
    named
}

/// What may be a name of a driver: `a.b`, also in `--flag=a.b` and `/plugins/a.b/csi.sock`.
fn names(container: &Container) -> impl Iterator<Item = String> {
    let values = container.env.iter().map(|one| &*one.value);
    let texts = container.words().chain(values);
    texts
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && !".-_".contains(c)))
        .filter(|word| word.contains('.'))
        .map(hyphenated)
}

#[cfg(test)]
mod tests;
