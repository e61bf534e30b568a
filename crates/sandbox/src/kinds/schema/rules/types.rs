//! The types of expressions, as far as they show mistakes: unknown fields and variables, results of the wrong type.
//! What is not known is dynamic and is accepted.

use kube_cel::cel::Value as Cel;
use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};
use serde_json::Value;

use super::super::{INT_OR_STRING, flag, is_typed};
use super::parts;
use super::value::escape;

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type<'a> {
    /// Not known before the evaluation.
    Dynamic,
    Bool,
    Int,
    Double,
    Text,
    Bytes,
    Timestamp,
    Duration,
    /// An object with the fields of a schema; whether it is a whole resource.
    Object(&'a Value, bool),
    List,
    Map,
}

/// Names of types that rules can compare with.
pub(super) const NAMES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "uint",
];

pub(super) fn name_of(value: &Cel) -> &'static str {
    match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::Duration(_) => "duration",
        Cel::Timestamp(_) => "timestamp",
        _ => "dyn",
    }
}

impl<'a> Type<'a> {
    fn of(schema: &'a Value, whole: bool) -> Self {
        let format = schema.get("format").and_then(Value::as_str);
        match schema.get("type").and_then(Value::as_str) {
            _ if flag(schema, INT_OR_STRING) => Type::Dynamic,
            Some("boolean") => Type::Bool,
            Some("integer") => Type::Int,
            Some("number") => Type::Double,
            Some("string") => match format {
                Some("date-time" | "date") => Type::Timestamp,
                Some("duration") => Type::Duration,
                Some("byte") => Type::Bytes,
                _ => Type::Text,
            },
            Some("array") => Type::List,
            Some("object")
                if schema
                    .get("additionalProperties")
                    .is_some_and(Value::is_object) =>
            {
                Type::Map
            }
            Some("object") => Type::Object(
                schema,
                whole || flag(schema, "x-kubernetes-embedded-resource"),
            ),
            _ => Type::Dynamic,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Type::Dynamic => "dyn",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Double => "double",
            Type::Text => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::Object(..) => "object",
            Type::List => "list",
            Type::Map => "map",
        }
    }

    /// The type of a field, or that there is none.
    fn field(&self, name: &str) -> Result<Type<'a>, String> {
        match self {
            Type::Dynamic | Type::Map => Ok(Type::Dynamic),
            Type::Object(schema, whole) => {
                if *whole && is_typed(name) {
                    return Ok(if name == "metadata" {
                        Type::Dynamic
                    } else {
                        Type::Text
                    });
                }
                let properties = schema.get("properties").and_then(Value::as_object);
                let mut properties = properties.into_iter().flatten();
                let found = properties.find(|(known, _)| escape(known).as_deref() == Some(name));
                match found {
                    Some((_, schema)) => Ok(Type::of(schema, false)),
                    None => Err(format!("undefined field '{name}'")),
                }
            }
            other => Err(format!(
                "type '{}' does not support field selection",
                other.name()
            )),
        }
    }
}

/// The variables that an expression can read.
pub(super) struct Scope<'a> {
    own: Type<'a>,
    old: Type<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(schema: &'a Value, root: bool, optional_old: bool) -> Self {
        let own = Type::of(schema, root);
        let old = if optional_old {
            Type::Dynamic
        } else {
            own.clone()
        };
        Scope { own, old }
    }
}

/// Checks an expression that must have a type.
///
/// # Errors
/// The first mistake.
pub(super) fn check(expr: &Expr, scope: &Scope<'_>, wanted: &Type<'_>) -> Result<(), String> {
    let found = infer(expr, scope, &mut Vec::new())?;
    if found == *wanted || found == Type::Dynamic {
        return Ok(());
    }
    Err(match wanted {
        Type::Text => "must evaluate to a string".to_owned(),
        _ => "must evaluate to a bool".to_owned(),
    })
}

fn infer<'a>(expr: &Expr, scope: &Scope<'a>, local: &mut Vec<String>) -> Result<Type<'a>, String> {
    match expr {
        Expr::Literal(literal) => Ok(match literal {
            LiteralValue::Boolean(_) => Type::Bool,
            LiteralValue::Int(_) => Type::Int,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::String(_) => Type::Text,
            LiteralValue::Bytes(_) => Type::Bytes,
            LiteralValue::Null | LiteralValue::UInt(_) => Type::Dynamic,
        }),
        Expr::Ident(name) => variable(name, scope, local),
        Expr::Select(select) => {
            // `has(a.b)` and namespaces such as `format.dns1123Label`.
            if matches!(&select.operand.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
            {
                return Ok(Type::Dynamic);
            }
            let field = infer(&select.operand.expr, scope, local)?.field(&select.field)?;
            Ok(if select.test { Type::Bool } else { field })
        }
        Expr::Comprehension(all) => {
            infer(&all.iter_range.expr, scope, local)?;
            infer(&all.accu_init.expr, scope, local)?;
            let before = local.len();
            local.extend([all.iter_var.clone(), all.accu_var.clone()]);
            local.extend(all.iter_var2.clone());
            for part in [&all.loop_cond, &all.loop_step, &all.result] {
                infer(&part.expr, scope, local)?;
            }
            local.truncate(before);
            Ok(match &all.accu_init.expr {
                Expr::Literal(LiteralValue::Boolean(_)) => Type::Bool,
                Expr::List(_) => Type::List,
                _ => Type::Dynamic,
            })
        }
        Expr::Call(call) => {
            let namespaced = call.target.as_ref().is_some_and(
                |target| matches!(&target.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str())),
            );
            // Macros that the parser does not expand bind variables of their own.
            if !namespaced && BINDING.contains(&call.func_name.as_str()) {
                return Ok(Type::Dynamic);
            }
            // `a.?b`: the schema must have the field; its value is optional.
            if let (operators::OPT_SELECT, [of, field]) = (call.func_name.as_str(), &*call.args)
                && let Expr::Literal(LiteralValue::String(name)) = &field.expr
            {
                infer(&of.expr, scope, local)?.field(name.inner())?;
                return Ok(Type::Dynamic);
            }
            let mut types = Vec::new();
            for part in call
                .target
                .iter()
                .filter(|_| !namespaced)
                .map(|t| &**t)
                .chain(&call.args)
            {
                types.push(infer(&part.expr, scope, local)?);
            }
            result(&call.func_name, &types)
        }
        Expr::List(_) => inside(expr, scope, local, Type::List),
        Expr::Map(_) => inside(expr, scope, local, Type::Map),
        Expr::Struct(_) | Expr::Unspecified => Ok(Type::Dynamic),
    }
}

fn inside<'a>(
    expr: &Expr,
    scope: &Scope<'a>,
    local: &mut Vec<String>,
    found: Type<'a>,
) -> Result<Type<'a>, String> {
    for part in parts(expr) {
        infer(&part.expr, scope, local)?;
    }
    Ok(found)
}

/// Prefixes of functions.
const NAMESPACES: [&str; 7] = [
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "optional",
    "sets",
    "strings",
];

const BINDING: [&str; 9] = [
    "all",
    "exists",
    "existsOne",
    "exists_one",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
];

fn variable<'a>(name: &str, scope: &Scope<'a>, local: &[String]) -> Result<Type<'a>, String> {
    match name {
        "self" => Ok(scope.own.clone()),
        "oldSelf" => Ok(scope.old.clone()),
        name if local.iter().any(|known| known == name) || NAMES.contains(&name) => {
            Ok(Type::Dynamic)
        }
        name => Err(format!(
            "undeclared reference to '{name}' (in container '')"
        )),
    }
}

fn result<'a>(function: &str, types: &[Type<'a>]) -> Result<Type<'a>, String> {
    let operator = function.starts_with(['_', '!', '@', '-']);
    if !operator && !FUNCTIONS.contains(&function) {
        return Err(format!(
            "undeclared reference to '{function}' (in container '')"
        ));
    }
    Ok(match (function, types) {
        ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            if a != b && ![a, b].contains(&&Type::Dynamic) && !is_number_pair(function, a, b) {
                return Err(format!(
                    "found no matching overload for '{function}' applied to '({}, {})'",
                    a.name(),
                    b.name()
                ));
            }
            Type::Bool
        }
        ("_&&_" | "_||_" | "!_" | "@in", _) => Type::Bool,
        ("startsWith" | "endsWith" | "contains" | "matches" | "isURL" | "isIP" | "isCIDR", _) => {
            Type::Bool
        }
        // Only lists have it on the server.
        ("reverse", [Type::Text]) => {
            return Err("found no matching overload for 'reverse' applied to 'string.()'".into());
        }
        ("size", _) => Type::Int,
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) if a == b => a.clone(),
        ("string", _) => Type::Text,
        ("int", _) => Type::Int,
        ("double", _) => Type::Double,
        _ => Type::Dynamic,
    })
}

/// Numbers of different types can be ordered, but not compared for equality.
fn is_number_pair(function: &str, a: &Type<'_>, b: &Type<'_>) -> bool {
    let number = |one: &Type<'_>| matches!(one, Type::Int | Type::Double);
    !matches!(function, "_==_" | "_!=_") && number(a) && number(b)
}

/// Functions of rules besides operators.
const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "dyn",
    "type",
    "duration",
    "timestamp",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "find",
    "findAll",
    "format",
    "isSorted",
    "sum",
    "min",
    "max",
    "slice",
    "sort",
    "flatten",
    "distinct",
    "range",
    "reverse",
    "first",
    "last",
    "intersects",
    "equivalent",
    "url",
    "isURL",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "ip",
    "isIP",
    "isCanonical",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "prefixLength",
    "masked",
    "quantity",
    "isQuantity",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "sign",
    "add",
    "sub",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "semver",
    "isSemver",
    "major",
    "minor",
    "patch",
    "validate",
    "named",
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "qualifiedName",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
    "escapeKey",
    "quote",
    "of",
    "ofNonZeroValue",
    "none",
    "value",
    "hasValue",
    "or",
    "orValue",
];
