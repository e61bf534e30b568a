//! Stored policies and their bindings, compiled.

use serde_json::Value;

use super::expression::Program;
use super::matching::{Constraints, list, texts};
use crate::meta;
use crate::selector::LabelSelector;

/// A policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// `failurePolicy: Fail`.
    pub(super) fails: bool,
    /// `apiVersion` and `kind`.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) constraints: Constraints,
    pub(super) conditions: Vec<Program>,
    pub(super) variables: Vec<(String, Program)>,
    pub(super) validations: Vec<Validation>,
    pub(super) mutations: Vec<Mutation>,
    /// It runs again after a later policy has changed the object.
    pub(super) again: bool,
    pub(super) authorizes: bool,
    pub(super) bindings: Vec<Binding>,
}

/// A rule of a validating policy.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) program: Program,
    pub(super) message: String,
    pub(super) message_program: Option<Program>,
    pub(super) reason: String,
}

/// A change of a mutating policy.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) program: Program,
    /// A JSON patch, else a configuration that is applied.
    pub(super) is_json_patch: bool,
}

/// A binding.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) params: Option<ParamRef>,
    pub(super) constraints: Constraints,
    pub(super) actions: Vec<String>,
}

/// Where the parameters are.
#[derive(Debug)]
pub(super) struct ParamRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<LabelSelector>,
    /// `parameterNotFoundAction: Deny`.
    pub(super) required: bool,
}

fn optional(object: &Value, path: &[&str]) -> Option<Program> {
    Some(meta::text(object, path))
        .filter(|text| !text.is_empty())
        .map(Program::new)
}

pub(super) fn policy(object: &Value, bindings: Vec<Binding>) -> Policy {
    let spec = &object["spec"];
    let expression = |part: &Value| Program::new(meta::text(part, &["expression"]));
    let validation = |part: &Value| Validation {
        program: expression(part),
        message: meta::text(part, &["message"]).trim().to_owned(),
        message_program: optional(part, &["messageExpression"]),
        reason: meta::text(part, &["reason"]).to_owned(),
    };
    let mutation = |part: &Value| {
        let is_json_patch = meta::text(part, &["patchType"]) == "JSONPatch";
        let field = match is_json_patch {
            true => "jsonPatch",
            false => "applyConfiguration",
        };
        Mutation {
            program: Program::new(meta::text(part, &[field, "expression"])),
            is_json_patch,
        }
    };
    let variable = |part: &Value| (meta::text(part, &["name"]).to_owned(), expression(part));
    let kind = spec.get("paramKind").filter(|kind| kind.is_object());
    let mut policy = Policy {
        name: meta::name(object).to_owned(),
        fails: meta::text(spec, &["failurePolicy"]) != "Ignore",
        param_kind: kind.map(|kind| {
            let text = |field| meta::text(kind, &[field]).to_owned();
            (text("apiVersion"), text("kind"))
        }),
        constraints: Constraints::of(spec.get("matchConstraints")),
        conditions: list(spec, &["matchConditions"]).map(expression).collect(),
        variables: list(spec, &["variables"]).map(variable).collect(),
        validations: list(spec, &["validations"]).map(validation).collect(),
        mutations: list(spec, &["mutations"]).map(mutation).collect(),
        again: meta::text(spec, &["reinvocationPolicy"]) == "IfNeeded",
        authorizes: false,
        bindings,
    };
    let authorizes = policy.programs().any(Program::authorizes);
    policy.authorizes = authorizes;
    policy
}

impl Policy {
    /// Expressions that cannot be parsed.
    #[cfg(test)]
    pub(super) fn problems(&self) -> Vec<String> {
        self.programs().filter_map(Program::problem).collect()
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        let messages = self.validations.iter();
        let messages = messages.filter_map(|one| one.message_program.as_ref());
        let variables = self.variables.iter().map(|(_, program)| program);
        let validations = self.validations.iter().map(|one| &one.program);
        let mutations = self.mutations.iter().map(|one| &one.program);
        let conditions = self.conditions.iter();
        (conditions.chain(variables).chain(validations)).chain(mutations.chain(messages))
    }
}

pub(super) fn binding(object: &Value) -> Binding {
    let spec = &object["spec"];
    let params = spec.get("paramRef").filter(|params| params.is_object());
    Binding {
        name: meta::name(object).to_owned(),
        params: params.map(|params| ParamRef {
            name: meta::text(params, &["name"]).to_owned(),
            namespace: meta::text(params, &["namespace"]).to_owned(),
            selector: params.get("selector").and_then(LabelSelector::of),
            required: meta::text(params, &["parameterNotFoundAction"]) == "Deny",
        }),
        constraints: Constraints::of(spec.get("matchResources")),
        actions: texts(spec, "validationActions"),
    }
}
