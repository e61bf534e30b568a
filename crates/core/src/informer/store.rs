use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::state::Progress;
use super::table::{IndexDefinition, Table};
use super::{BadObject, Change, Event, InformerState, Stored, WaitError};
use crate::moment::Moment;
use crate::object::{ObjectKey, ResourceVersion};
use crate::slim::Slim;

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
        Self { shared: Arc::clone(&self.shared) }
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
        let regressions = progress.borrow_and_update().regressions;
        let waited = progress.wait_for(|now| {
            now.stopped
                || now.regressions != regressions
                || (now.complete && now.resource_version >= version)
        });
        let now = *waited.await.map_err(|_| WaitError::Stopped)?;
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
        if *seen == InformerState::Stopped { Err(WaitError::Stopped) } else { Ok(()) }
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

/// How a list fits what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// At least as new.
    Follows,
    /// Older, and believed all the same.
    Regresses,
}

/// What came of one event of a watch.
#[derive(Debug)]
pub(super) enum Applied<K> {
    /// The store changed; the events say how. A change that no decision reads has none.
    Changed(Vec<Event<K>>),
    /// It was known already.
    Known,
    /// It is older than what is known: the server lags behind.
    Stale,
}

/// For the informer's task, the only writer.
impl<K: Slim> Store<K> {
    pub(super) fn set_state(&self, new: InformerState) {
        self.shared.state.send_if_modified(|state| {
            let differs = *state != new;
            *state = new;
            differs
        });
    }

    pub(super) fn stop(&self) {
        self.shared.progress.send_modify(|progress| progress.stopped = true);
        self.set_state(InformerState::Stopped);
    }

    /// Raises the watermark; `false` if it was there already.
    pub(super) fn advance(&self, version: ResourceVersion) -> bool {
        self.shared.progress.send_if_modified(|progress| {
            let rises = version > progress.resource_version;
            progress.resource_version = progress.resource_version.max(version);
            rises
        })
    }

    /// From now on the store cannot say what is absent. The objects stay, for the next list to be
    /// compared with.
    pub(super) fn unserve(&self) {
        self.shared.contents.write().complete = false;
        self.shared.progress.send_modify(|progress| progress.complete = false);
    }

    /// Whether something unreadable said not even whose it was.
    pub(super) fn has_nameless(&self) -> bool {
        self.shared.contents.read().unreadable.nameless > 0
    }

    /// A table to collect a list in.
    pub(super) fn stage(&self) -> Table<K> {
        self.shared.contents.read().table.empty_like()
    }

    /// An object for such a table. What is stored in the same state already is not held twice.
    pub(super) fn staged(&self, object: K) -> Stored<K> {
        let contents = self.shared.contents.read();
        let same = contents.table.get(object.key()).filter(|have| {
            have.uid() == object.uid() && have.resource_version() == object.resource_version()
        });
        // The moments are set when the list is complete.
        same.cloned().unwrap_or_else(|| Stored::fresh(Arc::new(object), Moment::BEGINNING))
    }

    /// Takes an object of a watch that started at `since`.
    pub(super) fn upsert(&self, object: K, since: ResourceVersion) -> Applied<K> {
        let mut contents = self.shared.contents.write();
        let Contents { table, unreadable, .. } = &mut *contents;
        let version = object.resource_version();
        let Some(have) = table.get(object.key()) else {
            if version < since {
                return Applied::Stale;
            }
            unreadable.keys.remove(object.key());
            let added = Stored::fresh(Arc::new(object), Moment::now());
            table.insert(added.clone());
            return Applied::Changed(vec![Event::Added { object: added, initial: false }]);
        };
        if version < have.resource_version() || version < since {
            return Applied::Stale;
        }
        unreadable.keys.remove(object.key());
        if object.uid() != have.uid() {
            let last = have.clone();
            let added = Stored::fresh(Arc::new(object), Moment::now());
            table.insert(added.clone());
            return Applied::Changed(vec![
                Event::Deleted { last, final_state_known: false },
                Event::Added { object: added, initial: false },
            ]);
        }
        if version == have.resource_version() {
            return Applied::Known;
        }
        if !object.differs(&have.object) {
            // A heartbeat. Indexes cannot have changed; often not even an allocation is needed.
            if let Some(have) = table.get_mut(object.key()) {
                match Arc::get_mut(&mut have.object) {
                    Some(place) => *place = object,
                    None => have.object = Arc::new(object),
                }
            }
            return Applied::Changed(Vec::new());
        }
        let new = have.followed_by(Arc::new(object), Moment::now());
        let old = table.insert(new.clone());
        let event = old.map(|old| Event::Updated { old, new });
        Applied::Changed(event.into_iter().collect())
    }

    /// Takes a deletion. That of a UID is final whatever its version.
    pub(super) fn delete(&self, object: K) -> Applied<K> {
        let mut contents = self.shared.contents.write();
        let Contents { table, unreadable, .. } = &mut *contents;
        let Some(have) = table.get(object.key()) else {
            unreadable.keys.remove(object.key());
            return Applied::Known;
        };
        if have.uid() == object.uid() {
            let last = have.followed_by(Arc::new(object), Moment::now());
            table.remove(last.key());
            unreadable.keys.remove(last.key());
            return Applied::Changed(vec![Event::Deleted { last, final_state_known: true }]);
        }
        if object.resource_version() <= have.resource_version() {
            return Applied::Known;
        }
        // The deletion of ours and the coming of this one were both missed.
        let event = table.remove(object.key());
        unreadable.keys.remove(object.key());
        let event = event.map(|last| Event::Deleted { last, final_state_known: false });
        Applied::Changed(event.into_iter().collect())
    }

    /// Takes something unreadable. A deletion needs no more than a UID to be understood.
    pub(super) fn skip(&self, bad: &BadObject) -> Vec<Event<K>> {
        let mut contents = self.shared.contents.write();
        let Contents { table, unreadable, .. } = &mut *contents;
        let mut events = vec![Event::Skipped { key: bad.key.clone() }];
        let gone = bad.change == Some(Change::Gone);
        let same_uid = |have: &&Stored<K>| bad.uid.as_ref() == Some(have.uid());
        match &bad.key {
            Some(key) if gone => {
                unreadable.keys.remove(key);
                if table.get(key).as_ref().is_some_and(same_uid) {
                    let last = table.remove(key);
                    let event = last.map(|last| Event::Deleted { last, final_state_known: false });
                    events.extend(event);
                }
            }
            // An event that is none at all says nothing about an object.
            None if bad.change.is_none() => {}
            key => unreadable.note(key.as_ref()),
        }
        events
    }

    /// Puts a complete list in the place of what was known. Vanished objects come first, by key,
    /// then what the list brought, in its order.
    pub(super) fn replace(
        &self,
        mut staged: Table<K>,
        unreadable: Unreadable,
        version: ResourceVersion,
        fit: Fit,
    ) -> Vec<Event<K>> {
        let mut contents = self.shared.contents.write();
        let now = Moment::now();
        let initial = !self.shared.progress.borrow().ever_complete();
        let mut changes = Vec::new();
        let mut newer = Vec::new();
        for listed in staged.iter_mut() {
            let Some(old) = contents.table.get(listed.key()) else {
                *listed = Stored::fresh(Arc::clone(&listed.object), now);
                changes.push(Event::Added { object: listed.clone(), initial });
                continue;
            };
            if old.uid() != listed.uid() {
                *listed = Stored::fresh(Arc::clone(&listed.object), now);
                changes.push(Event::Deleted { last: old.clone(), final_state_known: false });
                changes.push(Event::Added { object: listed.clone(), initial });
                continue;
            }
            if fit == Fit::Follows && listed.resource_version() < old.resource_version() {
                // The list as a whole is newer, this item is not: never backwards.
                newer.push(old.clone());
                continue;
            }
            *listed = old.followed_by(Arc::clone(&listed.object), now);
            if listed.differs(&old.object) {
                changes.push(Event::Updated { old: old.clone(), new: listed.clone() });
            }
        }
        for stored in newer {
            staged.insert(stored);
        }
        let is_gone = |old: &&Stored<K>| staged.get(old.key()).is_none();
        let mut vanished: Vec<_> = contents.table.iter().filter(is_gone).cloned().collect();
        vanished.sort_by(|a, b| a.key().cmp(b.key()));
        let mut events = Vec::with_capacity(vanished.len() + changes.len());
        for last in vanished {
            if unreadable.keys.contains(last.key()) {
                // It is there, in a shape that cannot be read: the last good one stays.
                staged.insert(last);
            } else {
                events.push(Event::Deleted { last, final_state_known: false });
            }
        }
        events.append(&mut changes);
        *contents = Contents { table: staged, complete: true, unreadable };
        self.shared.progress.send_modify(|progress| {
            progress.resource_version = version;
            progress.complete = true;
            progress.lists += 1;
            progress.regressions += u64::from(fit == Fit::Regresses);
        });
        events
    }

    #[cfg(test)]
    pub(super) fn index_values(&self, index: &str) -> usize {
        let contents = self.shared.contents.read();
        contents.table.index(index).map_or(0, |index| contents.table.values(index))
    }
}
