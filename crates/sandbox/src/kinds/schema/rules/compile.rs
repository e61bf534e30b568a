//! Compiles rules, and refuses the ones that the real server refuses.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::common::ast::{Expr, IdedExpr};
use kube_cel::cel::parser::Parser;
use serde_json::Value;

use super::types::{self, Scope, Type};
use super::{macros, optional, parts};
use crate::error::Cause;
use crate::meta;

pub(crate) type Expression = IdedExpr;

/// A rule of a schema.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    message: String,
    pub(super) reason: String,
    /// The field that errors name, relative to the schema's value.
    pub(super) path: String,
    pub(super) optional_old: bool,
    pub(super) is_transition: bool,
    pub(super) program: Expression,
    pub(super) message_program: Option<Expression>,
    nodes: u64,
    depth: u32,
}

impl Rule {
    /// The rule as errors name it.
    pub(super) fn name(&self) -> &str {
        let name = if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        };
        name.trim()
    }

    pub(super) fn message(&self) -> String {
        match self.message.trim() {
            "" => format!("failed rule: {}", self.text.trim()),
            message => message.to_owned(),
        }
    }

    /// A bound of the work over a value whose longest list has that length.
    pub(super) fn work(&self, longest: u64) -> u64 {
        longest
            .max(1)
            .saturating_pow(self.depth)
            .saturating_mul(self.nodes)
    }
}

/// The rules of a schema that compile.
pub(super) fn rules(schema: &Value) -> Vec<Rule> {
    let list = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|rule| build(schema, rule))
        .collect()
}

fn build(schema: &Value, rule: &Value) -> Option<Rule> {
    let text = |name: &str| meta::text(rule, &[name]).to_owned();
    let program = parse(&text("rule")).ok()?;
    let size = Size::of(&program.expr);
    Some(Rule {
        path: field_path(schema, &text("fieldPath")).unwrap_or_default(),
        reason: text("reason"),
        message: text("message"),
        optional_old: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
        is_transition: uses(&program.expr, "oldSelf"),
        message_program: Some(text("messageExpression"))
            .filter(|text| !text.is_empty())
            .and_then(|text| parse(&text).ok().map(optional::rewrite)),
        text: text("rule"),
        program: optional::rewrite(program),
        nodes: size.nodes,
        depth: size.depth,
    })
}

/// Parses an expression.
///
/// # Errors
/// The texts of the library.
pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let work = || Parser::new().enable_optional_syntax(true).parse(text);
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(parsed) => macros::expand(parsed.map_err(|errors| errors.to_string())?),
        Err(_) => Err("the CEL library failed".to_owned()),
    }
}

/// `.a.b` or `['a']` as a field path; `None` if the schema has no such field.
fn field_path(schema: &Value, text: &str) -> Option<String> {
    let mut path = String::new();
    let mut schema = schema;
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = if let Some(inside) = rest.strip_prefix("['") {
            inside.split_once("']")?
        } else {
            let dotted = rest.strip_prefix('.')?;
            dotted.split_at(dotted.find(['.', '[']).unwrap_or(dotted.len()))
        };
        match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => {
                schema = properties.get(name)?;
                path = super::inner(&path, name);
            }
            None => {
                schema = schema
                    .get("additionalProperties")
                    .filter(|s| s.is_object())?;
                path.push_str(&format!("[{name}]"));
            }
        }
        rest = after;
    }
    Some(path)
}

fn uses(expr: &Expr, variable: &str) -> bool {
    matches!(expr, Expr::Ident(name) if name == variable)
        || parts(expr).iter().any(|part| uses(&part.expr, variable))
}

/// The number of nodes of an expression, and how deep its macros are nested.
struct Size {
    nodes: u64,
    depth: u32,
}

impl Size {
    fn of(expr: &Expr) -> Self {
        let mut size = Size { nodes: 1, depth: 0 };
        for part in parts(expr) {
            let part = Size::of(&part.expr);
            size.nodes += part.nodes;
            size.depth = size.depth.max(part.depth);
        }
        size.depth += u32::from(matches!(expr, Expr::Comprehension(_)));
        size
    }
}

/// The rules of one schema that a CRD must not have.
pub(crate) struct Refusal<'a> {
    pub(crate) schema: &'a Value,
    /// The schema's path in the CRD.
    pub(crate) path: &'a str,
    pub(crate) root: bool,
    /// Whether there is an earlier value to compare with: not in lists without keys.
    pub(crate) correlatable: bool,
}

impl Refusal<'_> {
    /// The errors of every rule.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let list = self
            .schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        let mut causes = Vec::new();
        for (index, rule) in list.into_iter().flatten().enumerate() {
            let path = format!("{}.x-kubernetes-validations[{index}]", self.path);
            self.rule(rule, &path, &mut causes);
        }
        causes
    }

    fn rule(&self, rule: &Value, path: &str, causes: &mut Vec<Cause>) {
        let text = |name: &str| meta::text(rule, &[name]);
        let at = |name: &str| format!("{path}.{name}");
        if text("rule").trim().is_empty() {
            return causes.push(Cause::required(&at("rule"), "rule is not specified"));
        }
        if text("message").trim().contains('\n') {
            let why = "message must not contain line breaks";
            let shown = Value::from(text("message")).to_string();
            causes.push(Cause::invalid(&at("message"), &shown, why));
        }
        let reasons = [
            "FieldValueRequired",
            "FieldValueForbidden",
            "FieldValueInvalid",
            "FieldValueDuplicate",
        ];
        if !text("reason").is_empty() && !reasons.contains(&text("reason")) {
            causes.push(Cause::not_supported(
                &at("reason"),
                text("reason"),
                &reasons,
            ));
        }
        if field_path(self.schema, text("fieldPath")).is_none() {
            let shown = Value::from(text("fieldPath")).to_string();
            let why = "fieldPath must be a valid path: does not refer to a valid field";
            causes.push(Cause::invalid(&at("fieldPath"), &shown, why));
        }
        let optional = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        let scope = Scope::new(self.schema, self.root, optional);
        let parsed = check(text("rule"), &scope, &Type::Bool);
        let shown = go_rule(rule);
        match parsed {
            Err(why) => {
                let why = format!("compilation failed: {why}");
                return causes.push(Cause::invalid(&at("rule"), &shown, &why));
            }
            Ok(program) if uses(&program.expr, "oldSelf") => {
                if !self.correlatable {
                    let why = "oldSelf cannot be used on the uncorrelatable portion of the schema";
                    causes.push(Cause::invalid(
                        &at("rule"),
                        &Value::from(text("rule")).to_string(),
                        why,
                    ));
                }
            }
            Ok(_) if rule.get("optionalOldSelf").is_some() => {
                let why = "may not be set if oldSelf is not used in rule";
                let shown = rule.get("optionalOldSelf").map(Value::to_string);
                causes.push(Cause::invalid(
                    &at("optionalOldSelf"),
                    &shown.unwrap_or_default(),
                    why,
                ));
            }
            Ok(_) => {}
        }
        let message = text("messageExpression");
        if !message.is_empty()
            && let Err(why) = check(message, &scope, &Type::Text)
        {
            let why = format!("messageExpression compilation failed: {why}");
            causes.push(Cause::invalid(&at("messageExpression"), &shown, &why));
        }
    }
}

fn check(text: &str, scope: &Scope<'_>, wanted: &Type<'_>) -> Result<Expression, String> {
    let program = parse(text)?;
    types::check(&program.expr, scope, wanted)?;
    Ok(program)
}

/// The rule as the real server prints it.
fn go_rule(rule: &Value) -> String {
    let text = |name: &str| Value::from(meta::text(rule, &[name]));
    let plain = |name: &str| rule.get(name).cloned().unwrap_or_default();
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        plain("reason"),
        text("fieldPath"),
        plain("optionalOldSelf"),
    )
}
