//! Users.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::error::ApiError;

pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The author of a request, as permissions see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a client of that name.
    pub(crate) fn named(name: &str) -> Self {
        let mut groups = service_account_groups(name).unwrap_or_default();
        if name == "admin" {
            groups.push(MASTERS.to_owned());
        }
        let everybody = if name == ANONYMOUS {
            UNAUTHENTICATED
        } else {
            AUTHENTICATED
        };
        groups.push(everybody.to_owned());
        User {
            name: name.to_owned(),
            groups,
            ..User::default()
        }
    }

    /// `system:serviceaccount:NAMESPACE:NAME@NODE`: the account, as the token of a pod on that node names it.
    pub(crate) fn on_node(text: &str) -> Option<Self> {
        let (name, node) = text.split_once('@')?;
        service_account(name)?;
        let mut user = User::named(name);
        let key = "authentication.kubernetes.io/node-name".to_owned();
        user.extra.insert(key, vec![node.to_owned()]);
        Some(user)
    }

    /// `userInfo` of reviews.
    pub(crate) fn to_json(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// Namespace and name of a service account's user.
pub(crate) fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

fn service_account_groups(user: &str) -> Option<Vec<String>> {
    let (namespace, _) = service_account(user)?;
    Some(vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ])
}

/// The message for a user without a name, which prints a Go struct.
fn nameless(uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> String {
    let list = |all: &[String]| {
        let quoted: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        list(groups)
    };
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let pairs = extra
            .iter()
            .map(|(key, all)| format!("{key:?}:{}", list(all)));
        format!(
            "map[string][]string{{{}}}",
            pairs.collect::<Vec<_>>().join(", ")
        )
    };
    format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:{extra}}} without impersonating a user name"
    )
}

/// The user in whose name a request is to be made, exactly as the request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Impersonated(pub(crate) User);

/// The user in whose name a request is made, from its `Impersonate-*` headers.
///
/// # Errors
/// When there is no user among them.
pub(crate) fn impersonated(headers: &HeaderMap) -> Result<Option<Impersonated>, ApiError> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let all = |name: &str| -> Vec<String> { headers.get_all(name).iter().map(text).collect() };
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let (name, uid) = (one("impersonate-user"), one("impersonate-uid"));
    let groups = all("impersonate-group");
    let extra: BTreeMap<String, Vec<String>> = headers
        .keys()
        .filter_map(|header| Some((header, header.as_str().strip_prefix("impersonate-extra-")?)))
        .map(|(header, key)| (key.to_owned(), all(header.as_str())))
        .collect();
    if name.is_empty() {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::bad_request(nameless(&uid, &groups, &extra)));
    }
    Ok(Some(Impersonated(User {
        name,
        uid,
        groups,
        extra,
    })))
}

impl Impersonated {
    /// The user, with the groups that it has in any case.
    pub(crate) fn resolved(self) -> User {
        let Impersonated(mut user) = self;
        if user.groups.is_empty() {
            user.groups = service_account_groups(&user.name).unwrap_or_default();
        }
        let is_in = |group: &str| user.groups.iter().any(|one| one == group);
        let everybody = match user.name == ANONYMOUS || is_in(UNAUTHENTICATED) {
            true => UNAUTHENTICATED,
            false => AUTHENTICATED,
        };
        if !is_in(everybody) {
            user.groups.push(everybody.to_owned());
        }
        user
    }
}
