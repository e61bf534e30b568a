//! The store against a naive model.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::informer::store::{Applied, Fit, Unreadable, Updates};
use crate::informer::table::IndexDefinition;
use crate::informer::{BadObject, Change, Event, Lookup, Store};
use crate::object::{ObjectKey, ResourceVersion, Uid};
use crate::slim::{DecodeError, ObjectMeta, OwnerMeta, Slim};

/// An object of the model; equal states are equal objects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    key: u8,
    uid: u8,
    version: u64,
    label: u8,
}

impl Thing {
    fn slim(&self) -> OwnerMeta {
        let key = ObjectKey::new("n", self.key.to_string());
        let version = ResourceVersion::new(self.version);
        let mut meta = ObjectMeta::new(key, Uid::new(self.uid.to_string()), version);
        meta.labels = [("l", self.label.to_string())].into_iter().collect();
        OwnerMeta { meta }
    }

    fn of(object: &OwnerMeta) -> Self {
        Self {
            key: object.key().name().parse().unwrap(),
            uid: object.uid().as_str().parse().unwrap(),
            version: object.resource_version().get(),
            label: object.meta.labels.get("l").unwrap().parse().unwrap(),
        }
    }
}

#[derive(Debug, Clone)]
enum StoreStep {
    Upsert(Thing, u64),
    Delete(Thing),
    Skip {
        key: u8,
        uid: Option<u8>,
        gone: bool,
    },
    Relist {
        things: Vec<Thing>,
        unreadable: Option<u8>,
        regress: bool,
    },
    Unserve,
}

fn thing() -> impl Strategy<Value = Thing> {
    (0..5_u8, 0..3_u8, 0..40_u64, 0..3_u8).prop_map(|(key, uid, version, label)| Thing {
        key,
        uid,
        version,
        label,
    })
}

fn step() -> impl Strategy<Value = StoreStep> {
    let relist = (
        proptest::collection::vec(thing(), 0..5),
        any::<Option<u8>>(),
        any::<bool>(),
    );
    prop_oneof![
        8 => (thing(), 0..20_u64).prop_map(|(thing, since)| StoreStep::Upsert(thing, since)),
        4 => thing().prop_map(StoreStep::Delete),
        2 => (0..5_u8, proptest::option::of(0..3_u8), any::<bool>())
            .prop_map(|(key, uid, gone)| StoreStep::Skip { key, uid, gone }),
        1 => relist.prop_map(|(things, unreadable, regress)| {
            let unreadable = unreadable.map(|key| key % 5);
            StoreStep::Relist { things, unreadable, regress }
        }),
        1 => Just(StoreStep::Unserve),
    ]
}

/// The rules, as simple as possible.
#[derive(Default)]
struct Model {
    things: BTreeMap<u8, Thing>,
    complete: bool,
    unreadable: std::collections::BTreeSet<u8>,
}

impl Model {
    fn take(&mut self, step: &StoreStep) {
        match step {
            StoreStep::Upsert(thing, since) => {
                let newest = self.things.get(&thing.key).map_or(0, |have| have.version);
                if thing.version < *since || thing.version < newest {
                    return;
                }
                self.unreadable.remove(&thing.key);
                let have = self.things.get(&thing.key);
                if have.is_none_or(|h| h.uid != thing.uid || h.version != thing.version) {
                    self.things.insert(thing.key, thing.clone());
                }
            }
            StoreStep::Delete(thing) => {
                let have = self.things.get(&thing.key);
                if have.is_none_or(|h| h.uid == thing.uid || h.version < thing.version) {
                    self.things.remove(&thing.key);
                    self.unreadable.remove(&thing.key);
                }
            }
            StoreStep::Skip {
                key, gone: false, ..
            } => {
                self.unreadable.insert(*key);
            }
            StoreStep::Skip {
                key,
                uid,
                gone: true,
            } => {
                self.unreadable.remove(key);
                if self
                    .things
                    .get(key)
                    .is_some_and(|have| Some(have.uid) == *uid)
                {
                    self.things.remove(key);
                }
            }
            StoreStep::Relist {
                things,
                unreadable,
                regress,
            } => {
                let old = std::mem::take(&mut self.things);
                for thing in things {
                    let have = old.get(&thing.key).filter(|have| have.uid == thing.uid);
                    let keep = have.filter(|have| {
                        have.version == thing.version || (!regress && have.version > thing.version)
                    });
                    self.things.insert(thing.key, keep.unwrap_or(thing).clone());
                }
                self.unreadable = unreadable.iter().copied().collect();
                for key in &self.unreadable {
                    if let (Some(have), None) = (old.get(key), self.things.get(key)) {
                        self.things.insert(*key, have.clone());
                    }
                }
                self.complete = true;
            }
            StoreStep::Unserve => self.complete = false,
        }
    }
}

fn act(store: &Store<OwnerMeta>, step: &StoreStep) -> Vec<Event<OwnerMeta>> {
    let events = |applied| match applied {
        Applied::Changed(events) => events,
        Applied::Known | Applied::Stale => Vec::new(),
    };
    match step {
        StoreStep::Upsert(thing, since) => {
            events(store.upsert(thing.slim(), ResourceVersion::new(*since)))
        }
        StoreStep::Delete(thing) => events(store.delete(thing.slim())),
        StoreStep::Skip { key, uid, gone } => {
            let key = ObjectKey::new("n", key.to_string());
            let bad = BadObject {
                key: Some(key.clone()),
                uid: uid.map(|uid| Uid::new(uid.to_string())),
                resource_version: None,
                change: Some(if *gone { Change::Gone } else { Change::Present }),
                why: DecodeError::Missing("metadata.uid"),
            };
            store.skip(&key, &bad)
        }
        StoreStep::Relist {
            things,
            unreadable,
            regress,
        } => {
            let mut staged = store.stage();
            for thing in things {
                staged.insert(store.staged(thing.slim()));
            }
            let mut hidden = Unreadable::default();
            if let Some(key) = unreadable {
                hidden.note(Some(&ObjectKey::new("n", key.to_string())));
            }
            let fit = if *regress {
                Fit::Regresses
            } else {
                Fit::Follows
            };
            store.replace(staged, hidden, ResourceVersion::new(1), fit)
        }
        StoreStep::Unserve => {
            store.unserve();
            Vec::new()
        }
    }
}

/// The objects that a handler derives from the events alone.
fn apply_event(mirror: &mut BTreeMap<u8, Thing>, event: &Event<OwnerMeta>) {
    match event {
        Event::Added { object, .. } => {
            let thing = Thing::of(object);
            assert!(mirror.insert(thing.key, thing).is_none(), "added twice");
        }
        Event::Updated { old, new } => {
            let (old, new) = (Thing::of(old), Thing::of(new));
            let had = mirror
                .insert(new.key, new.clone())
                .expect("updated without being there");
            assert_eq!((had.uid, had.label), (old.uid, old.label));
            assert_eq!(old.uid, new.uid);
            assert_ne!(old.label, new.label, "an update without a change");
        }
        Event::Deleted { last, .. } => {
            let last = Thing::of(last);
            let had = mirror
                .remove(&last.key)
                .expect("deleted without being there");
            assert_eq!(had.uid, last.uid);
        }
        _ => {}
    }
}

/// The value after that of a label.
fn following(label: &str) -> String {
    (label.parse::<u8>().unwrap() + 1).to_string()
}

fn one_index() -> Arc<[IndexDefinition<OwnerMeta>]> {
    Arc::from([IndexDefinition::<OwnerMeta> {
        name: "l",
        values: Box::new(|object, show| {
            // Several values each, which overlap with those of others; duplicates count once.
            for (_, value) in object.meta.labels.iter() {
                show(value);
                show(value);
                show(&following(value));
            }
        }),
    }])
}

proptest! {
    #[test]
    fn the_store_behaves_like_the_model(steps in proptest::collection::vec(step(), 0..60)) {
        let store = Store::new(one_index(), Updates::OfStoredFields, "Pod".into());
        let mut model = Model::default();
        let mut mirror = BTreeMap::new();
        let mut seen = BTreeMap::new();
        for step in &steps {
            // If a list has several items of one key, the last one counts, in both.
            model.take(step);
            for event in act(&store, step) {
                apply_event(&mut mirror, &event);
            }
            let mut held = BTreeMap::new();
            store.for_each(|stored| {
                held.insert(Thing::of(stored).key, Thing::of(stored));
            });
            prop_assert_eq!(&held, &model.things);
            prop_assert_eq!(store.len(), model.things.len());
            let derived: Vec<_> = mirror.values().map(|t: &Thing| (t.key, t.uid, t.label)).collect();
            let held: Vec<_> = held.values().map(|t| (t.key, t.uid, t.label)).collect();
            prop_assert_eq!(derived, held);
            for key in 0..5_u8 {
                let found = store.lookup(&ObjectKey::new("n", key.to_string()));
                match (model.complete, model.things.get(&key)) {
                    (false, _) => prop_assert!(matches!(found, Lookup::Unknown)),
                    (true, None) if model.unreadable.contains(&key) => {
                        prop_assert!(matches!(found, Lookup::Unknown));
                    }
                    (true, None) => prop_assert!(matches!(found, Lookup::Absent)),
                    (true, Some(thing)) => {
                        let Lookup::Found(stored) = found else {
                            return Err(TestCaseError::fail("not found"));
                        };
                        prop_assert_eq!(&Thing::of(&stored), thing);
                        // While the UID is the same, the time is the same.
                        let before = seen.insert(key, (thing.uid, stored.first_seen));
                        if let Some((uid, first_seen)) = before.filter(|(uid, _)| *uid == thing.uid) {
                            prop_assert!(uid == thing.uid && first_seen <= stored.first_seen);
                        }
                    }
                }
            }
            let mut values = 0;
            for label in 0..4_u8 {
                let has = |t: &&Thing| t.label == label || t.label + 1 == label;
                let expected: Vec<_> = model.things.values().filter(has).cloned().collect();
                values += usize::from(!expected.is_empty());
                let label = label.to_string();
                let Some(found) = store.by_index("l", &label) else {
                    prop_assert!(!model.complete);
                    continue;
                };
                let mut found: Vec<_> = found.iter().map(|stored| Thing::of(stored)).collect();
                found.sort_by_key(|thing| thing.key);
                prop_assert_eq!(store.count_by_index("l", &label), Some(found.len()));
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(store.index_values("l"), values, "empty entries are removed");
        }
    }
}
