//! Sets of paths, in the form of `fieldsV1`.
//!
//! A key is one element of a path (`f:spec`, `k:{"name":"a"}`, `v:"x"`). Its value has the elements below it; the
//! key `.` means that the path itself is in the set. A path without elements below it is in the set.

use serde_json::{Map, Value};

pub(crate) type Set = Map<String, Value>;

/// The key of the path itself.
const SELF: &str = ".";

/// A path and what is below it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// Whether the path itself is in the set.
    pub(super) own: bool,
    pub(super) below: Set,
}

impl Branch {
    /// The path and nothing below it.
    pub(super) fn leaf() -> Self {
        Branch {
            own: true,
            below: Set::new(),
        }
    }

    /// Adds it to a set, if it is not empty.
    pub(super) fn attach(mut self, to: &mut Set, element: impl FnOnce() -> String) {
        if self.below.is_empty() && !self.own {
            return;
        }
        if self.own && !self.below.is_empty() {
            self.below
                .insert(SELF.to_owned(), Value::Object(Set::new()));
        }
        to.insert(element(), Value::Object(self.below));
    }
}

/// The element of a field.
pub(super) fn of_field(name: &str) -> String {
    let mut element = String::with_capacity(name.len() + 2);
    element.push_str("f:");
    element.push_str(name);
    element
}

/// Whether the path of a key with this value is in the set.
pub(super) fn is_member(node: &Value) -> bool {
    let below = node.as_object();
    below.is_none_or(|below| below.is_empty() || below.contains_key(SELF))
}

/// What is below a path.
pub(super) fn below<'a>(set: &'a Set, element: &str) -> Option<&'a Set> {
    set.get(element)?
        .as_object()
        .filter(|below| !below.is_empty())
}

fn elements(set: &Set) -> impl Iterator<Item = (&String, &Value)> {
    set.iter().filter(|(element, _)| *element != SELF)
}

fn branch(node: &Value) -> Branch {
    let mut below = node.as_object().cloned().unwrap_or_default();
    below.remove(SELF);
    Branch {
        own: is_member(node),
        below,
    }
}

/// Adds all paths of `other`.
pub(super) fn unite(set: &mut Set, other: &Set) {
    for (element, that) in elements(other) {
        let Some(this) = set.get_mut(element) else {
            set.insert(element.clone(), that.clone());
            continue;
        };
        let own = is_member(this) || is_member(that);
        if let (Some(this), Some(that)) = (this.as_object_mut(), that.as_object()) {
            unite(this, that);
            mark(this, own);
        }
    }
}

/// Adds or removes the key of the path itself.
fn mark(below: &mut Set, own: bool) {
    let leaf = elements(below).next().is_none();
    if leaf || !own {
        below.remove(SELF);
    } else if !below.contains_key(SELF) {
        below.insert(SELF.to_owned(), Value::Object(Set::new()));
    }
}

/// Removes all paths of `other`; paths below them stay.
pub(super) fn subtract(set: &mut Set, other: &Set) {
    for (element, that) in elements(other) {
        let Some(this) = set.get_mut(element) else {
            continue;
        };
        let own = is_member(this) && !is_member(that);
        let Some(inner) = this.as_object_mut() else {
            continue;
        };
        if let Some(that) = that.as_object() {
            subtract(inner, that);
        }
        mark(inner, own);
        if inner.is_empty() && !own {
            set.remove(element);
        }
    }
}

/// The paths that are in both.
pub(super) fn intersect(set: &Set, other: &Set) -> Set {
    let mut both = Set::new();
    for (element, this) in elements(set) {
        let Some(that) = other.get(element) else {
            continue;
        };
        let below = match (this.as_object(), that.as_object()) {
            (Some(this), Some(that)) => intersect(this, that),
            _ => Set::new(),
        };
        let own = is_member(this) && is_member(that);
        Branch { own, below }.attach(&mut both, || element.clone());
    }
    both
}

/// Removes a path of fields, and everything below it.
pub(super) fn cut(set: &mut Set, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let element = of_field(first);
    if rest.is_empty() {
        set.remove(&element);
        return;
    }
    let Some(inner) = set.get_mut(&element) else {
        return;
    };
    let own = is_member(inner);
    if let Some(inner) = inner.as_object_mut() {
        cut(inner, rest);
        mark(inner, own);
        if inner.is_empty() && !own {
            set.remove(&element);
        }
    }
}

/// All paths, as in error messages: `.spec.containers[name="a"].image`.
pub(super) fn paths(set: &Set) -> Vec<String> {
    let mut all = Vec::new();
    collect(set, "", &mut all);
    all
}

fn collect(set: &Set, prefix: &str, all: &mut Vec<String>) {
    let here = |element: &str| format!("{prefix}{}", super::key::display(element));
    for (element, node) in elements(set) {
        if is_member(node) {
            all.push(here(element));
        }
    }
    for (element, node) in elements(set) {
        if let Some(below) = node.as_object() {
            collect(below, &here(element), all);
        }
    }
}

/// Reads a set that a client sent; `None` if it is invalid. Elements of unknown kinds are dropped, as by the
/// real server: they may come from a newer one.
pub(super) fn read(value: &Value) -> Option<Set> {
    let mut set = Set::new();
    for (element, inner) in value.as_object()? {
        if element == SELF {
            set.insert(element.clone(), Value::Object(Set::new()));
            continue;
        }
        if element.as_bytes().get(1) != Some(&b':') {
            return None;
        }
        let below = read(inner)?;
        if element.starts_with(['f', 'k', 'v', 'i']) {
            set.insert(element.clone(), Value::Object(below));
        }
    }
    Some(set)
}

/// Adds the named fields above the paths of a set, as `named` knows them.
pub(super) fn with_parents(set: &Set, shape: super::Shape<'_>) -> Set {
    let mut all = Set::new();
    for (element, node) in elements(set) {
        let mut branch = branch(node);
        let (inner, named) = shape.at(element);
        branch.below = with_parents(&branch.below, inner);
        branch.own |= named && !branch.below.is_empty();
        branch.attach(&mut all, || element.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Set {
        value.as_object().cloned().unwrap_or_default()
    }

    #[rstest]
    #[case::a_new_path(json!({"f:a": {}}), json!({"f:b": {}}), json!({"f:a": {}, "f:b": {}}))]
    #[case::a_path_below(json!({"f:a": {}}), json!({"f:a": {"f:b": {}}}), json!({"f:a": {".": {}, "f:b": {}}}))]
    #[case::a_path_above(json!({"f:a": {"f:b": {}}}), json!({"f:a": {}}), json!({"f:a": {".": {}, "f:b": {}}}))]
    #[case::the_same(json!({"f:a": {"f:b": {}}}), json!({"f:a": {"f:b": {}}}), json!({"f:a": {"f:b": {}}}))]
    fn a_union_has_all_paths(#[case] one: Value, #[case] other: Value, #[case] wanted: Value) {
        let mut united = set(one);
        unite(&mut united, &set(other));
        assert_eq!(Value::Object(united), wanted);
    }

    #[rstest]
    #[case::a_leaf(json!({"f:a": {}, "f:b": {}}), json!({"f:a": {}}), json!({"f:b": {}}))]
    #[case::a_parent_keeps_its_children(json!({"f:a": {".": {}, "f:b": {}}}), json!({"f:a": {}}), json!({"f:a": {"f:b": {}}}))]
    #[case::a_child_leaves_its_parent(json!({"f:a": {".": {}, "f:b": {}}}), json!({"f:a": {"f:b": {}}}), json!({"f:a": {}}))]
    #[case::the_last_child(json!({"f:a": {"f:b": {}}}), json!({"f:a": {"f:b": {}}}), json!({}))]
    fn a_difference_has_the_other_paths(
        #[case] one: Value,
        #[case] other: Value,
        #[case] wanted: Value,
    ) {
        let mut left = set(one);
        subtract(&mut left, &set(other));
        assert_eq!(Value::Object(left), wanted);
    }

    #[test]
    fn an_intersection_has_the_paths_of_both() {
        let one = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}, "f:e": {"f:x": {}}}));
        let other = set(json!({"f:a": {"f:b": {}}, "f:c": {}, "f:e": {"f:y": {}}}));
        let both = intersect(&one, &other);
        assert_eq!(Value::Object(both), json!({"f:a": {"f:b": {}}, "f:c": {}}));
    }

    #[test]
    fn a_cut_removes_what_is_below() {
        let whole = set(json!({"f:a": {"f:b": {".": {}, "f:c": {}}, "f:d": {}}}));
        let mut short = whole;
        cut(&mut short, &["a", "b"]);
        assert_eq!(Value::Object(short), json!({"f:a": {"f:d": {}}}));
    }

    #[test]
    fn paths_are_shown_as_the_server_shows_them() {
        let ports = r#"k:{"containerPort":80,"protocol":"TCP"}"#;
        let whole = set(
            json!({"f:spec": {"f:ports": {ports: {".": {}, "f:name": {}}}},
            "f:metadata": {"f:finalizers": {r#"v:"a/b""#: {}}}}),
        );
        assert_eq!(
            paths(&whole),
            [
                ".metadata.finalizers[=\"a/b\"]",
                ".spec.ports[containerPort=80,protocol=\"TCP\"]",
                ".spec.ports[containerPort=80,protocol=\"TCP\"].name",
            ]
        );
    }
}
