//! The whole cluster in memory. HTTP, simulated controllers and tests all use it.

mod admit;
mod apply;
mod create;
mod definitions;
mod delete;
pub(crate) mod event_view;
mod managed;
mod patch;
mod pods;
mod read;
mod roles;
pub(crate) mod shape;
mod state;
mod subscription;
mod types;
mod update;
mod write;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use patch::{patch_any, unsupported_strategic};
pub(crate) use read::{check_match, list_options_invalid, parse_version, too_large};
pub(crate) use state::{Consequence, State};
pub use state::{EventType, StoreEvent};
pub use subscription::{Expired, Subscription};
pub use types::{
    DeleteOptions, Deleted, FieldValidation, ListOptions, ListPage, Patch, Preconditions,
    Propagation, VersionMatch, WriteOptions,
};
pub(crate) use written::{Effect, Written};

use crate::address::{Actor, Gvr, ObjectKey};
use crate::clock::{Clock, SharedRng};
use crate::error::ApiError;
use crate::kinds::{Registry, ResourceInfo, Scope};
use crate::recorder::{Recorder, Recording};
use crate::signal::Signal;

/// Namespaces that exist from the start and cannot be deleted, as on a real server.
const FIRST_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The actor of the server's own writes.
const SERVER: &str = "kube-apiserver";

/// The whole cluster in memory. Cheap to clone; every clone is the same cluster.
///
/// All methods are synchronous and atomic. Each write is checked, stored, logged and recorded in one step.
///
/// [`Sandbox::cluster`](crate::Sandbox::cluster) returns it. In tests of controllers its methods
/// play the users and controllers beside them.
///
/// ```
/// use belayer_sandbox::{Actor, Gvr, Sandbox, WriteOptions};
/// use serde_json::json;
///
/// let sandbox = Sandbox::default();
/// let (cluster, user) = (sandbox.cluster(), Actor::new("user"));
/// let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
/// cluster.create(&user, &Gvr::CONFIGMAPS, Some("default"), map, &WriteOptions::default())?;
/// let stored = cluster.get(&Gvr::CONFIGMAPS, Some("default"), "settings")?;
/// assert!(stored["metadata"]["uid"].is_string());
/// # Ok::<(), belayer_sandbox::ApiError>(())
/// ```
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    /// Wakes subscriptions.
    pub(crate) changed: Signal,
    clock: Clock,
    rng: SharedRng,
    recorder: Recorder,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster with its first namespaces and nothing else. `log_limit` is how many changes
    /// watches can go back.
    pub fn new(clock: Clock, rng: SharedRng, log_limit: usize) -> Self {
        Self::recorded(clock, rng, log_limit, Recording::Everything)
    }

    /// The same, with a choice of what is recorded.
    pub fn recorded(clock: Clock, rng: SharedRng, log_limit: usize, recording: Recording) -> Self {
        let state = State::new(Registry::with_builtin(), log_limit);
        let inner = Inner {
            state: Mutex::new(state),
            changed: Signal::default(),
            recorder: Recorder::new(clock.clone(), recording),
            clock,
            rng,
        };
        let cluster = Cluster {
            inner: Arc::new(inner),
        };
        cluster.create_first_namespaces();
        cluster
    }

    fn create_first_namespaces(&self) {
        let actor = Actor::new(SERVER);
        for name in FIRST_NAMESPACES {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let made = self.create(
                &actor,
                &Gvr::NAMESPACES,
                None,
                namespace,
                &WriteOptions::default(),
            );
            debug_assert!(made.is_ok(), "{made:?}");
        }
        self.inner.recorder.clear();
        // As on a server that has run for a while: its first versions are compacted.
        let mut state = self.inner.state.lock();
        let newest = state.rv;
        state.compact(newest);
    }

    /// Wall clock of the cluster.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Seeded randomness.
    pub fn rng(&self) -> &SharedRng {
        &self.inner.rng
    }

    /// Who wrote what.
    pub fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.inner.state.lock().rv
    }

    /// Compacts all changes up to a version: older watches and continue tokens get 410.
    pub fn compact(&self, version: u64) {
        self.inner.state.lock().compact(version);
        // Wake readers behind that version, so that they see the error.
        self.inner.changed.raise();
    }

    /// Every served kind, ordered by group and resource.
    pub fn resources(&self) -> Vec<Arc<ResourceInfo>> {
        self.inner.state.lock().kinds.all().cloned().collect()
    }

    /// The kind of a resource, if it is served at that version.
    pub fn resource(&self, gvr: &Gvr) -> Option<Arc<ResourceInfo>> {
        self.inner.state.lock().kinds.find(gvr).cloned()
    }

    /// The kind with this `apiVersion` and `kind`, as in an owner reference or a manifest.
    pub fn resource_of_kind(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Option<(Arc<ResourceInfo>, Gvr)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let state = self.inner.state.lock();
        let info = state.kinds.all().find(|info| {
            info.group == group && info.kind == kind && info.version(version).is_some()
        })?;
        Some((Arc::clone(info), info.gvr(version)))
    }

    /// Everything after a version, of one resource or of all.
    pub fn subscribe(&self, resource: Option<&Gvr>, from: u64) -> Subscription {
        let resource = resource.map(|gvr| (gvr.group.to_string(), gvr.resource.to_string()));
        Subscription::new(self.clone(), resource, from)
    }

    /// How many objects there are, per `resource.group`.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let counts = self.inner.state.lock().counts();
        counts
            .into_iter()
            .map(|((group, resource), n)| (crate::error::qualified(&resource, &group), n))
            .collect()
    }
}

/// Finds the kind and the object's key; checks scope and namespace.
fn locate(
    state: &State,
    gvr: &Gvr,
    namespace: Option<&str>,
    name: &str,
) -> Result<(Arc<ResourceInfo>, ObjectKey), ApiError> {
    let info = state.kinds.find(gvr).ok_or_else(ApiError::not_served)?;
    let namespace = namespace.filter(|ns| !ns.is_empty());
    if (info.scope == Scope::Namespaced) != namespace.is_some() {
        return Err(ApiError::not_served());
    }
    Ok((Arc::clone(info), ObjectKey::new(namespace, name)))
}

/// The object as a version shows it. A stored object has the storage version and the schema of when it was written.
pub(crate) fn at_version(info: &ResourceInfo, version: &str, object: Arc<Value>) -> Arc<Value> {
    if event_view::is_form_of(info) {
        return Arc::new(event_view::outgoing(&object));
    }
    if is_shown_as_stored(info, version, &object) {
        return object;
    }
    let mut shown = Value::clone(&object);
    shape::read(info, version, &mut shown);
    Arc::new(shown)
}

/// Whether a version shows a stored object as it is.
pub(crate) fn is_shown_as_stored(info: &ResourceInfo, version: &str, object: &Value) -> bool {
    !event_view::is_form_of(info) && info.is_at(version, object) && !info.schemas.are_varied()
}
