//! `consumedWhen`: a CEL expression over the owner of a pod that shows that the pod's result was read (A15).
//!
//! Users write the owners, so an evaluation must be cheap whatever they contain: an owner is read up to
//! [`OWNER_LIMIT`], an expression has at most [`TEXT_LIMIT`] bytes, and its macros (`all`, `exists`, `map`, ...) are not
//! nested and read only their own variable, so its cost is linear in the size of the owner.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr};
use cel::{Context, Program, Value};

/// The longest expression, in bytes.
const TEXT_LIMIT: usize = 1 << 10;

/// The largest owner over which an expression is evaluated, in bytes.
pub const OWNER_LIMIT: usize = 512 << 10;

/// The longest reason why an expression has no value, in bytes.
const REASON_LIMIT: usize = 256;

/// The one variable of an expression.
const OWNER: &str = "owner";

/// A checked expression. The [module's example](crate::status) evaluates one.
#[derive(Clone)]
pub struct ConsumedWhen {
    text: Arc<str>,
    program: Arc<Program>,
}

/// Why an expression is not accepted. The [module's example](crate::status) is what a user can
/// configure in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsumedWhenError {
    /// It has more bytes than the limit of 1 KiB.
    #[error("the expression has {0} bytes; at most {TEXT_LIMIT} are accepted")]
    TooLong(usize),
    /// It is not CEL.
    #[error("invalid CEL expression: {0} (example: has(owner.status.completionTime))")]
    Invalid(String),
    /// It reads something other than the owner.
    #[error("unknown variable `{0}`: the only one is `owner`, the object that controls the pod")]
    UnknownVariable(String),
    /// It calls a function that does not exist.
    #[error(
        "unknown function `{0}`: use the operators and standard functions of CEL (size, contains, startsWith, \
         endsWith, has, all, exists, ...); regular expressions, times and durations are not supported"
    )]
    UnknownFunction(String),
    /// It does not depend on the owner.
    #[error(
        "the expression does not read `owner`, the object that controls the pod (example: \
         has(owner.status.completionTime))"
    )]
    Constant,
    /// A macro is inside another one.
    #[error(
        "the macros all, exists, exists_one, filter and map must not be nested: their cost would not be linear"
    )]
    Nested,
    /// A macro reads the owner for each of its elements.
    #[error(
        "the macros all, exists, exists_one, filter and map must read only their own variable, not `owner`: their cost \
         would not be linear"
    )]
    OwnerInMacro,
}

/// Why an expression has no value for an owner. Returned by [`ConsumedWhen::is_true_for`]; the
/// [module's example](crate::status) has a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoValue(pub(super) Box<str>);

impl ConsumedWhen {
    /// Checks an expression.
    ///
    /// # Errors
    ///
    /// If it is not accepted.
    pub fn parse(text: &str) -> Result<Self, ConsumedWhenError> {
        if text.len() > TEXT_LIMIT {
            return Err(ConsumedWhenError::TooLong(text.len()));
        }
        let invalid = |why: String| ConsumedWhenError::Invalid(why.replace('\n', "; "));
        let program = guarded(|| Program::compile(text))
            .map_err(|error| invalid(error.to_string()))?
            .map_err(|error| invalid(error.to_string()))?;
        if depth(&program.expression().expr) > 1 {
            return Err(ConsumedWhenError::Nested);
        }
        let unknown = free_variable(&program.expression().expr, &mut Vec::new());
        if let Some(name) = unknown {
            return Err(ConsumedWhenError::UnknownVariable(name));
        }
        if reads_owner_in_macro(&program.expression().expr) {
            return Err(ConsumedWhenError::OwnerInMacro);
        }
        if let Some(name) = unknown_function(&program.expression().expr, &mut Context::default()) {
            return Err(ConsumedWhenError::UnknownFunction(name));
        }
        if !reads_owner(&program.expression().expr) {
            return Err(ConsumedWhenError::Constant);
        }
        Ok(Self {
            text: text.into(),
            program: Arc::new(program),
        })
    }

    /// Whether the expression is true for an owner.
    ///
    /// # Errors
    ///
    /// If it has no value: a field that it reads is missing, or the value is not a bool.
    pub fn is_true_for(&self, owner: &serde_json::Value) -> Result<bool, NoValue> {
        let value = guarded(|| {
            let mut context = Context::default();
            context.add_variable(OWNER, owner).map_err(NoValue::of)?;
            self.program.execute(&context).map_err(NoValue::of)
        })
        .map_err(NoValue::of)??;
        match value {
            Value::Bool(is_true) => Ok(is_true),
            other => Err(NoValue::of(format_args!(
                "its value is not true or false, but of type {}",
                other.type_of()
            ))),
        }
    }
}

impl NoValue {
    /// The first part of a reason: the library quotes values of the owner, which a user wrote (T3).
    fn of(why: impl fmt::Display) -> Self {
        let mut why = why.to_string();
        let end = why.floor_char_boundary(REASON_LIMIT);
        if end < why.len() {
            why.truncate(end);
            why.push_str(" …");
        }
        Self(why.into())
    }
}

/// The library panicked.
#[derive(Debug, thiserror::Error)]
#[error("the CEL library failed")]
struct Panicked;

/// A panic of the library is an error: owners are written by users.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

impl PartialEq for ConsumedWhen {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ConsumedWhen {}

impl Hash for ConsumedWhen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for ConsumedWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConsumedWhen").field(&self.text).finish()
    }
}

impl fmt::Display for ConsumedWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The direct parts of an expression.
fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &target.expr);
            target
                .chain(call.args.iter().map(|argument| &argument.expr))
                .collect()
        }
        Expr::Comprehension(macro_) => vec![
            &macro_.iter_range.expr,
            &macro_.accu_init.expr,
            &macro_.loop_cond.expr,
            &macro_.loop_step.expr,
            &macro_.result.expr,
        ],
        Expr::List(list) => list.elements.iter().map(|element| &element.expr).collect(),
        Expr::Map(map) => entries(map.entries.iter().map(|entry| &entry.expr)),
        Expr::Select(select) => vec![&select.operand.expr],
        Expr::Struct(structure) => entries(structure.entries.iter().map(|entry| &entry.expr)),
    }
}

fn entries<'a>(all: impl Iterator<Item = &'a EntryExpr>) -> Vec<&'a Expr> {
    let parts = all.flat_map(|entry| match entry {
        EntryExpr::StructField(field) => vec![&field.value.expr],
        EntryExpr::MapEntry(entry) => vec![&entry.key.expr, &entry.value.expr],
    });
    parts.collect()
}

/// How deep macros are nested.
fn depth(expr: &Expr) -> usize {
    let inner = parts(expr).into_iter().map(depth).max().unwrap_or_default();
    inner + usize::from(matches!(expr, Expr::Comprehension(_)))
}

/// A called function that the library does not declare. Operators have no letters as names.
fn unknown_function(expr: &Expr, declared: &mut Context<'_, '_>) -> Option<String> {
    if let Expr::Call(call) = expr {
        let name = &call.func_name;
        // The library refuses a second declaration of a function of its own.
        let is_unknown = name.starts_with(char::is_alphabetic)
            && declared.add_function(name, |any: i64| any).is_ok();
        if is_unknown {
            return Some(name.clone());
        }
    }
    let mut parts = parts(expr).into_iter();
    parts.find_map(|part| unknown_function(part, declared))
}

fn reads_owner(expr: &Expr) -> bool {
    matches!(expr, Expr::Ident(name) if name == OWNER) || parts(expr).into_iter().any(reads_owner)
}

/// Whether a macro reads the owner for each of its elements, as in `owner.a.all(i, i in owner.b)`.
fn reads_owner_in_macro(expr: &Expr) -> bool {
    let inside = match expr {
        Expr::Comprehension(macro_) => {
            let body = [
                &macro_.accu_init.expr,
                &macro_.loop_cond.expr,
                &macro_.loop_step.expr,
                &macro_.result.expr,
            ];
            body.into_iter().any(reads_owner)
        }
        _ => false,
    };
    inside || parts(expr).into_iter().any(reads_owner_in_macro)
}

/// A variable that neither is `owner` nor belongs to a macro.
fn free_variable<'a>(expr: &'a Expr, bound: &mut Vec<&'a str>) -> Option<String> {
    match expr {
        Expr::Ident(name) => {
            let known = name == OWNER || bound.contains(&name.as_str());
            (!known).then(|| name.clone())
        }
        Expr::Comprehension(macro_) => {
            if let Some(found) = free_variable(&macro_.iter_range.expr, bound) {
                return Some(found);
            }
            let before = bound.len();
            bound.extend([macro_.iter_var.as_str(), macro_.accu_var.as_str()]);
            bound.extend(macro_.iter_var2.as_deref());
            let inside = [
                &macro_.accu_init.expr,
                &macro_.loop_cond.expr,
                &macro_.loop_step.expr,
                &macro_.result.expr,
            ];
            let found = inside
                .into_iter()
                .find_map(|part| free_variable(part, bound));
            bound.truncate(before);
            found
        }
        other => parts(other)
            .into_iter()
            .find_map(|part| free_variable(part, bound)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const JOB: &str = r#"owner.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")"#;

    fn conditions(kind: &str, status: &str) -> Value {
        json!({ "status": { "conditions": [
            { "type": "Suspended", "status": "False" }, { "type": kind, "status": status },
        ] } })
    }

    #[rstest]
    #[case::job(JOB, conditions("Complete", "True"), Ok(true))]
    #[case::running_job(JOB, conditions("Complete", "False"), Ok(false))]
    #[case::task_run("has(owner.status.completionTime)", json!({"status": {"completionTime": "2026-01-01T00:00:00Z"}}), Ok(true))]
    #[case::running_task_run("has(owner.status.completionTime)", json!({"status": {}}), Ok(false))]
    #[case::job_set("has(owner.status.terminalState)", json!({"status": {"terminalState": "Completed"}}), Ok(true))]
    #[case::spark(
        r#"owner.status.applicationState.state in ["COMPLETED", "FAILED"]"#,
        json!({"status": {"applicationState": {"state": "FAILED"}}}),
        Ok(true)
    )]
    #[case::a_missing_field("owner.status.done", json!({"status": {}}), Err(()))]
    #[case::no_status_yet(JOB, json!({"metadata": {}}), Err(()))]
    #[case::no_bool("owner.status.phase", json!({"status": {"phase": "Done"}}), Err(()))]
    #[case::division_by_zero("1 / owner.status.n == 1", json!({"status": {"n": 0}}), Err(()))]
    #[case::overflow("owner.status.n + 1 > 0", json!({"status": {"n": i64::MAX}}), Err(()))]
    #[case::another_type("owner.status.n > 3", json!({"status": {"n": "many"}}), Err(()))]
    fn a15_an_expression_over_an_owner(
        #[case] text: &str,
        #[case] owner: Value,
        #[case] expected: Result<bool, ()>,
    ) {
        let when = ConsumedWhen::parse(text).unwrap();
        assert_eq!(when.is_true_for(&owner).map_err(drop), expected);
    }

    #[rstest]
    #[case::a_text("owner.status.text")]
    #[case::an_object("owner.status")]
    #[case::in_an_error("owner.status.text + 1 == 2")]
    #[case::as_a_key("owner.status[owner.status.text]")]
    fn t3_a_value_that_is_no_bool_is_not_kept(#[case] text: &str) {
        let owner = json!({ "status": { "text": "\u{e9}".repeat(100_000), "n": 1 } });
        let when = ConsumedWhen::parse(text).unwrap();
        let NoValue(why) = when.is_true_for(&owner).unwrap_err();
        assert!(why.len() <= 256 + 4, "{} bytes", why.len());
    }

    #[rstest]
    #[case::empty("", "invalid CEL expression")]
    #[case::not_closed("has(owner.status", "invalid CEL expression")]
    #[case::another_variable("pod.status.phase == 'Done'", "unknown variable `pod`")]
    #[case::inside_a_macro("owner.items.all(i, i == limit)", "unknown variable `limit`")]
    #[case::unknown_function("nosuch(owner)", "unknown function `nosuch`")]
    #[case::no_regular_expressions(
        r#"owner.status.name.matches("x")"#,
        "unknown function `matches`"
    )]
    #[case::unknown_inside_a_macro("owner.items.all(i, nosuch(i))", "unknown function `nosuch`")]
    #[case::constant(r#""yes""#, "does not read `owner`")]
    #[case::constant_bool("1 == 1", "does not read `owner`")]
    #[case::nested("owner.a.all(i, owner.b.all(j, i == j))", "must not be nested")]
    #[case::owner_in_a_macro("owner.a.all(i, i in owner.b)", "read only their own variable")]
    #[case::owner_in_a_later_macro(
        "size(owner.a) > 0 && owner.a.exists(i, owner.text.contains(i))",
        "read only their own variable"
    )]
    fn a15_an_expression_that_is_not_accepted(#[case] text: &str, #[case] why: &str) {
        let error = ConsumedWhen::parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a15_the_length_of_an_expression_is_limited() {
        let text = format!("owner.{}", "a".repeat(TEXT_LIMIT));
        let error = ConsumedWhen::parse(&text).unwrap_err();
        assert_eq!(error, ConsumedWhenError::TooLong(TEXT_LIMIT + 6));
    }

    #[rstest]
    #[case("size(owner.items) > 0")]
    #[case("owner.items.size() > 0")]
    #[case(r#"owner.status.phase.startsWith("Succ")"#)]
    #[case(r#"owner.status.phase.endsWith("ed") || owner.status.phase.contains("x")"#)]
    #[case(r#"string(owner.status.n) == "1" && int(owner.status.text) > 0"#)]
    #[case("owner.items.filter(i, i > 1).size() == 1")]
    #[case("owner.items.map(i, i + 1)[0] == 2 ? true : !false")]
    #[case("owner.items.exists_one(i, i in [1, 2])")]
    fn a15_standard_functions_are_known(#[case] text: &str) {
        ConsumedWhen::parse(text).unwrap();
    }

    /// Two macros one after the other are linear.
    #[test]
    fn a15_macros_may_follow_each_other() {
        let text = "owner.a.all(i, i > 0) && owner.b.exists(i, i > 0)";
        assert!(ConsumedWhen::parse(text).is_ok());
    }
}
