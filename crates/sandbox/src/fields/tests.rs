//! Ownership over several writes.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::changes::fields;
use super::schema::Shape;
use super::set;
use super::{ApplyError, Conflicts, Managers, Writer};
use crate::kinds::types;

fn writer<'a>(manager: &'a str, shape: Shape<'a>) -> Writer<'a> {
    Writer {
        manager,
        api_version: "v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        shape,
        ignored: &[],
    }
}

fn configmap() -> Shape<'static> {
    Shape::BuiltIn(types::node_of_kind("", "v1", "ConfigMap").unwrap(), None)
}

fn owned(managers: &Managers) -> Vec<(&str, &Value)> {
    let entries = managers.0.iter();
    entries
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap_or_default(),
                &entry["fieldsV1"],
            )
        })
        .collect()
}

fn apply(
    managers: &mut Managers,
    live: &Value,
    config: &Value,
    manager: &str,
    conflicts: Conflicts,
) -> Result<Value, ApplyError> {
    managers.apply(live, config, &writer(manager, configmap()), conflicts)
}

#[test]
fn server_side_apply_a_field_that_is_no_longer_applied_is_removed() {
    let mut managers = Managers::default();
    let both = json!({"data": {"a": "1", "b": "2"}});
    let live = apply(&mut managers, &json!({}), &both, "m", Conflicts::Refuse).unwrap();
    assert_eq!(live, both);
    let one = json!({"data": {"a": "1"}});
    let live = apply(&mut managers, &live, &one, "m", Conflicts::Refuse).unwrap();
    assert_eq!(live, one);
    assert_eq!(owned(&managers), [("m", &json!({"f:data": {"f:a": {}}}))]);
}

#[rstest]
#[case::refused(Conflicts::Refuse, None)]
#[case::forced(Conflicts::Force, Some(json!({"data": {"a": "2"}})))]
fn server_side_apply_a_conflict_names_the_field_and_its_manager(
    #[case] conflicts: Conflicts,
    #[case] wanted: Option<Value>,
) {
    let mut managers = Managers::default();
    let live = json!({"data": {"a": "1"}});
    managers.update(&json!({}), &live, &writer("m", configmap()));
    let config = json!({"data": {"a": "2"}});
    match (apply(&mut managers, &live, &config, "n", conflicts), wanted) {
        (Ok(object), Some(wanted)) => assert_eq!(object, wanted),
        (Err(ApplyError::Conflicts(found)), None) => {
            let shown: Vec<_> = found.iter().map(|c| (&*c.manager, &*c.path)).collect();
            assert_eq!(shown, [("\"m\" using v1", ".data.a")]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn managed_fields_the_time_changes_only_with_the_set() {
    let mut managers = Managers::default();
    let old = json!({"data": {"a": "1", "b": "1"}});
    managers.update(&json!({}), &old, &writer("m", configmap()));
    let later = Writer {
        now: "2026-01-01T00:00:01Z",
        ..writer("m", configmap())
    };
    // A removal takes fields, and gives none.
    let new = json!({"data": {"a": "1"}});
    managers.update(&old, &new, &later);
    assert_eq!(managers.0[0]["time"], "2026-01-01T00:00:00Z");
    managers.update(&new, &json!({"data": {"a": "2"}}), &later);
    assert_eq!(managers.0[0]["time"], "2026-01-01T00:00:01Z");
}

/// Objects of a few fields, so that writes meet.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..3_i64).prop_map(Value::from),
        Just(json!([1])),
        Just(json!([])),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| json!(map))
    });
    prop::collection::btree_map("[abc]", value, 0..4).prop_map(|map| json!(map))
}

proptest! {
    /// After any updates, every value has exactly one owner, and nobody owns what is not there.
    #[test]
    fn managed_fields_every_value_has_one_owner(
        states in prop::collection::vec((0..3_usize, object()), 1..8),
    ) {
        let mut managers = Managers::default();
        let mut live = json!({});
        for (index, new) in states {
            let manager = ["m", "n", "o"][index];
            managers.update(&live, &new, &writer(manager, Shape::Free));
            live = new;
            let all = set::paths(&fields(Shape::Free, &live).below);
            let mut found: Vec<String> = Vec::new();
            for (_, fields) in owned(&managers) {
                found.extend(set::paths(fields.as_object().unwrap()));
            }
            found.sort();
            let mut wanted = all;
            wanted.sort();
            prop_assert_eq!(found, wanted);
        }
    }

    /// Who applies a configuration twice changes nothing the second time.
    #[test]
    fn server_side_apply_is_idempotent(live in object(), config in object()) {
        let mut managers = Managers::default();
        managers.update(&json!({}), &live, &writer("m", Shape::Free));
        let mut twice = |live: &Value| {
            let applied = managers.apply(live, &config, &writer("n", Shape::Free), Conflicts::Force);
            (applied.unwrap(), managers.clone())
        };
        let (once, first) = twice(&live);
        let (again, second) = twice(&once);
        prop_assert_eq!(&once, &again);
        prop_assert_eq!(first, second);
    }
}
