//! Server-side apply.

use serde_json::Value;

use super::changes::fields as fields_of;
use super::managers::{self, Managers, Operation, Writer};
use super::set::{self, Set};
use super::{check, merge};
use crate::meta;

/// The manager of what existed before the first apply to an object without entries.
const BEFORE: &str = "before-first-apply";
/// The manager for which the annotation of `kubectl apply` counts.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What happens to fields of other managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflicts {
    /// A changed one refuses the apply.
    Refuse,
    /// The applier takes them over.
    Force,
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The manager as in messages: `"kubectl" using v1`.
    pub(crate) manager: String,
    /// `.data.key`.
    pub(crate) path: String,
}

/// Why a configuration cannot be applied.
#[derive(Debug)]
pub(crate) enum ApplyError {
    /// Others own some of its fields.
    Conflicts(Vec<Conflict>),
    /// It does not fit the schema.
    Unfit(String),
}

impl Managers {
    /// Applies a configuration to an object; returns the new object.
    ///
    /// # Errors
    /// Conflicts, and what does not fit the schema. The entries are then undefined.
    pub(crate) fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        writer: &Writer<'_>,
        conflicts: Conflicts,
    ) -> Result<Value, ApplyError> {
        let errors = check::check(writer.shape, config);
        match errors.as_slice() {
            [] => {}
            [only] => return Err(ApplyError::Unfit(only.clone())),
            all => {
                return Err(ApplyError::Unfit(format!(
                    "errors:\n  {}",
                    all.join("\n  ")
                )));
            }
        }
        if self.is_empty() {
            let before = Writer {
                manager: BEFORE,
                ..*writer
            };
            self.update(&Value::Object(Set::new()), live, &before);
        }
        let entries = self.clone();
        let mut applied = self.try_apply(live, config, writer, conflicts);
        if writer.manager == KUBECTL
            && let Err(ApplyError::Conflicts(found)) = applied
        {
            *self = entries;
            applied = self.upgrade(live, config, writer, found);
        }
        let mut object = applied?;
        if writer.manager == KUBECTL {
            sync_last_applied(&mut object, config);
        }
        Ok(object)
    }

    fn try_apply(
        &mut self,
        live: &Value,
        config: &Value,
        writer: &Writer<'_>,
        conflicts: Conflicts,
    ) -> Result<Value, ApplyError> {
        let mut owned = fields_of(writer.shape, config).below;
        for path in writer.ignored {
            set::cut(&mut owned, path);
        }
        let place = self
            .0
            .iter()
            .position(|entry| writer.is(Operation::Apply, entry));
        let mut mine = writer.entry(Operation::Apply, owned);
        let last = place.map(|place| self.0.remove(place));
        if let Some(time) = last.as_ref().and_then(|last| last.get("time")) {
            mine["time"] = time.clone();
        }
        let merged = merge::merge(writer.shape, live, config);
        let last = last.as_ref().and_then(managers::fields);
        let merged = match last.filter(|last| !last.is_empty()) {
            Some(last) => self.prune(&merged, &mine, last, writer),
            None => merged,
        };
        let change = writer.compare(live, &merged);
        self.yield_fields(&change.changed.below, conflicts)?;
        for entry in &mut self.0 {
            managers::subtract(entry, &change.removed.below);
        }
        if merged != *live {
            writer.stamp(&mut mine);
        }
        if let Some(Value::Object(owned)) = mine.get_mut("fieldsV1") {
            managers::strip(owned);
        }
        self.0.push(mine);
        self.drop_empty();
        self.sort();
        Ok(merged)
    }

    /// Others no longer own the changed fields.
    fn yield_fields(&mut self, changed: &Set, conflicts: Conflicts) -> Result<(), ApplyError> {
        if conflicts == Conflicts::Refuse {
            let found: Vec<Conflict> = self
                .0
                .iter()
                .flat_map(|entry| {
                    let theirs = managers::fields(entry).map(|f| set::intersect(f, changed));
                    let paths = theirs.map(|theirs| set::paths(&theirs)).unwrap_or_default();
                    let manager = shown(entry);
                    paths.into_iter().map(move |path| Conflict {
                        manager: manager.clone(),
                        path,
                    })
                })
                .collect();
            if !found.is_empty() {
                return Err(ApplyError::Conflicts(found));
            }
        }
        for entry in &mut self.0 {
            managers::subtract(entry, changed);
        }
        Ok(())
    }

    /// Removes the fields that the writer applied before, does not apply now, and no other manager owns.
    fn prune(&self, merged: &Value, mine: &Value, last: &Set, writer: &Writer<'_>) -> Value {
        let shape = writer.shape;
        let all = |value: &Value| set::with_parents(&fields_of(shape, value).below, shape);
        let last = set::with_parents(last, shape);
        let pruned = merge::without(shape, merged, &last);
        let mut managed = Set::new();
        for entry in self.0.iter().chain([mine]) {
            if let Some(fields) = managers::fields(entry) {
                set::unite(&mut managed, fields);
            }
        }
        let everything = all(merged);
        let mut unowned = everything.clone();
        set::subtract(&mut unowned, &all(&pruned));
        set::subtract(&mut unowned, &set::with_parents(&managed, shape));
        let pruned = merge::without(shape, merged, &unowned);
        // What vanished only because its parent did comes back, unless the writer applied it.
        let mut dangling = everything;
        set::subtract(&mut dangling, &all(&pruned));
        merge::without(shape, merged, &set::intersect(&dangling, &last))
    }

    /// `kubectl apply --server-side` on an object of `kubectl apply`: fields that still have the value of the
    /// annotation are taken over.
    fn upgrade(
        &mut self,
        live: &Value,
        config: &Value,
        writer: &Writer<'_>,
        found: Vec<Conflict>,
    ) -> Result<Value, ApplyError> {
        let Some(allowed) = last_applied(live, writer) else {
            return Err(ApplyError::Conflicts(found));
        };
        let allowed = set::paths(&allowed);
        let left: Vec<Conflict> = found
            .into_iter()
            .filter(|conflict| !allowed.contains(&conflict.path))
            .collect();
        if !left.is_empty() {
            return Err(ApplyError::Conflicts(left));
        }
        self.try_apply(live, config, writer, Conflicts::Force)
    }
}

fn annotation(object: &Value) -> &str {
    meta::text(object, &["metadata", "annotations", LAST_APPLIED])
}

/// The fields of the annotation that still have its values.
fn last_applied(live: &Value, writer: &Writer<'_>) -> Option<Set> {
    let applied: Value = serde_json::from_str(annotation(live)).ok()?;
    if meta::text(&applied, &["apiVersion"]) != writer.api_version {
        return None;
    }
    let mut same = fields_of(writer.shape, &applied).below;
    let change = super::changes::compare(writer.shape, &applied, live);
    set::subtract(&mut same, &change.changed.below);
    set::subtract(&mut same, &change.removed.below);
    Some(same)
}

/// Updates the annotation of `kubectl apply`, if the object has it.
fn sync_last_applied(object: &mut Value, config: &Value) {
    if annotation(object).is_empty() {
        return;
    }
    let mut applied = config.clone();
    if let Some(Value::Object(annotations)) = applied
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
    {
        annotations.remove(LAST_APPLIED);
    }
    object["metadata"]["annotations"][LAST_APPLIED] = format!("{applied}\n").into();
}

/// A manager as in messages.
fn shown(entry: &Value) -> String {
    let text = |field: &str| meta::text(entry, &[field]);
    let mut shown = format!("{:?}", text("manager"));
    if !text("subresource").is_empty() {
        shown.push_str(&format!(" with subresource {:?}", text("subresource")));
    }
    if text("operation") == Operation::Update.as_str() {
        shown.push_str(&format!(" using {}", text("apiVersion")));
    }
    shown
}
