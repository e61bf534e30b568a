//! Checks of an instance against its CRD's schema, in the order of the real server, with its texts.

use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::verdict::{SchemaVerdict, earlier, inner, name};
use super::{INT_OR_STRING, children, embedded, flag, format, is_typed, lists, property};
use crate::error::Cause;
use crate::kinds::scale::Paths;

/// What the checks of one schema need: its patterns and rules, compiled once.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    patterns: HashMap<String, Regex>,
    /// Whether the schema has lists without duplicates.
    unique: bool,
    /// Whether the schema has embedded objects.
    embedded: bool,
    scale: Option<Paths>,
    #[cfg(feature = "cel")]
    rules: Option<super::rules::Rules>,
}

/// It belongs to the schema beside it, which is compared.
impl PartialEq for Checks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Checks {}

#[cfg(feature = "cel")]
const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Errors after which the real server does not run the rules.
#[cfg(feature = "cel")]
const BLOCKING: [&str; 5] = [
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
];

impl Checks {
    /// Compiles the patterns and rules of a schema; invalid ones are refused with the CRD.
    pub(crate) fn of(schema: &Value) -> Self {
        let mut checks = Checks::default();
        collect_patterns(schema, &mut checks.patterns);
        checks.unique = lists::has_unique(schema);
        checks.embedded = embedded::has_embedded(schema);
        #[cfg(feature = "cel")]
        {
            checks.rules = super::rules::Rules::of(schema);
        }
        checks
    }

    /// Adds the checks of the `scale` subresource.
    pub(crate) fn with_scale(self, scale: Option<Paths>) -> Self {
        Checks { scale, ..self }
    }

    /// The paths of the `scale` subresource.
    pub(crate) fn scale(&self) -> Option<&Paths> {
        self.scale.as_ref()
    }

    /// Whether the schema has embedded objects.
    pub(crate) fn has_embedded(&self) -> bool {
        self.embedded
    }

    /// Checks an object; `old` is its stored state. Values that did not change are not checked again.
    pub(crate) fn check(
        &self,
        schema: &Value,
        object: &Value,
        old: Option<&Value>,
    ) -> SchemaVerdict {
        let mut found = self.node(schema, object, old, "");
        if let Some(scale) = &self.scale {
            let wrong = scale.check(object, old);
            wrong.into_iter().for_each(|cause| found.push(cause));
        }
        if self.embedded {
            let mut causes = Vec::new();
            embedded::check(schema, object, "", &mut causes);
            causes.into_iter().for_each(|cause| found.push(cause));
        }
        if self.unique {
            let duplicates = lists::duplicates(schema, object, old);
            duplicates.into_iter().for_each(|cause| found.push(cause));
        }
        #[cfg_attr(
            not(feature = "cel"),
            expect(unused_mut, reason = "only rules add to it")
        )]
        let mut verdict = SchemaVerdict {
            causes: found.causes,
            warnings: Vec::new(),
        };
        #[cfg(feature = "cel")]
        if let Some(rules) = &self.rules {
            let blocked = |cause: &Cause| BLOCKING.contains(&cause.reason.as_str());
            if verdict.causes.iter().any(blocked) {
                verdict
                    .causes
                    .push(Cause::invalid("<nil>", "null", UNCHECKED));
            } else {
                rules.check(schema, object, old, &mut verdict);
            }
        }
        verdict
    }

    fn node(&self, schema: &Value, value: &Value, old: Option<&Value>, path: &str) -> Found {
        // An unchanged value may break a newer schema.
        if old == Some(value) || value.is_null() && flag(schema, "nullable") {
            return Found::matched(1);
        }
        let mut found = Found::matched(1);
        found.add(check_type(schema, value, path));
        if value.is_null() {
            return found;
        }
        found.add(self.combined(schema, value, old, path));
        match value {
            Value::String(text) => {
                found.add(self.text(schema, text, path));
                found.add(check_format(schema, text, path));
            }
            Value::Number(_) => found.add(check_number(schema, value, path)),
            Value::Array(items) => found.add(self.list(schema, items, old, path)),
            Value::Object(_) | Value::Bool(_) | Value::Null => {}
        }
        found.add(check_enum(schema, value, path));
        if let Value::Object(map) = value {
            found.add(self.object(schema, map, old, path));
        }
        found
    }

    fn combined(&self, schema: &Value, value: &Value, old: Option<&Value>, path: &str) -> Found {
        let mut found = Found::matched(1);
        let branches = |name: &str| {
            let list = schema.get(name).and_then(Value::as_array);
            let each = list.into_iter().flatten();
            each.map(|branch| self.node(branch, value, old, path))
                .collect::<Vec<Found>>()
        };
        let any = branches("anyOf");
        if !any.is_empty() && any.iter().all(Found::failed) {
            let why = format!("{path:?} must validate at least one schema (anyOf)");
            found.add(Found::general(&why));
            found.add(best(any));
        }
        let one = branches("oneOf");
        let valid = one.iter().filter(|branch| !branch.failed()).count();
        if !one.is_empty() && valid != 1 {
            let how = match valid {
                0 => "Found none valid".to_owned(),
                many => format!("Found {many} valid alternatives"),
            };
            let why = format!("{path:?} must validate one and only one schema (oneOf). {how}");
            found.add(Found::general(&why));
            if valid == 0 {
                found.add(best(one));
            }
        }
        let all = branches("allOf");
        let failed = all.iter().filter(|branch| branch.failed()).count();
        if failed > 0 {
            let none = if failed == all.len() {
                ". None validated"
            } else {
                ""
            };
            let why = format!("{path:?} must validate all the schemas (allOf){none}");
            all.into_iter().for_each(|branch| found.add(branch));
            found.add(Found::general(&why));
        }
        if let Some(not) = schema.get("not")
            && !self.node(not, value, old, path).failed()
        {
            let why = format!("{path:?} must not validate the schema (not)");
            found.add(Found::general(&why));
        }
        found
    }

    fn object(
        &self,
        schema: &Value,
        map: &Map<String, Value>,
        old: Option<&Value>,
        path: &str,
    ) -> Found {
        let mut found = Found::matched(1);
        let count = map.len() as u64;
        if let Some(least) = limit(schema, "minProperties").filter(|least| count < *least) {
            let why = format!("{path} in body should have at least {least} properties");
            found.push(Cause::invalid(name(path), &count.to_string(), &why));
        }
        if let Some(most) = limit(schema, "maxProperties").filter(|most| count > *most) {
            found.push(too_many(path, count, most));
        }
        let others = schema.get("additionalProperties").filter(|a| a.is_object());
        for (field, value) in map {
            if path.is_empty() && is_typed(field) {
                continue;
            }
            if let Some(schema) = property(schema, field).or(others) {
                let old = old.and_then(|old| old.get(field));
                found.add(self.node(schema, value, old, &inner(path, field)));
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for field in required.into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(field) {
                found.push(Cause::required(&inner(path, field), ""));
            }
        }
        found
    }

    fn list(&self, schema: &Value, items: &[Value], old: Option<&Value>, path: &str) -> Found {
        let mut found = Found::matched(1);
        if let Some(of) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| earlier(schema, item, old));
                found.add(self.node(of, item, old, &format!("{path}[{index}]")));
            }
        }
        let count = items.len() as u64;
        if let Some(least) = limit(schema, "minItems").filter(|least| count < *least) {
            let why = format!("{path} in body should have at least {least} items");
            found.push(Cause::invalid(name(path), &count.to_string(), &why));
        }
        if let Some(most) = limit(schema, "maxItems").filter(|most| count > *most) {
            found.push(too_many(path, count, most));
        }
        found
    }

    /// The first of three errors, as on the real server.
    fn text(&self, schema: &Value, text: &str, path: &str) -> Found {
        let length = text.chars().count() as u64;
        let invalid = |why: String| Found::one(Cause::invalid(name(path), &quoted(text), &why));
        if let Some(most) = limit(schema, "maxLength").filter(|most| length > *most) {
            return Found::one(Cause {
                reason: "FieldValueTooLong".into(),
                message: format!("Too long: may not be more than {most} bytes"),
                field: name(path).into(),
            });
        }
        if let Some(least) = limit(schema, "minLength").filter(|least| length < *least) {
            return invalid(format!(
                "{path} in body should be at least {least} chars long"
            ));
        }
        match schema.get("pattern").and_then(Value::as_str) {
            Some(pattern)
                if self
                    .patterns
                    .get(pattern)
                    .is_some_and(|p| !p.is_match(text)) =>
            {
                invalid(format!("{path} in body should match '{pattern}'"))
            }
            _ => Found::matched(1),
        }
    }
}

/// The causes of a part, and how many of its checks succeeded: the branch of `anyOf` with the most is reported.
#[derive(Debug, Default)]
struct Found {
    causes: Vec<Cause>,
    matches: u32,
}

impl Found {
    fn matched(matches: u32) -> Self {
        Found {
            causes: Vec::new(),
            matches,
        }
    }

    fn one(cause: Cause) -> Self {
        Found {
            causes: vec![cause],
            matches: 1,
        }
    }

    /// An error of the object as a whole.
    fn general(why: &str) -> Self {
        Self::one(Cause::invalid("<nil>", "\"\"", why))
    }

    fn failed(&self) -> bool {
        !self.causes.is_empty()
    }

    fn push(&mut self, cause: Cause) {
        if !self.causes.contains(&cause) {
            self.causes.push(cause);
        }
    }

    fn add(&mut self, other: Found) {
        self.matches += other.matches;
        other.causes.into_iter().for_each(|cause| self.push(cause));
    }
}

/// The failed branch with the most successful checks; the first of several.
fn best(branches: Vec<Found>) -> Found {
    let better = |best: Found, next: Found| {
        if next.matches > best.matches {
            next
        } else {
            best
        }
    };
    branches.into_iter().reduce(better).unwrap_or_default()
}

fn collect_patterns(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Some(compiled) = format::regex(pattern)
    {
        patterns.insert(pattern.to_owned(), compiled);
    }
    children(schema, |_, child| collect_patterns(child, patterns));
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn too_many(path: &str, count: u64, most: u64) -> Cause {
    let noun = if most == 1 { "item" } else { "items" };
    Cause {
        reason: "FieldValueTooMany".into(),
        message: format!("Too many: {count}: must have at most {most} {noun}"),
        field: name(path).into(),
    }
}

fn type_invalid(path: &str, wanted: &str, shown: &str) -> Found {
    Found::one(Cause {
        reason: "FieldValueTypeInvalid".into(),
        message: format!(
            "Invalid value: {shown}: {} in body must be of type {wanted}: {shown}",
            name(path),
            shown = quoted(shown)
        ),
        field: name(path).into(),
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(schema: &Value, value: &Value, path: &str) -> Found {
    let wanted = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let found = type_of(value);
    let whole = || value.as_f64().is_some_and(|n| n.fract() == 0.0);
    let fits = match wanted {
        "" => !flag(schema, INT_OR_STRING) || matches!(found, "integer" | "string"),
        "number" => matches!(found, "integer" | "number"),
        "integer" => found == "integer" || found == "number" && whole(),
        wanted => wanted == found,
    };
    if fits {
        return Found::matched(1);
    }
    match format::supported(schema) {
        Some(format) if !matches!(found, "string" | "array" | "null") => {
            let shown = match found {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            type_invalid(path, format, shown)
        }
        _ if wanted.is_empty() => type_invalid(path, "integer,string", found),
        _ => type_invalid(path, wanted, found),
    }
}

fn check_format(schema: &Value, text: &str, path: &str) -> Found {
    match format::supported(schema) {
        Some(format) if !format::is_valid(format, text) => type_invalid(path, format, text),
        _ => Found::matched(1),
    }
}

fn check_enum(schema: &Value, value: &Value, path: &str) -> Found {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
        return Found::matched(1);
    };
    if allowed.contains(value) {
        return Found::matched(1);
    }
    let shown = |allowed: &Value| match allowed {
        Value::String(text) => quoted(text),
        other => quoted(&other.to_string()),
    };
    let allowed: Vec<String> = allowed.iter().map(shown).collect();
    Found::one(Cause {
        reason: "FieldValueNotSupported".into(),
        message: format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        ),
        field: name(path).into(),
    })
}

fn limit(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

fn check_number(schema: &Value, value: &Value, path: &str) -> Found {
    let mut found = Found::matched(1);
    let Some(number) = value.as_f64() else {
        return found;
    };
    if let Some(why) = format::out_of_range(schema, value, path) {
        found.add(Found::general(&why));
    }
    // The real server compares integers with the whole part of a bound.
    let bound = |name: &str| {
        let bound = schema.get(name).and_then(Value::as_f64)?;
        Some(if value.is_f64() { bound } else { bound.trunc() })
    };
    let mut broken = |words: &str, bound: f64| {
        let why = format!("{path} in body should be {words} {bound}");
        found.push(Cause::invalid(name(path), &value.to_string(), &why));
    };
    let multiple = schema.get("multipleOf").and_then(Value::as_f64);
    if let Some(factor) =
        multiple.filter(|factor| *factor > 0.0 && (number / factor).fract() != 0.0)
    {
        broken("a multiple of", factor);
    }
    if let Some(least) = bound("minimum") {
        match flag(schema, "exclusiveMinimum") {
            true if number <= least => broken("greater than", least),
            false if number < least => broken("greater than or equal to", least),
            _ => {}
        }
    }
    if let Some(most) = bound("maximum") {
        match flag(schema, "exclusiveMaximum") {
            true if number >= most => broken("less than", most),
            false if number > most => broken("less than or equal to", most),
            _ => {}
        }
    }
    found
}
