//! What a request asks for.

use http::request::Parts;
use serde_json::Value;

use crate::error::{ApiError, Details, Reason};
use crate::meta;
use crate::recorder::Verb;
use crate::user::{Impersonated, User, service_account};

/// A verb on a resource, or on a path that is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set for everything that is not a resource.
    pub(crate) path: Option<String>,
}

impl Access {
    /// What a request for anything else needs.
    pub(crate) fn of_path(parts: &Parts) -> Self {
        Access {
            verb: parts.method.as_str().to_lowercase(),
            path: Some(parts.uri.path().to_owned()),
            ..Access::default()
        }
    }

    /// The attributes of an access review; `None` if it has none.
    pub(crate) fn of_review(spec: &Value) -> Option<Self> {
        let text = |part: &Value, name: &str| meta::text(part, &[name]).to_owned();
        if let Some(part) = spec.get("resourceAttributes").filter(|p| p.is_object()) {
            return Some(Access {
                verb: text(part, "verb"),
                group: text(part, "group"),
                resource: text(part, "resource"),
                subresource: text(part, "subresource"),
                namespace: text(part, "namespace"),
                name: text(part, "name"),
                path: None,
            });
        }
        let part = spec
            .get("nonResourceAttributes")
            .filter(|p| p.is_object())?;
        Some(Access {
            verb: text(part, "verb"),
            path: Some(text(part, "path")),
            ..Access::default()
        })
    }

    /// The same with another verb.
    pub(crate) fn with_verb(self, verb: Verb) -> Self {
        Access {
            verb: verb.as_str().to_owned(),
            ..self
        }
    }

    /// What a client needs to make requests in the name of a user: a permission for each part that it names.
    pub(super) fn to_impersonate(wanted: &Impersonated) -> Vec<Self> {
        let user = &wanted.0;
        let of = |resource: &str, name: &str| Access {
            verb: "impersonate".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Access::default()
        };
        let other = |resource: &str, subresource: &str, name: &str| Access {
            group: "authentication.k8s.io".to_owned(),
            subresource: subresource.to_owned(),
            ..of(resource, name)
        };
        let mut all = vec![match service_account(&user.name) {
            Some((namespace, name)) => Access {
                namespace: namespace.to_owned(),
                ..of("serviceaccounts", name)
            },
            None => of("users", &user.name),
        }];
        if !user.uid.is_empty() {
            all.push(other("uids", "", &user.uid));
        }
        all.extend(user.groups.iter().map(|group| of("groups", group)));
        for (key, values) in &user.extra {
            all.extend(values.iter().map(|value| other("userextras", key, value)));
        }
        all
    }

    /// 403 with the server's text.
    pub(super) fn forbidden(&self, user: &User) -> ApiError {
        let (name, verb) = (&user.name, &self.verb);
        if let Some(path) = &self.path {
            let why = format!("forbidden: User {name:?} cannot {verb} path {path:?}");
            let mut error = ApiError::new(403, Reason::Forbidden, why);
            error.details = Some(Box::new(Details::default()));
            return error;
        }
        let resource = match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        };
        let place = match self.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!(
            "User {name:?} cannot {verb} resource {resource:?} in API group {:?} {place}",
            self.group
        );
        ApiError::forbidden(&self.group, &self.resource, &self.name, &why)
    }
}
