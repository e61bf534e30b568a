//! `authorizer`: what the user of a request may do, by the stored roles.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use crate::access::{Access, Decision, Roles, User, allowed};
use crate::meta;

/// The roles and bindings at the time of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RolesSnapshot(pub(crate) Vec<(&'static str, Arc<Value>)>);

impl Roles for RolesSnapshot {
    fn list(&self, resource: &'static str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let wanted = |object: &Value| {
            namespace.is_none_or(|namespace| meta::field(object, "namespace") == namespace)
        };
        let of_resource = self.0.iter().filter(|(own, _)| *own == resource);
        let objects = of_resource.map(|(_, object)| Arc::clone(object));
        objects.filter(|object| wanted(object)).collect()
    }

    fn get(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Value>> {
        let mut objects = self.list(resource, namespace).into_iter();
        objects.find(|object| meta::name(object) == name)
    }
}

/// A check of a permission under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    roles: Arc<RolesSnapshot>,
    user: User,
    access: Access,
}

impl Opaque for Check {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }
}

/// The answer to a check.
#[derive(Debug, PartialEq, Eq)]
struct Answer(Decision);

impl Opaque for Answer {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

/// The value of `authorizer`, or of `authorizer.requestResource`.
pub(super) fn value(roles: &Arc<RolesSnapshot>, user: &User, access: Access) -> Cel {
    Cel::Opaque(Arc::new(Check {
        roles: Arc::clone(roles),
        user: user.clone(),
        access,
    }))
}

/// Sets one attribute of a check.
type Setter = fn(&mut Access, String);

type Outcome = Result<Cel, ExecutionError>;

fn check_of(this: &Cel) -> Result<&Check, ExecutionError> {
    let Cel::Opaque(opaque) = this else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let found = opaque.downcast_ref::<Check>();
    found.ok_or(ExecutionError::NoSuchOverload)
}

fn answer_of(this: &Cel) -> Result<&Decision, ExecutionError> {
    let Cel::Opaque(opaque) = this else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let found = opaque.downcast_ref::<Answer>();
    found
        .map(|answer| &answer.0)
        .ok_or(ExecutionError::NoSuchOverload)
}

pub(super) fn add_functions(context: &mut Context<'_>) {
    let setters: [(&str, Setter); 6] = [
        ("group", |access, text| access.group = text),
        ("resource", |access, text| access.resource = text),
        ("subresource", |access, text| access.subresource = text),
        ("namespace", |access, text| access.namespace = text),
        ("name", |access, text| access.name = text),
        ("path", |access, text| access.path = Some(text)),
    ];
    for (name, set) in setters {
        context.add_function(name, move |This(this): This<Cel>, text: Arc<String>| {
            let mut check = check_of(&this)?.clone();
            set(&mut check.access, text.to_string());
            Outcome::Ok(Cel::Opaque(Arc::new(check)))
        });
    }
    context.add_function(
        "serviceAccount",
        |This(this): This<Cel>, namespace: Arc<String>, name: Arc<String>| {
            let mut check = check_of(&this)?.clone();
            check.user = User::named(&format!("system:serviceaccount:{namespace}:{name}"));
            Outcome::Ok(Cel::Opaque(Arc::new(check)))
        },
    );
    context.add_function("check", |This(this): This<Cel>, verb: Arc<String>| {
        let mut check = check_of(&this)?.clone();
        check.access.verb = verb.to_string();
        let decision = allowed(&*check.roles, &check.user, &check.access);
        Outcome::Ok(Cel::Opaque(Arc::new(Answer(decision))))
    });
    context.add_function("allowed", |This(this): This<Cel>| {
        Outcome::Ok(Cel::Bool(answer_of(&this)?.allowed))
    });
    context.add_function("reason", |This(this): This<Cel>| {
        Outcome::Ok(Cel::String(Arc::new(answer_of(&this)?.reason.clone())))
    });
    context.add_function("errored", |This(this): This<Cel>| {
        answer_of(&this)?;
        Outcome::Ok(Cel::Bool(false))
    });
    context.add_function("error", |This(this): This<Cel>| {
        answer_of(&this)?;
        Outcome::Ok(Cel::String(Arc::new(String::new())))
    });
}
