mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::state::Progress;
use super::table::{IndexDefinition, Table};
use super::{InformerState, Stored, WaitError};
use crate::object::{ObjectKey, ResourceVersion};
use crate::slim::Slim;
use crate::watch;

pub(super) use write::{Applied, Fit};

/// How long a live read waits for a store to reach the version that the server is at. After that it lists.
const SOON: Duration = Duration::from_millis(250);

/// The result of a lookup by key. Returned by [`Store::lookup`](crate::informer::Store::lookup).
#[derive(Debug)]
pub enum Lookup<K> {
    /// The store cannot tell: its first list is not complete, the kind is not served, or the object
    /// cannot be decoded.
    Unknown,
    /// The object does not exist as of the store's version.
    Absent,
    /// The object exists.
    Found(Stored<K>),
}

impl<K> Clone for Lookup<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Absent => Self::Absent,
            Self::Found(stored) => Self::Found(stored.clone()),
        }
    }
}

impl<K> Lookup<K> {
    /// The object, if it was found. `None` is not evidence of absence.
    pub fn found(self) -> Option<Stored<K>> {
        match self {
            Self::Found(stored) => Some(stored),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The objects of one kind. Cheap to clone: all clones are one store.
///
/// Reads hold a lock while they copy references, never across an await.
///
/// ```
/// use belayer_core::{Lookup, ObjectKey, OwnerMeta, Store};
///
/// fn describe(store: &Store<OwnerMeta>, key: &ObjectKey) -> String {
///     match store.lookup(key) {
///         Lookup::Found(job) => format!("{key} has the UID {}", job.object.meta.uid),
///         Lookup::Absent => format!("{key} does not exist"),
///         // Not "does not exist": the first list is not complete, for example.
///         Lookup::Unknown => format!("{key} may exist"),
///     }
/// }
/// ```
pub struct Store<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    contents: RwLock<Contents<K>>,
    progress: watch::Sender<Progress>,
    state: watch::Sender<InformerState>,
    updates: Updates,
    label: Arc<str>,
}

/// Which new versions of an object are updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Updates {
    /// Those that [differ](Slim::differs).
    #[default]
    OfStoredFields,
    /// All.
    OfEachVersion,
}

struct Contents<K> {
    table: Table<K>,
    /// Whether an object that is not in the table is absent.
    complete: bool,
    unreadable: Unreadable,
    /// Until the first list is complete: what another informer has seen of the same objects.
    previous: Option<Store<K>>,
}

/// Objects that exist and cannot be decoded.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    keys: BTreeSet<ObjectKey>,
    /// How many of them could not be identified.
    nameless: usize,
}

impl Unreadable {
    pub(super) fn note(&mut self, key: Option<&ObjectKey>) {
        match key {
            Some(key) => {
                self.keys.insert(key.clone());
            }
            None => self.nameless += 1,
        }
    }

    /// The object of this name was read since, or is gone.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
    }

    fn hides(&self, key: &ObjectKey) -> bool {
        self.nameless > 0 || self.keys.contains(key)
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Slim> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("objects", &self.len())
            .field("resource_version", &self.resource_version())
            .field("state", &*self.shared.state.borrow())
            .finish()
    }
}

impl<K: Slim> Store<K> {
    pub(super) fn new(
        definitions: Arc<[IndexDefinition<K>]>,
        updates: Updates,
        label: Arc<str>,
    ) -> Self {
        let contents = Contents {
            table: Table::new(definitions),
            complete: false,
            unreadable: Unreadable::default(),
            previous: None,
        };
        Self {
            shared: Arc::new(Shared {
                contents: RwLock::new(contents),
                progress: watch::Sender::new(Progress::default()),
                state: watch::Sender::new(InformerState::Starting),
                updates,
                label,
            }),
        }
    }

    /// The label `kind` of the metrics of its informer.
    pub fn label(&self) -> &str {
        &self.shared.label
    }

    /// Whether the event of a new version is an update.
    fn is_update(&self, new: &K, old: &K) -> bool {
        let each = self.shared.updates == Updates::OfEachVersion;
        each && new.resource_version() != old.resource_version() || new.differs(old)
    }

    /// Lets the objects of the first list [inherit](Slim::inherit) what the informer of `previous`, which is still
    /// running, has seen of them. Call it before the informer runs.
    pub fn take_over(&self, previous: &Self) {
        self.shared.contents.write().previous = Some(previous.clone());
    }

    /// Looks up the object of a key.
    pub fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        let contents = self.shared.contents.read();
        if !contents.complete {
            return Lookup::Unknown;
        }
        match contents.table.get(key) {
            Some(stored) => Lookup::Found(stored.clone()),
            None if contents.unreadable.hides(key) => Lookup::Unknown,
            None => Lookup::Absent,
        }
    }

    /// All objects with `value` in an index, in no particular order; `None` while the store is not
    /// complete, or without such an index. Objects that cannot be decoded are not included: see
    /// [`Store::unreadable`].
    pub fn by_index(&self, index: &str, value: &str) -> Option<Vec<Stored<K>>> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        Some(contents.table.find(index, value).cloned().collect())
    }

    /// Calls `visit` with the objects that have `value` in an index until it breaks; `None` while
    /// the store is not complete, or without such an index. Writers wait in the meantime.
    pub fn scan_index(
        &self,
        index: &str,
        value: &str,
        mut visit: impl FnMut(&Stored<K>) -> ControlFlow<()>,
    ) -> Option<()> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        let _ = contents.table.find(index, value).try_for_each(&mut visit);
        Some(())
    }

    /// The number of objects that [`Store::by_index`] would return.
    pub fn count_by_index(&self, index: &str, value: &str) -> Option<usize> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        Some(contents.table.count(index, value))
    }

    /// Calls `visit` with every object in the store, whether the store is complete or not. Writers
    /// wait in the meantime, so `visit` must be short.
    pub fn for_each(&self, mut visit: impl FnMut(&Stored<K>)) {
        self.shared
            .contents
            .read()
            .table
            .iter()
            .for_each(&mut visit);
    }

    /// The number of objects in the store, whether it is complete or not.
    pub fn len(&self) -> usize {
        self.shared.contents.read().table.len()
    }

    /// Whether the store has no objects. Not evidence that none exist.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of objects that exist and cannot be decoded. While it is not zero, the store
    /// cannot prove that an object of the kind is absent.
    pub fn unreadable(&self) -> usize {
        let contents = self.shared.contents.read();
        contents.unreadable.keys.len() + contents.unreadable.nameless
    }

    /// The version of the store. Rises with events, bookmarks and lists.
    pub fn resource_version(&self) -> ResourceVersion {
        self.shared.progress.borrow().resource_version
    }

    /// Waits until the store is complete and at `version` or later.
    ///
    /// # Errors
    ///
    /// If that may never happen: the versions went back, or the informer was stopped.
    pub async fn wait_for(&self, version: ResourceVersion) -> Result<(), WaitError> {
        let mut progress = self.shared.progress.subscribe();
        let regressions = progress.borrow().regressions;
        let waited = progress.wait_for(|now| {
            now.stopped
                || now.regressions != regressions
                || (now.complete && now.resource_version >= version)
        });
        let now = waited.await.map_err(|_| WaitError::Stopped)?;
        if now.regressions != regressions {
            return Err(WaitError::Regressed);
        }
        if now.complete && now.resource_version >= version {
            return Ok(());
        }
        Err(WaitError::Stopped)
    }

    /// Whether the store reaches this version within 250 ms and contains every object: it is then as good as a list at that
    /// version. A store of objects that do not change may never reach the version of a server on which others change.
    ///
    /// `before` is the store's version from before the read that returned `version`. If that is the later one, the
    /// server's data went back (a restored etcd), and the store has not followed yet.
    pub async fn reaches_soon(&self, version: ResourceVersion, before: ResourceVersion) -> bool {
        if version < before {
            return false;
        }
        let reached = tokio::time::timeout(SOON, self.wait_for(version)).await;
        matches!(reached, Ok(Ok(()))) && self.unreadable() == 0
    }

    /// Whether the store is complete: an object that it does not contain is absent.
    pub fn is_synced(&self) -> bool {
        self.shared.contents.read().complete
    }

    /// Waits until the first list is complete and all handlers were called.
    ///
    /// # Errors
    ///
    /// [`WaitError::Stopped`] if the informer was stopped before.
    pub async fn synced(&self) -> Result<(), WaitError> {
        let mut state = self.shared.state.subscribe();
        let seen = state
            .wait_for(|now| matches!(now, InformerState::Synced | InformerState::Stopped))
            .await
            .map_err(|_| WaitError::Stopped)?;
        if seen == InformerState::Stopped {
            Err(WaitError::Stopped)
        } else {
            Ok(())
        }
    }

    /// The state of the informer.
    pub fn state(&self) -> InformerState {
        self.shared.state.borrow().clone()
    }

    /// Subscribes to the state of the informer.
    pub fn watch_state(&self) -> watch::Receiver<InformerState> {
        self.shared.state.subscribe()
    }
}
