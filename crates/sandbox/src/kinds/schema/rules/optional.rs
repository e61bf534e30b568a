//! Optional fields and values, which the CEL library reads and compares differently from the real server. Expressions
//! are rewritten before they run.

use kube_cel::cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::macros::{call, inside, node};

/// The comparison of two values, also optional ones.
pub(crate) const EQUAL: &str = "@equal";

pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(EQUAL, |one: Cel, other: Cel| {
        Ok::<Cel, ExecutionError>(Cel::Bool(one == other))
    });
}

/// The expression with the real server's meaning of optional values.
pub(super) fn rewrite(mut whole: IdedExpr) -> IdedExpr {
    inside(&mut whole.expr, &mut |part| {
        *part = rewrite(std::mem::take(part));
    });
    whole.expr = match whole.expr {
        Expr::Call(of) if of.func_name == operators::OPT_SELECT => {
            call(operators::OPT_INDEX, of.args).expr
        }
        Expr::Call(of) if of.args.iter().any(is_optional) => match of.func_name.as_str() {
            operators::EQUALS => call(EQUAL, of.args).expr,
            operators::NOT_EQUALS => call(operators::LOGICAL_NOT, vec![call(EQUAL, of.args)]).expr,
            _ => Expr::Call(of),
        },
        // A field of an optional value is optional.
        Expr::Select(select) if !select.test && is_optional(&select.operand) => {
            let field = LiteralValue::String(select.field.as_str().into());
            let field = node(Expr::Literal(field));
            call(operators::OPT_INDEX, vec![*select.operand, field]).expr
        }
        other => other,
    };
    whole
}

/// Whether an expression is optional, as far as it shows.
fn is_optional(expr: &IdedExpr) -> bool {
    let Expr::Call(call) = &expr.expr else {
        return false;
    };
    match call.func_name.as_str() {
        operators::OPT_INDEX | operators::OPT_SELECT => true,
        operators::INDEX => call.args.first().is_some_and(is_optional),
        operators::CONDITIONAL => call.args.iter().skip(1).any(is_optional),
        "of" | "ofNonZeroValue" | "none" => {
            let target = call.target.as_ref().map(|target| &target.expr);
            matches!(target, Some(Expr::Ident(name)) if name == "optional")
        }
        "or" => call.target.as_deref().is_some_and(is_optional),
        _ => false,
    }
}
