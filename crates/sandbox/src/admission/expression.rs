//! Expressions of admission policies.
//!
//! The CEL library reads optional fields, compares optional values and builds objects differently from the real
//! server, so expressions are rewritten before they run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr,
    operators,
};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::{Number, Value};

use super::authorizer;
use crate::kinds::schema::cel;

/// Variables whose names have a dot.
const COMPOSED: [&str; 2] = ["variables", "authorizer"];

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) text: String,
    /// The error is the library's text.
    parsed: Result<cel::Expression, String>,
    /// The identifiers in it.
    names: BTreeSet<String>,
}

impl Program {
    pub(super) fn new(text: &str) -> Self {
        let parsed = cel::parse(text).map(rewrite);
        let mut names = BTreeSet::new();
        if let Ok(parsed) = &parsed {
            collect(&parsed.expr, &mut names);
        }
        Program {
            text: text.trim().to_owned(),
            parsed,
            names,
        }
    }

    #[cfg(test)]
    pub(super) fn problem(&self) -> Option<String> {
        let why = self.parsed.as_ref().err()?;
        Some(format!("{}: {why}", self.text))
    }

    pub(super) fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether it asks for permissions.
    pub(super) fn authorizes(&self) -> bool {
        self.names.iter().any(|name| name.starts_with("authorizer"))
    }
}

/// Values of variables, and the variables of a policy, which are evaluated when an expression needs them.
pub(super) struct Scope<'a> {
    context: Context<'a>,
    variables: &'a [(String, Program)],
    /// Which of them are evaluated; an error is the server's text.
    evaluated: BTreeMap<String, Result<(), String>>,
}

thread_local! {
    /// Building it takes longer than most expressions.
    static BASE: Context<'static> = base();
}

fn base() -> Context<'static> {
    let mut context = cel::base();
    authorizer::add_functions(&mut context);
    context
}

/// Calls a function with a scope of these values.
pub(super) fn with_scope<T>(
    values: Vec<(&'static str, Cel)>,
    variables: &[(String, Program)],
    call: impl FnOnce(&mut Scope<'_>) -> T,
) -> T {
    BASE.with(|base| {
        let mut context = base.new_inner_scope();
        for (name, value) in values {
            context.add_variable_from_value(name, value);
        }
        call(&mut Scope {
            context,
            variables,
            evaluated: BTreeMap::new(),
        })
    })
}

impl Scope<'_> {
    /// The value of an expression.
    ///
    /// # Errors
    /// The server's text.
    pub(super) fn value(&mut self, program: &Program) -> Result<Cel, String> {
        self.prepare(program);
        self.run(program)
            .map_err(|why| format!("expression '{}' resulted in error: {why}", program.text))
    }

    /// Replaces `object`; variables are evaluated anew.
    pub(super) fn set_object(&mut self, object: &Value) {
        self.context
            .add_variable_from_value("object", of_json(object));
        self.evaluated.clear();
    }

    fn prepare(&mut self, program: &Program) {
        let variables = self.variables;
        for (name, variable) in variables {
            let full = format!("variables.{name}");
            if !program.names(&full) || self.evaluated.contains_key(&full) {
                continue;
            }
            // A variable that refers to itself has no value.
            let circular = Err(format!("variable {name:?} refers to itself"));
            self.evaluated.insert(full.clone(), circular);
            self.prepare(variable);
            let result = match self.run(variable) {
                Ok(value) => {
                    self.context.add_variable_from_value(full.as_str(), value);
                    Ok(())
                }
                Err(why) => Err(format!(
                    "composited variable {name:?} fails to evaluate: {why}"
                )),
            };
            self.evaluated.insert(full, result);
        }
    }

    fn run(&self, program: &Program) -> Result<Cel, String> {
        let parsed = program.parsed.as_ref().map_err(String::clone)?;
        let work = || Cel::resolve(parsed, &self.context);
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err("the CEL library failed".to_owned()),
        }
    }

    fn explain(&self, error: &ExecutionError) -> String {
        match error {
            ExecutionError::UndeclaredReference(name) => match self.evaluated.get(&**name) {
                Some(Err(why)) => why.clone(),
                _ => format!("the sandbox does not support '{name}'"),
            },
            ExecutionError::NoSuchOverload
            | ExecutionError::ValuesNotComparable(..)
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::UnsupportedUnaryOperator(..) => "no such overload".to_owned(),
            other => cel::reason(other),
        }
    }
}

fn boxed(expr: IdedExpr) -> Box<IdedExpr> {
    Box::new(rewrite(expr))
}

fn literal(text: String) -> IdedExpr {
    IdedExpr {
        id: 0,
        expr: Expr::Literal(LiteralValue::String(text.as_str().into())),
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    })
}

/// The expression with the real server's meaning.
fn rewrite(whole: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = whole;
    let expr = match expr {
        Expr::Select(select) if !select.test => match select.operand.expr {
            Expr::Ident(name) if COMPOSED.contains(&name.as_str()) => {
                Expr::Ident(format!("{name}.{}", select.field))
            }
            operand => {
                let operand = rewrite(IdedExpr { id, expr: operand });
                call(operators::INDEX, vec![operand, literal(select.field)])
            }
        },
        Expr::Select(mut select) => {
            *select.operand = rewrite(*select.operand);
            Expr::Select(select)
        }
        Expr::Call(inner) => {
            let args: Vec<IdedExpr> = inner.args.into_iter().map(rewrite).collect();
            match (inner.func_name.as_str(), inner.target) {
                (operators::OPT_SELECT, _) => call(operators::OPT_INDEX, args),
                (operators::EQUALS, None) => call(cel::EQUAL, args),
                (operators::NOT_EQUALS, None) => {
                    let expr = call(cel::EQUAL, args);
                    call(operators::LOGICAL_NOT, vec![IdedExpr { id, expr }])
                }
                (name, target) => Expr::Call(CallExpr {
                    func_name: name.to_owned(),
                    target: target.map(|target| boxed(*target)),
                    args,
                }),
            }
        }
        Expr::Comprehension(mut all) => {
            all.iter_range = rewrite(all.iter_range);
            all.accu_init = rewrite(all.accu_init);
            all.loop_cond = rewrite(all.loop_cond);
            all.loop_step = rewrite(all.loop_step);
            all.result = rewrite(all.result);
            Expr::Comprehension(all)
        }
        Expr::List(mut list) => {
            list.elements = list.elements.into_iter().map(rewrite).collect();
            Expr::List(list)
        }
        Expr::Map(map) => Expr::Map(entries(map.entries)),
        // `JSONPatch{…}` and `Object.spec{…}`: their fields are what counts.
        Expr::Struct(fields) => Expr::Map(entries(fields.entries)),
        other => other,
    };
    IdedExpr { id, expr }
}

fn entries(all: Vec<IdedEntryExpr>) -> MapExpr {
    let entry = |entry: IdedEntryExpr| {
        let (key, value, optional) = match entry.expr {
            EntryExpr::StructField(field) => (literal(field.field), field.value, field.optional),
            EntryExpr::MapEntry(entry) => (rewrite(entry.key), entry.value, entry.optional),
        };
        IdedEntryExpr {
            id: entry.id,
            expr: EntryExpr::MapEntry(MapEntryExpr {
                key,
                value: rewrite(value),
                optional,
            }),
        }
    };
    MapExpr {
        entries: all.into_iter().map(entry).collect(),
    }
}

fn collect(expr: &Expr, names: &mut BTreeSet<String>) {
    if let Expr::Ident(name) = expr {
        names.insert(name.clone());
    }
    for part in cel::parts(expr) {
        collect(&part.expr, names);
    }
}

/// A value of an object: policies see every field, without a schema.
pub(super) fn of_json(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(is_true) => Cel::Bool(*is_true),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(of_json).collect())),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), of_json(value)));
            Cel::Map(Map {
                map: Arc::new(fields.collect::<HashMap<_, _>>()),
            })
        }
    }
}

/// A computed value as JSON; `None` if it has no form there.
pub(super) fn to_json(value: &Cel) -> Option<Value> {
    Some(match value {
        Cel::Null => Value::Null,
        Cel::Bool(is_true) => Value::Bool(*is_true),
        Cel::Int(number) => Value::from(*number),
        Cel::UInt(number) => Value::from(*number),
        Cel::Float(number) => Value::Number(Number::from_f64(*number)?),
        Cel::String(text) => Value::String(text.to_string()),
        Cel::List(items) => Value::Array(items.iter().map(to_json).collect::<Option<_>>()?),
        Cel::Map(map) => {
            let field = |(key, value): (&Key, &Cel)| match key {
                Key::String(name) => Some((name.to_string(), to_json(value)?)),
                _ => None,
            };
            Value::Object(map.map.iter().map(field).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
