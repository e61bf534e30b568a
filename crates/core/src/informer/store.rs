mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::RwLock;

use super::state::Progress;
use super::table::{IndexDefinition, Table};
use super::{InformerState, Stored, WaitError};
use crate::object::{ObjectKey, ResourceVersion};
use crate::slim::Slim;
use crate::watch;

pub(super) use write::{Applied, Fit};

/// The answer to "is there an object of this key?".
#[derive(Debug)]
pub enum Lookup<K> {
    /// The store cannot say: its first list is not complete, the kind is not served, or what is
    /// there cannot be read.
    Unknown,
    /// As of the store's version there is none.
    Absent,
    /// There is one.
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
    /// The object, if one was found. Says nothing about why not.
    pub fn found(self) -> Option<Stored<K>> {
        match self {
            Self::Found(stored) => Some(stored),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// What is known of one kind. Cheap to clone: all clones are one store.
///
/// Reads take a lock for as long as they copy references, never across an await.
pub struct Store<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    contents: RwLock<Contents<K>>,
    progress: watch::Sender<Progress>,
    state: watch::Sender<InformerState>,
}

struct Contents<K> {
    table: Table<K>,
    /// Whether what is not in the table is absent.
    complete: bool,
    unreadable: Unreadable,
}

/// Objects that exist and cannot be read.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    keys: BTreeSet<ObjectKey>,
    /// How many said not even whose they were.
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
    pub(super) fn new(definitions: Arc<[IndexDefinition<K>]>) -> Self {
        let contents = Contents {
            table: Table::new(definitions),
            complete: false,
            unreadable: Unreadable::default(),
        };
        Self {
            shared: Arc::new(Shared {
                contents: RwLock::new(contents),
                progress: watch::Sender::new(Progress::default()),
                state: watch::Sender::new(InformerState::Starting),
            }),
        }
    }

    /// The object of a key.
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

    /// All objects with `value` in an index, in no order that means anything; `None` while the
    /// store is not complete, or if there is no such index. Objects that cannot be read are not
    /// among them: see [`Store::unreadable`].
    pub fn by_index(&self, index: &str, value: &str) -> Option<Vec<Stored<K>>> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        Some(contents.table.find(index, value).cloned().collect())
    }

    /// Shows the objects with `value` in an index to `look` until it breaks off; `None` while the
    /// store is not complete, or if there is no such index. Writers wait meanwhile.
    pub fn scan_index(
        &self,
        index: &str,
        value: &str,
        mut look: impl FnMut(&Stored<K>) -> ControlFlow<()>,
    ) -> Option<()> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        let _ = contents.table.find(index, value).try_for_each(&mut look);
        Some(())
    }

    /// How many [`Store::by_index`] would find.
    pub fn count_by_index(&self, index: &str, value: &str) -> Option<usize> {
        let contents = self.shared.contents.read();
        let index = contents.table.index(index).filter(|_| contents.complete)?;
        Some(contents.table.count(index, value))
    }

    /// Shows every object that is held, complete or not, to `look`. Writers wait meanwhile: look,
    /// do not work.
    pub fn for_each(&self, mut look: impl FnMut(&Stored<K>)) {
        self.shared.contents.read().table.iter().for_each(&mut look);
    }

    /// How many objects are held, complete or not.
    pub fn len(&self) -> usize {
        self.shared.contents.read().table.len()
    }

    /// Whether no object is held. Says nothing about whether there are any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many objects are known to exist that cannot be read. While there are any, the store's
    /// silence about the whole kind proves nothing.
    pub fn unreadable(&self) -> usize {
        let contents = self.shared.contents.read();
        contents.unreadable.keys.len() + contents.unreadable.nameless
    }

    /// The version that the store is as of. Rises with events, bookmarks and lists.
    pub fn resource_version(&self) -> ResourceVersion {
        self.shared.progress.borrow().resource_version
    }

    /// Waits until the store is complete and as of `version` or later.
    ///
    /// # Errors
    ///
    /// When that may never come: the versions started over, or the informer was stopped.
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

    /// Whether the store is complete: what it does not hold is absent.
    pub fn is_synced(&self) -> bool {
        self.shared.contents.read().complete
    }

    /// Waits until the first list is in and all handlers have seen it.
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

    /// How the informer is doing.
    pub fn state(&self) -> InformerState {
        self.shared.state.borrow().clone()
    }

    /// Follows how the informer is doing.
    pub fn watch_state(&self) -> watch::Receiver<InformerState> {
        self.shared.state.subscribe()
    }
}
