//! `x-kubernetes-validations`: CEL rules of a CRD's schema.

mod compile;
mod macros;
mod optional;
mod types;
mod value;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as Cel, functions};
use serde_json::Value;

use super::verdict::{SchemaVerdict, earlier, inner, name};
use crate::error::Cause;
pub(super) use compile::{Refusal, Rule};

/// What other users of the language need.
pub(crate) mod cel {
    pub(crate) use super::compile::{Expression, parse};
    pub(crate) use super::optional::EQUAL;
    pub(crate) use super::{base, parts, reason};
}

/// The most work that one rule may cause: nodes of its expression, times the values that its macros visit. The real
/// server counts more exactly and allows less; this limit keeps a request below about a second.
const WORK_LIMIT: u64 = 20_000_000;

/// The rules of a schema and its parts.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    here: Vec<Rule>,
    properties: BTreeMap<String, Rules>,
    items: Option<Box<Rules>>,
    values: Option<Box<Rules>>,
}

impl Rules {
    /// The rules of a schema; `None` if it has none.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        let part = |name: &str| {
            let part = schema.get(name).filter(|part| part.is_object())?;
            Rules::of(part).map(Box::new)
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let inside = |(name, part): (&String, &Value)| Some((name.clone(), Rules::of(part)?));
        let rules = Rules {
            here: compile::rules(schema),
            properties: properties
                .into_iter()
                .flatten()
                .filter_map(inside)
                .collect(),
            items: part("items"),
            values: part("additionalProperties"),
        };
        let empty = rules.here.is_empty()
            && rules.properties.is_empty()
            && rules.items.is_none()
            && rules.values.is_none();
        (!empty).then_some(rules)
    }

    /// Adds the failed rules of an object.
    pub(crate) fn check(
        &self,
        schema: &Value,
        object: &Value,
        old: Option<&Value>,
        verdict: &mut SchemaVerdict,
    ) {
        let place = Place {
            schema,
            value: object,
            old,
            unchanged: false,
            path: String::new(),
        };
        self.walk(&place, verdict);
    }

    fn walk(&self, place: &Place<'_>, verdict: &mut SchemaVerdict) {
        if place.value.is_null() {
            return;
        }
        if !self.here.is_empty() {
            BASE.with(|base| evaluate(base, &self.here, place, verdict));
        }
        match place.value {
            Value::Object(map) => {
                for (field, value) in map {
                    let known = place.schema.get("properties").and_then(|p| p.get(field));
                    let old = place.old.and_then(|old| old.get(field));
                    let next = match (known, self.properties.get(field), &self.values) {
                        (Some(schema), Some(rules), _) => {
                            Some((schema, rules, inner(&place.path, field)))
                        }
                        (None, _, Some(rules)) => {
                            let schema = place.schema.get("additionalProperties");
                            schema.map(|s| (s, &**rules, format!("{}[{field}]", place.path)))
                        }
                        _ => None,
                    };
                    if let Some((schema, rules, path)) = next {
                        rules.walk(&place.inside(schema, value, old, path), verdict);
                    }
                }
            }
            Value::Array(items) => {
                let (Some(rules), Some(schema)) = (&self.items, place.schema.get("items")) else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    let old = place.old.and_then(|old| earlier(place.schema, item, old));
                    let path = format!("{}[{index}]", place.path);
                    rules.walk(&place.inside(schema, item, old, path), verdict);
                }
            }
            _ => {}
        }
    }
}

/// A value of the checked object.
struct Place<'a> {
    schema: &'a Value,
    value: &'a Value,
    old: Option<&'a Value>,
    /// The update does not change it: failed rules are warnings.
    unchanged: bool,
    path: String,
}

impl<'a> Place<'a> {
    fn inside(
        &self,
        schema: &'a Value,
        value: &'a Value,
        old: Option<&'a Value>,
        path: String,
    ) -> Place<'a> {
        Place {
            schema,
            value,
            old,
            unchanged: self.unchanged || old == Some(value),
            path,
        }
    }

    /// The value as errors show it; lists and objects are left out.
    fn shown(&self) -> Option<String> {
        let scalar = !self.value.is_object() && !self.value.is_array();
        scalar.then(|| self.value.to_string())
    }

    fn kind(&self) -> &str {
        self.schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

thread_local! {
    /// Building it takes longer than most rules.
    static BASE: Context<'static> = base();
}

/// The library's function, and of a bool too.
fn string(context: &FunctionContext<'_, '_>, This(this): This<Cel>) -> Result<Cel, ExecutionError> {
    match this {
        Cel::Bool(is_true) => Ok(Cel::String(Arc::new(is_true.to_string()))),
        other => functions::string(context, This(other)),
    }
}

/// The functions of Kubernetes.
pub(crate) fn base() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("dyn", |value: Cel| Ok::<Cel, ExecutionError>(value));
    context.add_function("type", |value: Cel| {
        let name = types::name_of(&value).to_owned();
        Ok::<Cel, ExecutionError>(Cel::String(Arc::new(name)))
    });
    context.add_function("string", string);
    macros::add_functions(&mut context);
    optional::add_functions(&mut context);
    for name in types::NAMES {
        context.add_variable_from_value(*name, (*name).to_owned());
    }
    context
}

fn evaluate(base: &Context<'_>, rules: &[Rule], place: &Place<'_>, verdict: &mut SchemaVerdict) {
    let mut context = base.new_inner_scope();
    let root = place.path.is_empty();
    let own = value::of(place.schema, place.value, root);
    context.add_variable_from_value("self", own);
    let old = place.old.map(|old| value::of(place.schema, old, root));
    let longest = value::longest(place.value).max(place.old.map_or(0, value::longest));
    for rule in rules {
        if rule.is_transition && old.is_none() && !rule.optional_old {
            continue;
        }
        let mut scope = context.new_inner_scope();
        let earlier = match (rule.optional_old, &old) {
            (false, old) => old.clone(),
            (true, None) => Some(Cel::Opaque(Arc::new(OptionalValue::none()))),
            (true, Some(old)) => Some(Cel::Opaque(Arc::new(OptionalValue::of(old.clone())))),
        };
        if let Some(earlier) = earlier {
            scope.add_variable_from_value("oldSelf", earlier);
        }
        if rule.work(longest) > WORK_LIMIT {
            let why = format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                rule.name()
            );
            verdict.causes.push(broken(place, &why));
            return;
        }
        match run(&rule.program, &scope) {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => {
                let cause = failed(rule, place, &scope);
                if place.unchanged && !rule.is_transition {
                    let warning = format!("{}: {}", cause.field, cause.message);
                    verdict.warnings.push(warning);
                } else {
                    verdict.causes.push(cause);
                }
            }
            Ok(_) => verdict
                .causes
                .push(broken(place, "rule does not return a bool")),
            Err(why) => verdict.causes.push(broken(place, &why.describe(rule))),
        }
    }
}

/// Why an expression has no value.
enum Failure {
    Evaluation(ExecutionError),
    /// The library panicked.
    Library,
}

impl Failure {
    fn describe(&self, rule: &Rule) -> String {
        let error = match self {
            Failure::Library => {
                return format!("the CEL library failed evaluating rule: {}", rule.name());
            }
            Failure::Evaluation(error) => error,
        };
        let why = match error {
            ExecutionError::UndeclaredReference(name) => {
                return format!(
                    "the sandbox does not support '{name}' in rule: {}",
                    rule.name()
                );
            }
            ExecutionError::NoSuchOverload
            | ExecutionError::ValuesNotComparable(..)
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::UnsupportedUnaryOperator(..) => {
                return format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.name()
                );
            }
            other => reason(other),
        };
        format!("{why} evaluating rule: {}", rule.name())
    }
}

/// The server's text of an error that does not depend on the kind of expression.
pub(crate) fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::FunctionError { function, .. }
            if matches!(function.as_str(), "int" | "uint" | "double") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
        other => other.to_string(),
    }
}

fn run(program: &compile::Expression, context: &Context<'_>) -> Result<Cel, Failure> {
    let work = || Cel::resolve(program, context);
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Failure::Evaluation),
        Err(_) => Err(Failure::Library),
    }
}

fn broken(place: &Place<'_>, why: &str) -> Cause {
    Cause::invalid(name(&place.path), &format!("{:?}", place.kind()), why)
}

fn failed(rule: &Rule, place: &Place<'_>, scope: &Context<'_>) -> Cause {
    let computed = rule.message_program.as_ref().and_then(|program| {
        let Ok(Cel::String(text)) = run(program, scope) else {
            return None;
        };
        let text = text.trim();
        (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
    });
    let detail = computed.unwrap_or_else(|| rule.message());
    let path = match rule.path.as_str() {
        "" => place.path.clone(),
        field => inner(&place.path, field),
    };
    let field = name(&path);
    let shown = place.shown();
    match rule.reason.as_str() {
        "FieldValueForbidden" => Cause::forbidden(field, &detail),
        "FieldValueRequired" => Cause::required(field, &detail),
        "FieldValueDuplicate" => Cause {
            reason: "FieldValueDuplicate".into(),
            message: match shown {
                Some(shown) => format!("Duplicate value: {shown}"),
                None => "Duplicate value".to_owned(),
            },
            field: field.into(),
        },
        _ => Cause {
            reason: "FieldValueInvalid".into(),
            message: match shown {
                Some(shown) => format!("Invalid value: {shown}: {detail}"),
                None => format!("Invalid value: {detail}"),
            },
            field: field.into(),
        },
    }
}

/// The direct parts of an expression.
pub(crate) fn parts(expr: &Expr) -> Vec<&IdedExpr> {
    match expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            target.chain(&call.args).collect()
        }
        Expr::Comprehension(all) => vec![
            &all.iter_range,
            &all.accu_init,
            &all.loop_cond,
            &all.loop_step,
            &all.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => entries(map.entries.iter().map(|entry| &entry.expr)),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(fields) => entries(fields.entries.iter().map(|entry| &entry.expr)),
    }
}

fn entries<'a>(all: impl Iterator<Item = &'a EntryExpr>) -> Vec<&'a IdedExpr> {
    all.flat_map(|entry| match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, object: &Value, old: Option<&Value>) -> SchemaVerdict {
        let mut verdict = SchemaVerdict::default();
        let rules = Rules::of(schema).unwrap();
        rules.check(schema, object, old, &mut verdict);
        verdict
    }

    #[test]
    fn the_work_of_a_rule_is_bounded() {
        let rule = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))";
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties":
            {"l": {"type": "array", "items": {"type": "integer"}}}});
        assert!(
            check(&schema, &json!({"l": [1, 2]}), None)
                .causes
                .is_empty()
        );
        let many = json!({"l": vec![1; 5000]});
        let causes = check(&schema, &many, None).causes;
        assert!(
            causes[0].message.contains("actual cost limit exceeded"),
            "{causes:?}"
        );
    }

    #[test]
    fn an_unchanged_value_only_gets_a_warning() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 5"}]}}});
        let object = json!({"n": 1});
        let verdict = check(&schema, &object, Some(&object));
        assert!(verdict.causes.is_empty());
        assert_eq!(
            verdict.warnings,
            ["n: Invalid value: 1: failed rule: self > 5"]
        );
        assert_eq!(
            check(&schema, &object, Some(&json!({"n": 7}))).causes.len(),
            1
        );
    }

    #[test]
    fn what_the_library_lacks_is_an_error_and_not_a_pass() {
        let schema = json!({"type": "object", "x-kubernetes-validations":
            [{"rule": "url('https://a.example').getHost() == 'a.example'"}]});
        let causes = check(&schema, &json!({}), None).causes;
        let expected = "the sandbox does not support 'getHost'";
        assert!(causes[0].message.contains(expected), "{causes:?}");
    }

    #[test]
    fn crates_sandbox_optional_fields_and_macros_of_two_variables() {
        let schema = |rule: &str| {
            json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
                "a": {"type": "object", "properties": {"b": {"type": "string"}}},
                "l": {"type": "array", "items": {"type": "string"}},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}}}})
        };
        let object = json!({"l": ["b", "a"], "m": {"x": 1, "y": 2}});
        let holds = [
            "self.?a.b.orValue('d') == 'd'",
            "self.?a.?b.orValue('d') == 'd'",
            "self.?l[?0].orValue('') == 'b'",
            "self.?a == optional.none()",
            "self.?l != optional.none()",
            "self.?l.hasValue() && self.?l.value() == self.l",
            "self.?a.optMap(a, a.b).orValue('d') == 'd'",
            "self.?l.optMap(l, size(l)).orValue(0) == 2",
            "self.?l.optFlatMap(l, l[?1]).orValue('') == 'a'",
            "self.l.sortBy(e, e) == ['a', 'b']",
            "[3, 1, 2].sortBy(e, -e) == [3, 2, 1]",
            "self.l.all(i, v, v == (i == 0 ? 'b' : 'a'))",
            "self.m.exists(k, v, k == 'y' && v == 2)",
            "self.m.existsOne(k, v, v > 1)",
            "self.m.exists_one(k, v, v > 1)",
            "self.l.transformList(i, v, v + string(i)) == ['b0', 'a1']",
            "self.l.transformList(i, v, i > 0, v) == ['a']",
            "self.m.transformMap(k, v, v * 2) == {'x': 2, 'y': 4}",
            "self.m.transformMap(k, v, v > 1, v) == {'y': 2}",
            "self.m.transformMapEntry(k, v, {string(v): k}) == {'1': 'x', '2': 'y'}",
            "self.m.all(k, v, self.l.exists(i, w, i < v && w != k))",
            "self.m.all(k, v, self.l.exists(k, k == 'a'))",
        ];
        for rule in holds {
            let causes = check(&schema(rule), &object, None).causes;
            assert!(causes.is_empty(), "{rule}: {causes:?}");
        }
        for rule in ["self.l.all(i, v, v == 'b')", "self.?l == optional.none()"] {
            let causes = check(&schema(rule), &object, None).causes;
            assert!(causes[0].message.contains("failed rule"), "{causes:?}");
        }
        let twice = "self.m.transformMapEntry(k, v, {'same': v}).size() == 1";
        let causes = check(&schema(twice), &object, None).causes;
        assert!(
            causes[0].message.contains("key already exists"),
            "{causes:?}"
        );
    }
}
