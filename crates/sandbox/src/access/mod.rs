//! Who may do what: users, requests in another user's name, and RBAC.

mod attributes;
mod rbac;

pub(crate) use crate::user::User;
pub(crate) use attributes::Access;
pub(crate) use rbac::{Decision, GROUP, Roles, allowed, rules_for};

use crate::error::ApiError;

/// Whether requests need permissions.
///
/// Requests in the name of another user (`Impersonate-User`) need that user's permissions in either case.
///
/// ```
/// use belayer_sandbox::{Authorization, Sandbox};
///
/// // A request without a permission is a 403, as on a real cluster.
/// let sandbox = Sandbox::builder().authorization(Authorization::Rbac).build();
/// # drop(sandbox);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Every request is allowed.
    #[default]
    AllowAll,
    /// By the stored RBAC objects, as on a real server: without a rule, 403.
    ///
    /// The user is the client's name; `system:serviceaccount:NAMESPACE:NAME` is a service account. The user `admin` is in
    /// the group `system:masters`, to which everything is allowed. Discovery and reviews of the own permissions are allowed
    /// to everybody. [`Cluster`](crate::Cluster) and fixtures need no permissions.
    Rbac,
}

/// Finds the user of a request and checks its permission.
///
/// # Errors
/// 403, or an invalid request in another user's name.
pub(crate) fn authorize(
    authorization: Authorization,
    cluster: &dyn Roles,
    client: User,
    headers: &http::HeaderMap,
    access: &Access,
) -> Result<User, ApiError> {
    let enforced = authorization == Authorization::Rbac;
    let user = match crate::user::impersonated(headers)? {
        None if enforced => client,
        None => return Ok(client),
        Some(wanted) => {
            if enforced {
                for access in Access::to_impersonate(&wanted) {
                    check(cluster, &client, &access)?;
                }
            }
            wanted.resolved()
        }
    };
    check(cluster, &user, access)?;
    Ok(user)
}

/// Checks a permission of a user.
///
/// # Errors
/// 403.
pub(crate) fn check(cluster: &dyn Roles, user: &User, access: &Access) -> Result<(), ApiError> {
    match allowed(cluster, user, access).allowed {
        true => Ok(()),
        false => Err(access.forbidden(user)),
    }
}
