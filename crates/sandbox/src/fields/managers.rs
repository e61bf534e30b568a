//! The entries of `managedFields`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::changes::{Change, compare};
use super::schema::Shape;
use super::set::{self, Set};
use crate::meta;

/// Entries of updates beyond this number are merged into one.
const MOST_UPDATERS: usize = 10;
/// The manager of the merged entries.
const ANCIENT: &str = "ancient-changes";

/// Fields without an owner: `apiVersion` and `kind`, and these of metadata.
const UNOWNED: &[&str] = &[
    ".",
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:clusterName",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// The operation of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes, and what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    /// RFC 3339, in seconds. Empty for writes whose entries have no time.
    pub(crate) now: &'a str,
    pub(crate) shape: Shape<'a>,
    /// Fields that this write does not own, with all fields below them.
    pub(crate) ignored: &'a [&'static [&'static str]],
}

impl Writer<'_> {
    /// The difference between two states, as far as this endpoint can make one.
    pub(super) fn compare(&self, old: &Value, new: &Value) -> Change {
        let mut change = compare(self.shape, old, new);
        for path in self.ignored {
            set::cut(&mut change.changed.below, path);
            set::cut(&mut change.removed.below, path);
        }
        change
    }

    /// Whether an entry is the writer's.
    pub(super) fn is(&self, operation: Operation, entry: &Value) -> bool {
        let text = |field: &str| meta::text(entry, &[field]);
        // An applier has one entry for all versions.
        let version = operation == Operation::Apply || text("apiVersion") == self.api_version;
        version
            && text("operation") == operation.as_str()
            && text("manager") == self.name()
            && text("subresource") == self.subresource
    }

    fn name(&self) -> &str {
        match self.manager {
            "" => "unknown",
            manager => manager,
        }
    }

    /// Sets the time of an entry.
    pub(super) fn stamp(&self, entry: &mut Value) {
        if !self.now.is_empty() {
            entry["time"] = json!(self.now);
        }
    }

    pub(super) fn entry(&self, operation: Operation, fields: Set) -> Value {
        let mut entry = json!({
            "manager": self.name(),
            "operation": operation.as_str(),
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

/// Reads entries that a client sent; `None` if one of them is invalid.
fn read(entries: &[Value]) -> Option<Vec<Value>> {
    let read = |entry: &Value| {
        let text = |field: &str| meta::text(entry, &[field]);
        let good = matches!(text("operation"), "Apply" | "Update")
            && !text("apiVersion").is_empty()
            && text("fieldsType") == "FieldsV1";
        let fields = match entry.get("fieldsV1") {
            Some(fields) => set::read(fields)?,
            None => Set::new(),
        };
        let mut entry = entry.as_object().filter(|_| good)?.clone();
        entry.insert("fieldsV1".to_owned(), Value::Object(fields));
        Some(Value::Object(entry))
    };
    entries.iter().map(read).collect()
}

/// The entries of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Managers(pub(super) Vec<Value>);

impl Managers {
    pub(crate) fn new(entries: Vec<Value>) -> Self {
        Managers(entries)
    }

    /// Entries that a client sent; `None` if one of them is invalid.
    pub(crate) fn sent(entries: &[Value]) -> Option<Self> {
        read(entries).map(Managers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these are the entries.
    pub(crate) fn is(&self, entries: &[Value]) -> bool {
        self.0 == entries
    }

    /// The entries as the object has them; `None` if there is none.
    pub(crate) fn into_value(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }

    /// Notes an update, a patch or a create: the writer owns what it changed, and no other manager does.
    pub(crate) fn update(&mut self, old: &Value, new: &Value, writer: &Writer<'_>) {
        let change = writer.compare(old, new);
        let mut owned = change.changed.below;
        for entry in &mut self.0 {
            if let Some(fields) = fields_mut(entry) {
                set::subtract(fields, &owned);
                set::subtract(fields, &change.removed.below);
            }
        }
        strip(&mut owned);
        if !owned.is_empty() {
            let mine = |entry: &&mut Value| writer.is(Operation::Update, entry);
            match self.0.iter_mut().find(mine) {
                Some(entry) => {
                    if let Some(fields) = fields_mut(entry) {
                        set::unite(fields, &owned);
                    }
                    writer.stamp(entry);
                }
                None => {
                    let mut entry = writer.entry(Operation::Update, owned);
                    writer.stamp(&mut entry);
                    self.0.push(entry);
                }
            }
        }
        self.drop_empty();
        self.merge_oldest();
        self.sort();
    }

    /// Whether the entries differ in nothing but their times.
    pub(crate) fn same_but_times(&self, others: &[Value]) -> bool {
        let same = |(one, other): (&Value, &Value)| meta::same_without(one, other, "time");
        self.0.len() == others.len() && self.0.iter().zip(others).all(same)
    }

    /// Removes the entries of versions that are no longer served.
    pub(crate) fn keep_versions(&mut self, served: impl Fn(&str) -> bool) {
        self.0
            .retain(|entry| served(meta::text(entry, &["apiVersion"])));
    }

    pub(super) fn drop_empty(&mut self) {
        self.0
            .retain(|entry| fields(entry).is_some_and(|fields| !fields.is_empty()));
    }

    /// Merges the oldest entries of updates, one per API version, until few enough are left.
    fn merge_oldest(&mut self) {
        let updates = |entry: &&Value| meta::text(entry, &["operation"]) == "Update";
        let mut number = self.0.iter().filter(updates).count();
        if number <= MOST_UPDATERS {
            return;
        }
        self.sort();
        let mut index = 0;
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        while number > MOST_UPDATERS && index < self.0.len() {
            if meta::text(&self.0[index], &["operation"]) != "Update" {
                index += 1;
                continue;
            }
            let version = meta::text(&self.0[index], &["apiVersion"]).to_owned();
            let Some(bucket) = first.get(&version).copied() else {
                first.insert(version, index);
                index += 1;
                continue;
            };
            let merged = self.0.remove(index);
            if let Some(bucket) = self.0.get_mut(bucket) {
                into_bucket(bucket, &merged);
            }
            number -= 1;
        }
    }

    pub(super) fn sort(&mut self) {
        const ORDER: [&str; 5] = ["operation", "time", "manager", "apiVersion", "subresource"];
        self.0.sort_by(|a, b| {
            let of = |entry| ORDER.map(|field| meta::text(entry, &[field]));
            of(a).cmp(&of(b))
        });
    }
}

fn into_bucket(bucket: &mut Value, merged: &Value) {
    if let (Some(fields), Some(more)) = (fields_mut(bucket), fields(merged)) {
        set::unite(fields, more);
    }
    bucket["manager"] = json!(ANCIENT);
    bucket["time"] = merged["time"].clone();
    if let Some(bucket) = bucket.as_object_mut() {
        bucket.remove("subresource");
    }
}

pub(super) fn fields(entry: &Value) -> Option<&Set> {
    entry.get("fieldsV1").and_then(Value::as_object)
}

fn fields_mut(entry: &mut Value) -> Option<&mut Set> {
    entry.get_mut("fieldsV1").and_then(Value::as_object_mut)
}

pub(super) fn subtract(entry: &mut Value, gone: &Set) {
    if let Some(fields) = fields_mut(entry) {
        set::subtract(fields, gone);
    }
}

/// Removes the fields without an owner.
pub(super) fn strip(owned: &mut Set) {
    for field in ["f:apiVersion", "f:kind"] {
        owned.remove(field);
    }
    let Some(Value::Object(metadata)) = owned.get_mut("f:metadata") else {
        return;
    };
    for field in UNOWNED {
        metadata.remove(*field);
    }
    if metadata.is_empty() {
        owned.remove("f:metadata");
    }
}
