//! Maps a URL to an API request.

use std::collections::BTreeMap;

use http::request::Parts;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::access::Access;
use crate::address::Gvr;
use crate::recorder::Verb;

/// The query of a URL. The first value of a name is used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Self {
        let mut query = BTreeMap::new();
        for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            query
                .entry(key.into_owned())
                .or_insert_with(|| value.into_owned());
        }
        Query(query)
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Go's `strconv.ParseBool`, with invalid values as true, as in the server's conversion.
    pub(crate) fn flag(&self, key: &str) -> bool {
        match self.0.get(key).map(String::as_str) {
            None | Some("" | "false" | "0") => false,
            Some(_) => true,
        }
    }
}

/// A request for objects, parsed from the path.
#[derive(Debug, Clone)]
pub(crate) struct ResourceRequest {
    pub(crate) gvr: Gvr,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The path asks for a watch.
    pub(crate) watch: bool,
}

/// The result of routing a path.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    Resource(ResourceRequest),
    /// Discovery, health, version, openapi.
    Other(Vec<String>),
}

pub(crate) fn route(uri: &Uri) -> Option<Route> {
    // Decode before splitting: an encoded slash in a name becomes a separator.
    let path = percent_decode_str(uri.path()).decode_utf8().ok()?;
    let parts: Vec<String> = path
        .split('/')
        .filter(|p| !p.is_empty())
        .map(str::to_owned)
        .collect();
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Some(Route::Other(parts)),
    };
    // The deprecated path of a watch.
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (namespace, resource, name, tail) = match rest {
        ["namespaces", name, sub @ ("status" | "finalize")] => {
            ("", "namespaces", *name, vec![*sub])
        }
        ["namespaces", namespace, resource, tail @ ..] => {
            let name = tail.first().copied().unwrap_or_default();
            (
                *namespace,
                *resource,
                name,
                tail.get(1..).unwrap_or_default().to_vec(),
            )
        }
        [resource, tail @ ..] => {
            let name = tail.first().copied().unwrap_or_default();
            (
                "",
                *resource,
                name,
                tail.get(1..).unwrap_or_default().to_vec(),
            )
        }
        [] => return None,
    };
    Some(Route::Resource(ResourceRequest {
        gvr: Gvr::new(group, version, resource),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: tail.join("/"),
        watch,
    }))
}

/// The verb of a request for objects.
pub(crate) fn verb(method: &Method, request: &ResourceRequest, query: &Query) -> Option<Verb> {
    let named = !request.name.is_empty();
    // A GET of one object is not a watch, whatever its query says.
    let watching = request.watch || (query.flag("watch") && !named);
    match (method.as_str(), named) {
        ("GET", _) if watching && request.subresource.is_empty() => Some(Verb::Watch),
        ("GET", true) => Some(Verb::Get),
        ("GET", false) => Some(Verb::List),
        ("POST", _) => Some(Verb::Create),
        ("PUT", true) => Some(Verb::Update),
        ("PATCH", true) => Some(Verb::Patch),
        ("DELETE", true) => Some(Verb::Delete),
        ("DELETE", false) => Some(Verb::DeleteCollection),
        _ => None,
    }
}

/// What a request for objects needs.
pub(super) fn access_to(parts: &Parts, request: &ResourceRequest, query: &Query) -> Access {
    let verb = match verb(&parts.method, request, query) {
        Some(verb) => verb.as_str(),
        None => of_method(&parts.method),
    };
    let mut access = Access {
        verb: verb.to_owned(),
        group: request.gvr.group.to_string(),
        resource: request.gvr.resource.to_string(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        path: None,
    };
    if access.group.is_empty() && access.resource == "namespaces" {
        access.namespace.clone_from(&access.name);
    }
    // A list of one name is a permission on that name.
    if matches!(verb, "list" | "watch" | "deletecollection")
        && let Some(name) = query.get("fieldSelector").strip_prefix("metadata.name=")
    {
        access.name = name.trim_start_matches('=').to_owned();
    }
    access
}

/// The verb of a method.
fn of_method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/api/v1/pods", "v1/pods", "", "", "")]
    #[case("/api/v1/namespaces/a", "v1/namespaces", "", "a", "")]
    #[case("/api/v1/namespaces/a/finalize", "v1/namespaces", "", "a", "finalize")]
    #[case("/api/v1/namespaces/a/pods", "v1/pods", "a", "", "")]
    #[case("/api/v1/namespaces/a/pods/p/status", "v1/pods", "a", "p", "status")]
    #[case(
        "/apis/g.dev/v1/namespaces/a/things/t",
        "g.dev/v1/things",
        "a",
        "t",
        ""
    )]
    #[case("/apis/g.dev/v1/things/t%20x", "g.dev/v1/things", "", "t x", "")]
    fn paths_lead_to_objects(
        #[case] path: &str,
        #[case] gvr: &str,
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] subresource: &str,
    ) {
        let Some(Route::Resource(request)) = route(&path.parse().unwrap()) else {
            panic!("{path}")
        };
        assert_eq!(request.gvr.to_string(), gvr);
        assert_eq!(request.namespace, namespace);
        assert_eq!(request.name, name);
        assert_eq!(request.subresource, subresource);
    }
}
