//! Macros that the CEL library lacks: those of two variables, and `sortBy`. They are expanded after parsing.
//!
//! The library's loops have one variable, so a macro of two variables is a loop over entries, in whose body the two
//! variables are replaced by the parts of the entry.

use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr,
    operators,
};
use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

/// The entries of a list, by index, or of a map, by key.
const ENTRIES: &str = "@entries";
/// A map with one more entry.
const INSERT: &str = "@insert";
/// A list in the order of other values.
const SORT: &str = "@sortByAssociatedKeys";
const RESULT: &str = "@result";

/// Adds the functions that the expanded macros call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(ENTRIES, entries);
    context.add_function(INSERT, insert);
    context.add_function(SORT, sort);
}

/// The expression with all such macros expanded.
///
/// # Errors
/// A variable is not a name.
pub(super) fn expand(mut whole: IdedExpr) -> Result<IdedExpr, String> {
    let mut wrong = None;
    inside(
        &mut whole.expr,
        &mut |part| match expand(std::mem::take(part)) {
            Ok(expanded) => *part = expanded,
            Err(why) => wrong = Some(why),
        },
    );
    if let Some(why) = wrong {
        return Err(why);
    }
    let Expr::Call(call) = &mut whole.expr else {
        return Ok(whole);
    };
    let build: Build = match (call.func_name.as_str(), call.args.len()) {
        ("all", 3) => |id, range, args| of_two(all, id, range, args),
        ("exists", 3) => |id, range, args| of_two(exists, id, range, args),
        ("exists_one" | "existsOne", 3) => |id, range, args| of_two(exists_one, id, range, args),
        ("transformList", 3 | 4) => |id, range, args| of_two(list, id, range, args),
        ("transformMap", 3 | 4) => |id, range, args| of_two(map, id, range, args),
        ("transformMapEntry", 3 | 4) => |id, range, args| of_two(map_of_entries, id, range, args),
        ("sortBy", 2) => |_, range, args| sort_by(range, args),
        ("optMap", 2) => |_, value, args| of_optional(value, args, false),
        ("optFlatMap", 2) => |_, value, args| of_optional(value, args, true),
        _ => return Ok(whole),
    };
    if let Some(target) = call.target.take() {
        let args = std::mem::take(&mut call.args);
        whole.expr = build(whole.id, *target, args)?;
    }
    Ok(whole)
}

/// Expands a macro with this id, on a target, with these arguments.
type Build = fn(u64, IdedExpr, Vec<IdedExpr>) -> Result<Expr, String>;

/// What is computed of each entry.
struct Body {
    /// The variable of the key, by which entries of a map are stored.
    key: IdedExpr,
    filter: Option<IdedExpr>,
    value: IdedExpr,
}

/// The start, the condition, one step and the end of a loop.
struct Loop {
    start: Expr,
    condition: Expr,
    step: Expr,
    end: Expr,
}

fn of_two(
    build: fn(Body) -> Loop,
    id: u64,
    range: IdedExpr,
    args: Vec<IdedExpr>,
) -> Result<Expr, String> {
    let names = variables(args.get(..2).unwrap_or_default())?;
    // Unique, so that loops can be nested.
    let entry = format!("@entry{id}");
    let part = |index| call(operators::INDEX, vec![ident(&entry), number(index)]).expr;
    let parts = [part(0), part(1)];
    let bodies = args.into_iter().skip(2);
    let mut bodies: Vec<_> = bodies.map(|body| replace(body, &names, &parts)).collect();
    let value = bodies.pop().unwrap_or_default();
    let [key, _] = parts;
    let body = Body {
        key: node(key),
        filter: bodies.pop(),
        value,
    };
    Ok(over(call(ENTRIES, vec![range]), entry, build(body)))
}

fn over(range: IdedExpr, variable: String, built: Loop) -> Expr {
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range,
        iter_var: variable,
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: node(built.start),
        loop_cond: node(built.condition),
        loop_step: node(built.step),
        result: node(built.end),
    }))
}

/// The names of the variables.
fn variables(args: &[IdedExpr]) -> Result<Vec<String>, String> {
    let name = |arg: &IdedExpr| match &arg.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err("argument must be a simple name".to_owned()),
    };
    args.iter().map(name).collect()
}

pub(super) fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

/// The call of a function.
pub(super) fn call(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    }))
}

fn is(value: bool) -> Expr {
    Expr::Literal(LiteralValue::Boolean(value.into()))
}

fn number(value: i64) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Int(value.into())))
}

fn all(body: Body) -> Loop {
    Loop {
        start: is(true),
        condition: call(operators::NOT_STRICTLY_FALSE, vec![ident(RESULT)]).expr,
        step: call(operators::LOGICAL_AND, vec![ident(RESULT), body.value]).expr,
        end: ident(RESULT).expr,
    }
}

fn exists(body: Body) -> Loop {
    let not = call(operators::LOGICAL_NOT, vec![ident(RESULT)]);
    Loop {
        start: is(false),
        condition: call(operators::NOT_STRICTLY_FALSE, vec![not]).expr,
        step: call(operators::LOGICAL_OR, vec![ident(RESULT), body.value]).expr,
        end: ident(RESULT).expr,
    }
}

fn exists_one(body: Body) -> Loop {
    let more = call(operators::ADD, vec![ident(RESULT), number(1)]);
    Loop {
        start: number(0).expr,
        condition: is(true),
        step: call(
            operators::CONDITIONAL,
            vec![body.value, more, ident(RESULT)],
        )
        .expr,
        end: call(operators::EQUALS, vec![ident(RESULT), number(1)]).expr,
    }
}

fn list(body: Body) -> Loop {
    let one = node(Expr::List(ListExpr {
        elements: vec![body.value],
        ..ListExpr::default()
    }));
    let empty = Expr::List(ListExpr::default());
    collected(
        empty,
        body.filter,
        call(operators::ADD, vec![ident(RESULT), one]),
    )
}

fn map(body: Body) -> Loop {
    let more = call(INSERT, vec![ident(RESULT), body.key, body.value]);
    collected(Expr::Map(MapExpr::default()), body.filter, more)
}

fn map_of_entries(body: Body) -> Loop {
    let more = call(INSERT, vec![ident(RESULT), body.value]);
    collected(Expr::Map(MapExpr::default()), body.filter, more)
}

fn collected(start: Expr, filter: Option<IdedExpr>, more: IdedExpr) -> Loop {
    let step = match filter {
        Some(filter) => call(operators::CONDITIONAL, vec![filter, more, ident(RESULT)]),
        None => more,
    };
    Loop {
        start,
        condition: is(true),
        step: step.expr,
        end: ident(RESULT).expr,
    }
}

/// `list.sortBy(name, key)`: the list, sorted by the key of each item.
fn sort_by(range: IdedExpr, mut args: Vec<IdedExpr>) -> Result<Expr, String> {
    let mut names = variables(args.get(..1).unwrap_or_default())?;
    let name = names.pop().unwrap_or_default();
    let body = Body {
        key: ident(&name),
        filter: None,
        value: args.pop().unwrap_or_default(),
    };
    let keys = node(over(range.clone(), name, list(body)));
    Ok(call(SORT, vec![range, keys]).expr)
}

/// `value.optMap(name, body)`: the body with the value, if there is one.
fn of_optional(value: IdedExpr, mut args: Vec<IdedExpr>, is_flat: bool) -> Result<Expr, String> {
    let names = variables(args.get(..1).unwrap_or_default())?;
    let method = |of: IdedExpr, name: &str, args| {
        node(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: Some(Box::new(of)),
            args,
        }))
    };
    let inner = method(value.clone(), "value", Vec::new()).expr;
    let body = args.pop().unwrap_or_default();
    let body = replace(body, &names, &[inner.clone(), inner]);
    let some = match is_flat {
        true => body,
        false => method(ident("optional"), "of", vec![body]),
    };
    let has = method(value, "hasValue", Vec::new());
    let none = method(ident("optional"), "none", Vec::new());
    Ok(call(operators::CONDITIONAL, vec![has, some, none]).expr)
}

/// The expression with variables replaced, except where a loop has a variable of the same name.
fn replace(mut whole: IdedExpr, names: &[String], by: &[Expr; 2]) -> IdedExpr {
    match &mut whole.expr {
        Expr::Ident(name) => {
            if let Some(at) = names.iter().position(|known| known == name) {
                whole.expr = by[at].clone();
            }
        }
        Expr::Comprehension(all) => {
            for part in [&mut all.iter_range, &mut all.accu_init] {
                *part = replace(std::mem::take(part), names, by);
            }
            // A variable of the inner loop that has one of the names hides it.
            let hidden = [&all.iter_var, &all.accu_var];
            let shown = |name: &String| match hidden.contains(&name) {
                true => String::new(),
                false => name.clone(),
            };
            let names: Vec<String> = names.iter().map(shown).collect();
            for part in [&mut all.loop_cond, &mut all.loop_step, &mut all.result] {
                *part = replace(std::mem::take(part), &names, by);
            }
        }
        other => inside(other, &mut |part| {
            *part = replace(std::mem::take(part), names, by);
        }),
    }
    whole
}

/// Calls `visit` with the direct parts of an expression.
pub(super) fn inside(expr: &mut Expr, visit: &mut dyn FnMut(&mut IdedExpr)) {
    let of_entry = |entry: &mut EntryExpr, visit: &mut dyn FnMut(&mut IdedExpr)| match entry {
        EntryExpr::StructField(field) => visit(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key);
            visit(&mut entry.value);
        }
    };
    match expr {
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                visit(target);
            }
            call.args.iter_mut().for_each(visit);
        }
        Expr::Comprehension(all) => {
            visit(&mut all.iter_range);
            visit(&mut all.accu_init);
            visit(&mut all.loop_cond);
            visit(&mut all.loop_step);
            visit(&mut all.result);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                of_entry(&mut entry.expr, visit);
            }
        }
        Expr::Struct(fields) => {
            for entry in &mut fields.entries {
                of_entry(&mut entry.expr, visit);
            }
        }
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn entries(of: Cel) -> Result<Cel, ExecutionError> {
    let pair = |key: Cel, value: &Cel| Cel::List(Arc::new(vec![key, value.clone()]));
    let pairs = match &of {
        Cel::List(items) => {
            let items = (0_i64..).zip(items.iter());
            items
                .map(|(index, item)| pair(Cel::Int(index), item))
                .collect()
        }
        Cel::Map(map) => {
            let mut all: Vec<(&Key, &Cel)> = map.map.iter().collect();
            // Runs are repeatable.
            all.sort_by_key(|(key, _)| *key);
            all.into_iter()
                .map(|(key, value)| pair(key.clone().into(), value))
                .collect()
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Cel::List(Arc::new(pairs)))
}

/// `@insert(map, key, value)` or `@insert(map, entries)`.
fn insert(Arguments(args): Arguments) -> Result<Cel, ExecutionError> {
    let (Some(Cel::Map(map)), more) = (args.first(), args.get(1..).unwrap_or_default()) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let more = match more {
        [key, value] => {
            let key = match key {
                Cel::Int(key) => Key::Int(*key),
                Cel::UInt(key) => Key::Uint(*key),
                Cel::Bool(key) => Key::Bool(*key),
                Cel::String(key) => Key::String(Arc::clone(key)),
                _ => return Err(ExecutionError::NoSuchOverload),
            };
            vec![(key, value.clone())]
        }
        [Cel::Map(more)] => {
            let more = more.map.iter();
            more.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let mut all = (*map.map).clone();
    for (key, value) in more {
        if all.insert(key, value).is_some() {
            let why = "insert failed: key already exists".to_owned();
            return Err(ExecutionError::FunctionError {
                function: INSERT.to_owned(),
                message: why,
            });
        }
    }
    Ok(Cel::Map(Map { map: Arc::new(all) }))
}

fn sort(items: Arc<Vec<Cel>>, keys: Arc<Vec<Cel>>) -> Result<Cel, ExecutionError> {
    let comparable = keys
        .windows(2)
        .all(|pair| pair[0].partial_cmp(&pair[1]).is_some());
    if !comparable || items.len() != keys.len() {
        return Err(ExecutionError::NoSuchOverload);
    }
    let mut all: Vec<(&Cel, &Cel)> = keys.iter().zip(items.iter()).collect();
    all.sort_by(|(one, _), (other, _)| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let sorted = all.into_iter().map(|(_, item)| item.clone()).collect();
    Ok(Cel::List(Arc::new(sorted)))
}
