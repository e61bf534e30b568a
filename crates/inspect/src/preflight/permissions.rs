//! Whether a permission is granted, by access reviews; roles are never interpreted.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::reader::explain;
use belayer_core::executor::{Class, Executor, Sent};
use belayer_core::http::Request;
use belayer_holds::argo;
use belayer_holds::permissions::{Permission, Place};

use super::report::{About, Finding};
use super::{Part, Query};

/// The user whose permissions are checked. The permissions of each [part](crate::preflight) are
/// checked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The user of the kubeconfig.
    Own,
    /// Another user.
    User {
        /// Its name.
        name: String,
        /// Its groups.
        groups: Vec<String>,
    },
}

impl Subject {
    /// A ServiceAccount, with the groups that the API server adds.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("your own"),
            Self::User { name, .. } => f.write_str(name),
        }
    }
}

/// The result for one permission. Returned by an [`Authorizer`](crate::preflight::Authorizer) for
/// the permissions of a [part](crate::preflight).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Granted.
    Granted,
    /// Not granted.
    Refused,
    /// The review failed, with this message.
    Unknown(String),
}

/// Checks permissions: the API server in production, a list of rules in tests. It is asked for the
/// permissions of each [part](crate::preflight).
pub trait Authorizer: Send + Sync {
    /// Whether `subject` has `permission`; `own` is Belayer's own namespace.
    fn ask<'a>(
        &'a self,
        permission: &'a Permission,
        subject: &'a Subject,
        own: &'a str,
    ) -> BoxFuture<'a, Ruling>;
}

/// Sends SelfSubjectAccessReviews and SubjectAccessReviews: creates that store nothing.
impl Authorizer for Executor {
    fn ask<'a>(
        &'a self,
        permission: &'a Permission,
        subject: &'a Subject,
        own: &'a str,
    ) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let (path, body) = review(permission, subject, own);
            let request = Request::post(path, body.to_string());
            let answer = match self.write(&request, Class::Evidence).await {
                Ok(Sent::Applied(answer)) => answer,
                Ok(Sent::DryRun) => return Ruling::Unknown("the review was not sent".to_owned()),
                Err(error) => {
                    return Ruling::Unknown(match subject {
                        Subject::Own => explain(&error),
                        Subject::User { .. } => format!(
                            "{}: checking other users requires permission to create \
                         subjectaccessreviews.authorization.k8s.io",
                            explain(&error)
                        ),
                    });
                }
            };
            match answer.json::<Review>() {
                Ok(Review {
                    status: Some(status),
                }) if status.allowed => Ruling::Granted,
                Ok(Review {
                    status: Some(status),
                }) if !status.evaluation_error.is_empty() => {
                    Ruling::Unknown(status.evaluation_error)
                }
                Ok(Review { status: Some(_) }) => Ruling::Refused,
                Ok(Review { status: None }) => Ruling::Unknown("no answer".to_owned()),
                Err(error) => Ruling::Unknown(error.to_string()),
            }
        })
    }
}

#[derive(Deserialize)]
struct Review {
    status: Option<ReviewStatus>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    allowed: bool,
    #[serde(default)]
    evaluation_error: String,
}

fn review(permission: &Permission, subject: &Subject, own: &str) -> (&'static str, Value) {
    let namespace = match permission.place {
        Place::Cluster => "",
        Place::OwnNamespace => own,
    };
    let attributes = json!({
        "namespace": namespace,
        "verb": permission.verb,
        "group": &*permission.group,
        "resource": &*permission.resource,
        "subresource": permission.subresource,
        "name": permission.name.as_deref().unwrap_or_default(),
    });
    match subject {
        Subject::Own => (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": attributes },
            }),
        ),
        Subject::User { name, groups } => (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": { "resourceAttributes": attributes, "user": name, "groups": groups },
            }),
        ),
    }
}

/// Asks about a permission, and if it is not granted everywhere, about each of the only namespaces in which it is used:
/// RoleBindings may grant it. Returns the ruling, and the namespace in which it is not granted. The [module's
/// example](crate::preflight) asks about all permissions of a controller.
pub async fn ask_in(
    authorizer: &dyn Authorizer,
    permission: &Permission,
    subject: &Subject,
    own: &str,
    namespaces: &BTreeSet<Arc<str>>,
) -> (Ruling, Option<Arc<str>>) {
    let mut ruling = authorizer.ask(permission, subject, own).await;
    if ruling == Ruling::Refused && permission.is_write_anywhere() {
        let there = permission.clone().own(None);
        for namespace in namespaces {
            ruling = authorizer.ask(&there, subject, namespace).await;
            if ruling != Ruling::Granted {
                return (ruling, Some(Arc::clone(namespace)));
            }
        }
    }
    (ruling, None)
}

/// Whether it is for a kind of owners that the configuration names and that no role of the manifests contains.
fn is_of_another_owner(permission: &Permission, part: &Part) -> bool {
    let of_others = part.kinds.iter().filter(|kind| kind.fix.is_empty());
    let kinds = of_others.map(|kind| &kind.resource);
    kinds
        .filter(|kind| !argo::is_workflow(kind))
        .any(|kind| (&kind.group, &kind.plural) == (&permission.group, &permission.resource))
}

/// A finding, unless the permission is granted.
pub(crate) async fn ask(
    authorizer: &dyn Authorizer,
    permission: &Permission,
    part: &Part,
    query: &Query,
) -> Option<Finding> {
    let own = part.role_namespace.as_deref();
    let own = own.unwrap_or(&query.own_namespace);
    let place = match permission.place {
        Place::Cluster => String::new(),
        Place::OwnNamespace => format!(" in {own}"),
    };
    let mut fix = match is_of_another_owner(permission, part) {
        true => "the manifests have no role for this kind: bind one to the account (docs/src/tasks/other-owners.md); the chart \
                 has it, if its `config` names the owner"
            .to_owned(),
        false => format!("apply {} from the manifests", part.granted_by),
    };
    let subject = &query.subject;
    let (ruling, refused_in) = ask_in(authorizer, permission, subject, own, &part.namespaces).await;
    let place = match refused_in {
        Some(namespace) => {
            fix.push_str(", or add the namespace to `rbac.namespaces` of the chart");
            format!(" in {namespace}")
        }
        None => place,
    };
    let what = format!("{permission}{place}");
    match ruling {
        Ruling::Granted => None,
        Ruling::Refused => {
            let finding = Finding::missing(About::Permission, what, permission.without);
            Some(finding.fix(fix))
        }
        Ruling::Unknown(why) => Some(Finding::unknown(About::Permission, what, why)),
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::object::Resource;
    use jiff::Timestamp;
    use rstest::rstest;

    use super::super::Kind;
    use super::*;

    /// Grants what is listed as `VERB RESOURCE NAMESPACE`; without a namespace, everywhere.
    struct Grants(&'static [&'static str]);

    impl Authorizer for Grants {
        fn ask<'a>(
            &'a self,
            permission: &'a Permission,
            _: &'a Subject,
            own: &'a str,
        ) -> BoxFuture<'a, Ruling> {
            let everywhere = permission.to_string();
            let there = format!("{everywhere} {own}");
            let is_granted = self.0.contains(&&*everywhere)
                || permission.place == Place::OwnNamespace && self.0.contains(&&*there);
            Box::pin(async move {
                match is_granted {
                    true => Ruling::Granted,
                    false => Ruling::Refused,
                }
            })
        }
    }

    fn own_permissions() -> Query {
        Query {
            own_namespace: "ops".to_owned(),
            subject: Subject::Own,
            parts: Vec::new(),
            client: "",
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// T2: RoleBindings suffice for writes, if the configuration selects nothing in other namespaces.
    #[rstest]
    #[case::everywhere("patch", &["patch pods"], &[], None)]
    #[case::in_each_namespace("patch", &["patch pods a", "patch pods b"], &["a", "b"], None)]
    #[case::not_in_all("patch", &["patch pods a"], &["a", "b"], Some("patch pods in b"))]
    #[case::where_all_are_selected("patch", &["patch pods a"], &[], Some("patch pods"))]
    #[case::a_watch_is_of_all("watch", &["watch pods a"], &["a"], Some("watch pods"))]
    #[tokio::test]
    async fn t2_writes_may_be_granted_by_namespace(
        #[case] verb: &'static str,
        #[case] grants: &'static [&'static str],
        #[case] namespaces: &'static [&'static str],
        #[case] missing: Option<&str>,
    ) {
        let part = Part {
            namespaces: namespaces.iter().copied().map(Into::into).collect(),
            ..Part::new("x", "ClusterRole x", Vec::new())
        };
        let permission = Permission::new("", "pods", verb, "x");
        let finding = ask(&Grants(grants), &permission, &part, &own_permissions()).await;
        assert_eq!(finding.map(|finding| finding.what).as_deref(), missing);
    }

    /// The roles of the manifests contain no kind of other owners: to apply them again does not help.
    #[rstest]
    #[case::argo(
        "argoproj.io",
        "Workflow",
        "workflows",
        "apply ClusterRole x from the manifests"
    )]
    #[case::another("tekton.dev", "TaskRun", "taskruns", "docs/src/tasks/other-owners.md")]
    #[tokio::test]
    async fn the_fix_for_owners_of_other_kinds_is_another_role(
        #[case] group: &str,
        #[case] kind: &str,
        #[case] plural: &str,
        #[case] says: &str,
    ) {
        let resource = Resource::new(group, "v1alpha1", kind, plural);
        let permission = Permission::new(group, plural, "get", "x");
        let part = Part {
            kinds: vec![Kind::optional(resource)],
            ..Part::new("x", "ClusterRole x", Vec::new())
        };
        let finding = ask(&Grants(&[]), &permission, &part, &own_permissions()).await;
        let fix = finding.unwrap().fix.unwrap();
        assert!(fix.contains(says), "{fix}");
    }

    #[test]
    fn a_review_contains_all_attributes_of_a_permission() {
        let permission =
            Permission::new("argoproj.io", "workflows", "patch", "x").subresource("status");
        let (path, body) = review(&permission, &Subject::Own, "ops");
        assert!(path.ends_with("/selfsubjectaccessreviews"));
        let attributes = &body["spec"]["resourceAttributes"];
        assert_eq!(attributes["group"], "argoproj.io");
        assert_eq!(attributes["subresource"], "status");
        assert_eq!(attributes["namespace"], "");
        let permission = Permission::new("", "configmaps", "get", "x").own(Some("belayer-gate"));
        let account = Subject::service_account("ops", "belayer");
        let (path, body) = review(&permission, &account, "ops");
        assert!(path.ends_with("/subjectaccessreviews"));
        assert_eq!(body["spec"]["user"], "system:serviceaccount:ops:belayer");
        assert_eq!(body["spec"]["groups"][1], "system:serviceaccounts:ops");
        assert_eq!(body["spec"]["resourceAttributes"]["namespace"], "ops");
        assert_eq!(body["spec"]["resourceAttributes"]["name"], "belayer-gate");
    }
}
