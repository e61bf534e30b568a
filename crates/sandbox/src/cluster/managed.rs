//! `metadata.managedFields` of a write: the entries that the client sent, and the writer.

use serde_json::{Map, Value};

use super::{Cluster, WriteOptions};
use crate::address::{Gvr, Subresource};
use crate::fields::{Managers, Shape, Writer};
use crate::kinds::{ResourceInfo, StatusFace, pod};
use crate::meta;

pub(super) const FIELD: &str = "managedFields";

/// The `managedFields` that a client sent.
pub(super) enum Sent {
    /// None, or invalid ones: the entries of the stored object stay.
    Nothing,
    /// An empty list: all entries are removed.
    FreshStart,
    /// Entries that replace those of the stored object.
    Entries(Vec<Value>),
}

/// Removes the entries that a client sent from the object.
pub(super) fn take_sent(object: &mut Value) -> Sent {
    let sent = meta::metadata_mut(object).and_then(|m| m.remove(FIELD));
    let Some(Value::Array(entries)) = sent else {
        return Sent::Nothing;
    };
    match entries.as_slice() {
        [] => Sent::FreshStart,
        [only] if only.as_object().is_some_and(Map::is_empty) => Sent::FreshStart,
        _ => Sent::Entries(entries),
    }
}

/// The entries of a stored object.
pub(super) fn of(object: &Value) -> &[Value] {
    let entries = meta::at(object, &["metadata", FIELD]).and_then(Value::as_array);
    entries.map_or(&[], Vec::as_slice)
}

impl Sent {
    /// The entries that a write starts with.
    pub(super) fn or(
        self,
        stored: &[Value],
        info: &ResourceInfo,
        subresource: Subresource,
    ) -> Managers {
        let sent = match self {
            // Entries can be set through the object only.
            _ if subresource != Subresource::None => None,
            Sent::Nothing => None,
            Sent::FreshStart => Some(Managers::default()),
            Sent::Entries(entries) if entries == stored => Some(Managers::new(entries)),
            Sent::Entries(entries) => Managers::sent(&entries).map(|mut managers| {
                managers.keep_versions(|version| info.has_api_version(version));
                managers
            }),
        };
        sent.unwrap_or_else(|| Managers::new(stored.to_vec()))
    }
}

/// Whether two states differ in nothing but their entries.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    meta::same_without(old, new, "metadata")
        && meta::same_without(&old["metadata"], &new["metadata"], FIELD)
}

/// Sets the entries of an object.
pub(super) fn set(object: &mut Value, managers: Managers) {
    match managers.into_value() {
        Some(entries) => meta::set(object, FIELD, entries),
        None => meta::unset(object, FIELD),
    }
}

/// The parts of a request that decide who owns what it writes.
pub(super) struct Request<'a> {
    pub(super) info: &'a ResourceInfo,
    pub(super) gvr: &'a Gvr,
    pub(super) subresource: Subresource,
    pub(super) options: &'a WriteOptions,
    pub(super) now: String,
    /// Fields that the server has set in the object.
    pub(super) admitted: Vec<&'static [&'static str]>,
}

impl Cluster {
    /// The parts of a request that decide who owns what it writes.
    pub(super) fn request<'a>(
        &self,
        info: &'a ResourceInfo,
        gvr: &'a Gvr,
        subresource: Subresource,
        options: &'a WriteOptions,
    ) -> Request<'a> {
        Request {
            info,
            gvr,
            subresource,
            options,
            now: self.clock().now_rfc3339(),
            admitted: Vec::new(),
        }
    }
}

impl Request<'_> {
    /// The entries after a write that changed `old` into `new`.
    pub(super) fn updated(&self, sent: Sent, old: &Value, new: &Value) -> Managers {
        let stored = of(old);
        // The real server cannot compare the `Scale` of a custom resource, and leaves the entries as they are.
        if self.info.custom && self.subresource == Subresource::Scale {
            return Managers::new(stored.to_vec());
        }
        let mut managers = sent.or(stored, self.info, self.subresource);
        let unchanged = is_same(old, new) && managers.is(stored);
        // An object without entries stays without.
        if !(managers.is_empty() || unchanged) {
            self.writer(|writer| managers.update(old, new, writer));
        }
        managers
    }

    /// Calls a function with the writer of the request.
    pub(super) fn writer<T>(&self, call: impl FnOnce(&Writer<'_>) -> T) -> T {
        let ignored = ignored(self.info, self.gvr, self.subresource);
        let ignored = [ignored, &self.admitted].concat();
        call(&Writer {
            manager: self.options.manager.as_deref().unwrap_or_default(),
            api_version: &self.gvr.api_version(),
            subresource: self.subresource.as_str(),
            // As on the real server, which loses the times of these entries.
            now: match self.subresource {
                Subresource::Scale => "",
                _ => &self.now,
            },
            shape: Shape::of_kind(self.info, self.gvr),
            ignored: &ignored,
        })
    }
}

/// The absent fields of a new object that admission plugins will set.
pub(super) fn admitted(info: &ResourceInfo, object: &Value) -> Vec<&'static [&'static str]> {
    if !info.is(&Gvr::PODS) {
        return Vec::new();
    }
    let absent = |path: &&&[&str]| meta::at(object, path).is_none();
    pod::ADMITTED.iter().filter(absent).copied().collect()
}

/// The fields that an endpoint resets: whoever sends them does not own them.
fn ignored(
    info: &ResourceInfo,
    gvr: &Gvr,
    subresource: Subresource,
) -> &'static [&'static [&'static str]] {
    let face = info.status_face(&gvr.version);
    match subresource {
        Subresource::Scale => &[],
        Subresource::None if face == StatusFace::None => &[],
        // The finalizers of a namespace have an endpoint of their own.
        Subresource::None if info.is(&Gvr::NAMESPACES) => &[&["status"], &["spec", "finalizers"]],
        Subresource::None | Subresource::Finalize => &[&["status"]],
        Subresource::Status => match (face, info.resource.as_str()) {
            (StatusFace::StatusOnly, _) | (_, "volumeattachments" | "apiservices") => {
                &[&["spec"], &["metadata"]]
            }
            (_, "pods") => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            (_, "deployments") => &[&["spec"], &["metadata", "labels"]],
            _ => &[&["spec"]],
        },
    }
}
