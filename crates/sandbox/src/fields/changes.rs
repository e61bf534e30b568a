//! Which fields an object has, and which of them a write changes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::key;
use super::schema::{Form, List, Shape};
use super::set::{Branch, Set, of_field};

/// All fields of a value.
pub(super) fn fields(shape: Shape<'_>, value: &Value) -> Branch {
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => Branch {
            own: false,
            below: map_fields(shape, map),
        },
        (Form::List(list), Value::Array(items)) => Branch {
            own: false,
            below: list_fields(&list, items),
        },
        (Form::Map | Form::List(_), Value::Null) => Branch::default(),
        _ => Branch::leaf(),
    }
}

fn map_fields(shape: Shape<'_>, map: &Map<String, Value>) -> Set {
    let mut set = Set::new();
    for (name, value) in map {
        let (inner, named) = shape.field(name).unwrap_or((Shape::Free, false));
        let mut branch = fields(inner, value);
        branch.own |= !named || value.is_null() || value.as_object().is_some_and(Map::is_empty);
        branch.attach(&mut set, || of_field(name));
    }
    set
}

fn list_fields(list: &List<'_>, items: &[Value]) -> Set {
    let mut set = Set::new();
    for (element, found) in index(list, items) {
        let mut branch = match found.as_slice() {
            [only] => fields(list.item, only),
            // Duplicates are owned as a whole.
            _ => Branch::leaf(),
        };
        branch.own = true;
        branch.attach(&mut set, || element);
    }
    set
}

/// The items by their element, without those that cannot be identified.
fn index<'a>(list: &List<'_>, items: &'a [Value]) -> BTreeMap<String, Vec<&'a Value>> {
    let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = key::of_item(list, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}

/// The difference between two states of a value.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Fields that were added, or that have another value.
    pub(super) changed: Branch,
    /// Fields that are gone.
    pub(super) removed: Branch,
}

impl Change {
    fn attach(self, to: &mut Change, element: &str) {
        self.changed
            .attach(&mut to.changed.below, || element.to_owned());
        self.removed
            .attach(&mut to.removed.below, || element.to_owned());
    }
}

/// Compares two states of an object.
pub(super) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Change {
    let mut change = Change::default();
    both(shape, old, new, &mut change);
    change
}

/// Fields that exist in one state only; `Gone` means the old one.
#[derive(Clone, Copy)]
enum Side {
    New,
    Gone,
}

impl Side {
    fn branch(self, change: &mut Change) -> &mut Branch {
        match self {
            Side::New => &mut change.changed,
            Side::Gone => &mut change.removed,
        }
    }
}

fn both(shape: Shape<'_>, old: &Value, new: &Value, change: &mut Change) {
    if old == new {
        return;
    }
    let (before, after) = (shape.form(old), shape.form(new));
    match (after, old, new) {
        (Form::Map, Value::Object(old), Value::Object(new)) => maps(shape, old, new, change),
        (Form::List(list), Value::Array(old), Value::Array(new)) => lists(&list, old, new, change),
        (after, old, new) => {
            // A change between a value and null is one of the items only.
            let leaf =
                |form: &Form<'_>, value: &Value| matches!(form, Form::Leaf) && !value.is_null();
            let both_empty = is_empty(old) && is_empty(new);
            let neither = !is_empty(old) && !is_empty(new);
            change.changed.own = both_empty || neither || leaf(&before, old) || leaf(&after, new);
            items(shape, old, Side::Gone, change);
            items(shape, new, Side::New, change);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn maps(shape: Shape<'_>, old: &Map<String, Value>, new: &Map<String, Value>, change: &mut Change) {
    for (name, value) in new {
        let before = old.get(name);
        if before == Some(value) {
            continue;
        }
        let implied = if before.is_none() {
            shape.implied_at(name)
        } else {
            None
        };
        field(
            shape,
            name,
            before.or(implied.as_ref()),
            Some(value),
            change,
        );
    }
    for (name, value) in old {
        if !new.contains_key(name) {
            let implied = shape.implied_at(name);
            field(shape, name, Some(value), implied.as_ref(), change);
        }
    }
}

fn field(
    shape: Shape<'_>,
    name: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    change: &mut Change,
) {
    let (inner, _) = shape.field(name).unwrap_or((Shape::Free, false));
    let mut below = Change::default();
    match (old, new) {
        (Some(old), Some(new)) => both(inner, old, new, &mut below),
        (Some(old), None) => one(inner, old, Side::Gone, &mut below),
        (None, Some(new)) => one(inner, new, Side::New, &mut below),
        (None, None) => {}
    }
    below.attach(change, &of_field(name));
}

/// A value that only one state has.
fn one(shape: Shape<'_>, value: &Value, side: Side, change: &mut Change) {
    items(shape, value, side, change);
    side.branch(change).own = true;
}

/// What is below a value that only one state has.
fn items(shape: Shape<'_>, value: &Value, side: Side, change: &mut Change) {
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            for (name, value) in map {
                one_field(shape, name, value, side, change);
            }
            for (name, value) in shape.implied() {
                if !map.contains_key(name) {
                    one_field(shape, name, &value, side, change);
                }
            }
        }
        (Form::List(list), Value::Array(items)) => {
            for (element, found) in index(&list, items) {
                one_item(&list, &element, &found, side, change);
            }
        }
        _ => {}
    }
}

fn one_field(shape: Shape<'_>, name: &str, value: &Value, side: Side, change: &mut Change) {
    let (inner, _) = shape.field(name).unwrap_or((Shape::Free, false));
    let mut below = Change::default();
    one(inner, value, side, &mut below);
    below.attach(change, &of_field(name));
}

fn one_item(list: &List<'_>, element: &str, found: &[&Value], side: Side, change: &mut Change) {
    let mut below = Change::default();
    match found {
        [only] => one(list.item, only, side, &mut below),
        _ => side.branch(&mut below).own = true,
    }
    below.attach(change, element);
}

fn lists(list: &List<'_>, old: &[Value], new: &[Value], change: &mut Change) {
    let before = index(list, old);
    let mut after = index(list, new);
    for (element, had) in &before {
        let has = after.remove(element).unwrap_or_default();
        let mut below = Change::default();
        match (had.as_slice(), has.as_slice()) {
            (_, []) => {
                one_item(list, element, had, Side::Gone, change);
                continue;
            }
            ([had], [has]) => both(list.item, had, has, &mut below),
            ([had], _) => {
                one(list.item, had, Side::Gone, &mut below);
                below.changed.own = true;
            }
            (_, [has]) => {
                one(list.item, has, Side::New, &mut below);
                below.removed.own = true;
            }
            (had, has) => below.changed.own = had != has,
        }
        below.attach(change, element);
    }
    for (element, has) in &after {
        one_item(list, element, has, Side::New, change);
    }
}
