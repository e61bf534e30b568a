//! The writes to a store. The informer's task is the only writer.

use std::sync::Arc;

use super::{Contents, Store, Unreadable};
use crate::informer::table::Table;
use crate::informer::{BadObject, Change, Event, InformerState, Stored};
use crate::logical_time::LogicalTime;
use crate::object::{ObjectKey, ResourceVersion};
use crate::slim::{Slim, Transition};

/// How the version of a list relates to that of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::informer) enum Fit {
    /// The same or newer.
    Follows,
    /// Older, and accepted nevertheless.
    Regresses,
}

/// The effect of one watch event.
#[derive(Debug)]
pub(in crate::informer) enum Applied<K> {
    /// The store changed, with these events. A change that no decision reads has none.
    Changed(Vec<Event<K>>),
    /// The store contained it already.
    Known,
    /// It is older than the store: the server lags.
    Stale,
}

impl<K> Store<K> {
    pub(in crate::informer) fn set_state(&self, new: InformerState) {
        self.shared.state.send_if_modified(|state| {
            let differs = *state != new;
            *state = new;
            differs
        });
    }

    pub(in crate::informer) fn stop(&self) {
        self.shared
            .progress
            .send_modify(|progress| progress.stopped = true);
        self.set_state(InformerState::Stopped);
    }
}

impl<K: Slim> Store<K> {
    /// Raises the version; `false` if it was reached already.
    pub(in crate::informer) fn advance(&self, version: ResourceVersion) -> bool {
        self.shared.progress.send_if_modified(|progress| {
            let rises = version > progress.resource_version;
            progress.resource_version = progress.resource_version.max(version);
            rises
        })
    }

    /// From now on the store cannot tell what is absent. The objects stay, to be compared with the
    /// next list.
    pub(in crate::informer) fn unserve(&self) {
        self.shared.contents.write().complete = false;
        self.shared
            .progress
            .send_modify(|progress| progress.complete = false);
    }

    /// Whether the last list had objects that could not even be identified.
    pub(in crate::informer) fn has_nameless(&self) -> bool {
        self.shared.contents.read().unreadable.nameless > 0
    }

    /// A table to collect a list in. A relist needs no indexes: they are a fifth of the memory of
    /// small objects, and those of the store are kept.
    pub(in crate::informer) fn stage(&self) -> Table<K> {
        let contents = self.shared.contents.read();
        if contents.table.is_empty() {
            contents.table.empty_like()
        } else {
            Table::new(Arc::default())
        }
    }

    /// An object for such a table. An object that is stored in the same version already is shared.
    pub(in crate::informer) fn staged(&self, mut object: K) -> Stored<K> {
        let contents = self.shared.contents.read();
        let known = contents.table.get(object.key());
        if let Some(have) = known.filter(|have| have.uid() == object.uid()) {
            if have.resource_version() == object.resource_version() {
                return have.clone();
            }
            object.inherit(&have.object, Transition::Missed);
        } else if let Some(previous) = &contents.previous
            && let Some(seen) = previous.lookup(object.key()).found()
            && seen.uid() == object.uid()
        {
            let transition = if seen.resource_version() >= object.resource_version() {
                Transition::Watched
            } else {
                Transition::Missed
            };
            object.inherit(&seen.object, transition);
        }
        // The times are set when the list is complete.
        Stored::fresh(Arc::new(object), LogicalTime::BEGINNING)
    }

    /// Applies an object of a watch that started at `since`.
    pub(in crate::informer) fn upsert(&self, mut object: K, since: ResourceVersion) -> Applied<K> {
        let mut contents = self.shared.contents.write();
        let Contents {
            table, unreadable, ..
        } = &mut *contents;
        let version = object.resource_version();
        let transition = if unreadable.hides(object.key()) {
            Transition::Missed
        } else {
            Transition::Watched
        };
        let Some(have) = table.get(object.key()) else {
            if version < since {
                return Applied::Stale;
            }
            unreadable.keys.remove(object.key());
            object.appear(transition);
            let added = Stored::fresh(Arc::new(object), LogicalTime::now());
            table.insert(added.clone());
            return Applied::Changed(vec![Event::Added {
                object: added,
                initial: false,
            }]);
        };
        if version < have.resource_version() || version < since {
            return Applied::Stale;
        }
        unreadable.keys.remove(object.key());
        if object.uid() != have.uid() {
            let last = have.clone();
            object.appear(transition);
            let added = Stored::fresh(Arc::new(object), LogicalTime::now());
            table.insert(added.clone());
            return Applied::Changed(vec![
                Event::Deleted {
                    last,
                    final_state_known: false,
                },
                Event::Added {
                    object: added,
                    initial: false,
                },
            ]);
        }
        if version == have.resource_version() {
            return Applied::Known;
        }
        object.inherit(&have.object, transition);
        if !self.is_update(&object, &have.object) {
            // A heartbeat. Indexes cannot have changed; often no allocation is needed.
            if let Some(have) = table.get_mut(object.key()) {
                match Arc::get_mut(&mut have.object) {
                    Some(place) => *place = object,
                    None => have.object = Arc::new(object),
                }
            }
            return Applied::Changed(Vec::new());
        }
        let new = have.followed_by(Arc::new(object), LogicalTime::now());
        let old = table.insert(new.clone());
        let event = old.map(|old| Event::Updated { old, new });
        Applied::Changed(event.into_iter().collect())
    }

    /// Applies a deletion. The deletion of a UID is final whatever its version.
    pub(in crate::informer) fn delete(&self, mut object: K) -> Applied<K> {
        let mut contents = self.shared.contents.write();
        let Contents {
            table, unreadable, ..
        } = &mut *contents;
        let Some(have) = table.get(object.key()) else {
            unreadable.keys.remove(object.key());
            return Applied::Known;
        };
        if have.uid() == object.uid() {
            object.inherit(&have.object, Transition::Watched);
            let last = have.followed_by(Arc::new(object), LogicalTime::now());
            table.remove(last.key());
            unreadable.keys.remove(last.key());
            return Applied::Changed(vec![Event::Deleted {
                last,
                final_state_known: true,
            }]);
        }
        if object.resource_version() <= have.resource_version() {
            return Applied::Known;
        }
        // Both the deletion of the stored object and the creation of this one were missed.
        let event = table.remove(object.key());
        unreadable.keys.remove(object.key());
        let event = event.map(|last| Event::Deleted {
            last,
            final_state_known: false,
        });
        Applied::Changed(event.into_iter().collect())
    }

    /// Applies an event that cannot be decoded. A deletion needs only the UID.
    pub(in crate::informer) fn skip(&self, key: &ObjectKey, bad: &BadObject) -> Vec<Event<K>> {
        let mut contents = self.shared.contents.write();
        let Contents {
            table, unreadable, ..
        } = &mut *contents;
        let mut events = vec![Event::Skipped {
            key: Some(key.clone()),
        }];
        if bad.change != Some(Change::Gone) {
            unreadable.note(Some(key));
            return events;
        }
        unreadable.keys.remove(key);
        let same_uid = |have: &&Stored<K>| bad.uid.as_ref() == Some(have.uid());
        if table.get(key).as_ref().is_some_and(same_uid) {
            let last = table.remove(key);
            let event = last.map(|last| Event::Deleted {
                last,
                final_state_known: false,
            });
            events.extend(event);
        }
        events
    }

    /// Replaces the content by a complete list. The events begin with the vanished objects, by key,
    /// then follow the order of the list.
    pub(in crate::informer) fn replace(
        &self,
        staged: Table<K>,
        unreadable: Unreadable,
        version: ResourceVersion,
        fit: Fit,
    ) -> Vec<Event<K>> {
        let mut contents = self.shared.contents.write();
        let initial = !self.shared.progress.borrow().ever_complete();
        let now = LogicalTime::now();
        let events = if contents.table.is_empty() && staged.is_like(&contents.table) {
            contents.table = staged;
            let listed = contents.table.iter_mut();
            let added = listed.map(|listed| {
                *listed = Stored::fresh(Arc::clone(&listed.object), now);
                Event::Added {
                    object: listed.clone(),
                    initial,
                }
            });
            added.collect()
        } else {
            // An object that exists and cannot be decoded keeps its last decoded state.
            let is_gone = |old: &&Stored<K>| {
                staged.get(old.key()).is_none() && !unreadable.keys.contains(old.key())
            };
            let mut gone: Vec<_> = contents.table.iter().filter(is_gone).cloned().collect();
            gone.sort_by(|a, b| a.key().cmp(b.key()));
            let mut events = Vec::with_capacity(gone.len());
            for last in gone {
                contents.table.remove(last.key());
                events.push(Event::Deleted {
                    last,
                    final_state_known: false,
                });
            }
            for listed in staged.iter() {
                self.merge(listed, &mut contents.table, fit, now, &mut events);
            }
            events
        };
        contents.complete = true;
        contents.unreadable = unreadable;
        contents.previous = None;
        self.shared.progress.send_modify(|progress| {
            progress.resource_version = version;
            progress.complete = true;
            progress.lists += 1;
            progress.regressions += u64::from(fit == Fit::Regresses);
        });
        events
    }

    /// Puts an object of a complete list into the table of the lists before it.
    fn merge(
        &self,
        listed: &Stored<K>,
        table: &mut Table<K>,
        fit: Fit,
        now: LogicalTime,
        events: &mut Vec<Event<K>>,
    ) {
        let Some(old) = table
            .get(listed.key())
            .filter(|old| old.uid() == listed.uid())
        else {
            let new = Stored::fresh(Arc::clone(&listed.object), now);
            if let Some(last) = table.insert(new.clone()) {
                events.push(Event::Deleted {
                    last,
                    final_state_known: false,
                });
            }
            events.push(Event::Added {
                object: new,
                initial: false,
            });
            return;
        };
        // The list as a whole is newer; if this item is not, the stored one stays.
        let is_older = listed.resource_version() < old.resource_version();
        let is_same = Arc::ptr_eq(&old.object, &listed.object);
        let object = Arc::clone(&listed.object);
        let new = match fit {
            Fit::Follows if is_same || is_older => return,
            Fit::Follows => old.followed_by(object, now),
            Fit::Regresses => Stored::fresh(object, now),
        };
        if let Some(old) = table.insert(new.clone())
            && self.is_update(&new.object, &old.object)
        {
            events.push(Event::Updated { old, new });
        }
    }

    #[cfg(test)]
    pub(in crate::informer) fn index_values(&self, index: &str) -> usize {
        let contents = self.shared.contents.read();
        contents
            .table
            .index(index)
            .map_or(0, |index| contents.table.values(index))
    }
}
