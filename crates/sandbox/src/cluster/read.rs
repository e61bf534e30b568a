//! Get and list.

use std::sync::Arc;

use serde_json::Value;

use super::{Cluster, Gvr, ListOptions, ListPage, ObjectKey, State, VersionMatch, at_version, locate};
use crate::error::{ApiError, Cause};
use crate::kinds::ResourceInfo;
use crate::selector::Selectors;

const EXPIRED_LIST: &str = "The resourceVersion for the provided list is too old.";
const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl Cluster {
    /// One object as it is now.
    ///
    /// # Errors
    /// 404.
    pub fn get(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Arc<Value>, ApiError> {
        self.get_as_of(gvr, namespace, name, None)
    }

    /// One object as it was at a version.
    pub(crate) fn get_as_of(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        at: Option<u64>,
    ) -> Result<Arc<Value>, ApiError> {
        let state = self.inner.state.lock();
        let (info, key) = locate(&state, gvr, namespace, name)?;
        let found = match at {
            None => state.get(&info, &key).cloned(),
            Some(at) => state
                .get_at(&info, &key, at)
                .ok_or_else(|| ApiError::expired(EXPIRED_LIST))?,
        };
        let object =
            found.ok_or_else(|| ApiError::not_found(&info.group, &info.resource, name))?;
        Ok(at_version(&info, &gvr.version, object))
    }

    /// Objects of a kind, in one namespace or in all, ordered by namespace and name.
    ///
    /// # Errors
    /// 400 for selectors and tokens that cannot be read, 404 for a kind that is not served, 410 for a
    /// version or token that is too old, 422 for options that contradict each other, 504 for a version
    /// that lies in the future.
    pub fn list(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ListPage, ApiError> {
        self.list_as_of(gvr, namespace, options, None)
    }

    /// A list by a server that knows nothing after `newest`.
    pub(crate) fn list_as_of(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        options: &ListOptions,
        newest: Option<u64>,
    ) -> Result<ListPage, ApiError> {
        let state = self.inner.state.lock();
        let info = state.kinds.find(gvr).cloned().ok_or_else(ApiError::not_served)?;
        let namespace = namespace.unwrap_or_default();
        if !namespace.is_empty() && !info.namespaced() {
            return Err(ApiError::not_served());
        }
        let selectors = Selectors::parse(
            &options.label_selector,
            &options.field_selector,
            &info,
            &gvr.version,
        )
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let newest = newest.map_or(state.rv, |n| n.min(state.rv));
        let plan = plan(options, newest)?;
        let found = collect(&state, &info, namespace, &selectors, &plan)?;
        let page = cut(found, options.limit, &plan, &selectors);
        drop(state);
        Ok(ListPage {
            items: page.0.into_iter().map(|o| at_version(&info, &gvr.version, o)).collect(),
            resource_version: plan.at,
            continue_token: page.1,
            remaining: page.2,
        })
    }
}

type Found = Vec<(ObjectKey, Arc<Value>)>;

/// Where a list starts and as of when it is.
struct Plan {
    at: u64,
    start: Option<ObjectKey>,
    continued: bool,
}

fn plan(options: &ListOptions, newest: u64) -> Result<Plan, ApiError> {
    check_options(options)?;
    if !options.continue_token.is_empty() {
        let token = Token::decode(&options.continue_token)
            .ok_or_else(|| ApiError::bad_request("continue key is not valid: malformed token"))?;
        // Zero: the client accepted an inconsistent rest.
        let at = if token.version == 0 { newest } else { token.version };
        if at > newest {
            return Err(too_large(at, newest));
        }
        return Ok(Plan { at, start: Some(token.start), continued: true });
    }
    let asked = parse_version(&options.resource_version)?;
    if asked > newest {
        return Err(too_large(asked, newest));
    }
    // Older clients mean "exactly" when they page from a version.
    let exact = match options.version_match {
        Some(VersionMatch::Exact) => true,
        Some(VersionMatch::NotOlderThan) => false,
        None => asked > 0 && options.limit > 0,
    };
    Ok(Plan { at: if exact { asked } else { newest }, start: None, continued: false })
}

fn check_options(options: &ListOptions) -> Result<(), ApiError> {
    let version = options.resource_version.as_str();
    let field = "resourceVersionMatch";
    let cause = match options.version_match {
        None => None,
        Some(_) if !options.continue_token.is_empty() => Some(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        )),
        Some(_) if version.is_empty() => Some(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        Some(VersionMatch::Exact) if version == "0" => Some(Cause::forbidden(
            field,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        Some(_) => None,
    };
    if let Some(cause) = cause {
        return Err(list_options_invalid(cause));
    }
    if !options.continue_token.is_empty() && !matches!(version, "" | "0") {
        return Err(ApiError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    Ok(())
}

/// 422 of options that contradict each other.
pub(crate) fn list_options_invalid(cause: Cause) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

/// A resourceVersion from a query; empty is zero.
pub(crate) fn parse_version(text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// 504 of a version that this server has not seen yet.
pub(crate) fn too_large(asked: u64, newest: u64) -> ApiError {
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    ApiError::new(
        504,
        crate::error::Reason::Timeout,
        format!("Too large resource version: {asked}, current: {newest}"),
    )
    .with_causes(vec![cause])
    .retry_after(1)
}

fn collect(
    state: &State,
    info: &ResourceInfo,
    namespace: &str,
    selectors: &Selectors,
    plan: &Plan,
) -> Result<Found, ApiError> {
    let Some(mut found) = state.scan(info, namespace, plan.start.as_ref(), plan.at) else {
        if !plan.continued {
            return Err(ApiError::expired(EXPIRED_LIST));
        }
        let mut error = ApiError::expired(EXPIRED_CONTINUE);
        error.continue_token = plan
            .start
            .clone()
            .map(|start| Token { version: 0, start }.encode().into_boxed_str());
        return Err(error);
    };
    if let Some(name) = selectors.fields.name() {
        found.retain(|(key, _)| &*key.name == name);
    }
    if !selectors.is_empty() {
        found.retain(|(_, object)| selectors.matches(object));
    }
    Ok(found)
}

fn cut(
    mut found: Found,
    limit: usize,
    plan: &Plan,
    selectors: &Selectors,
) -> (Vec<Arc<Value>>, String, Option<u64>) {
    if limit == 0 || found.len() <= limit {
        return (found.into_iter().map(|(_, object)| object).collect(), String::new(), None);
    }
    let rest = found.len() - limit;
    found.truncate(limit);
    let token = found.last().map(|(key, _)| Token { version: plan.at, start: key.clone() });
    let remaining = selectors.is_empty().then(|| u64::try_from(rest).unwrap_or(u64::MAX));
    let items = found.into_iter().map(|(_, object)| object).collect();
    (items, token.map(|t| t.encode()).unwrap_or_default(), remaining)
}

/// How a list goes on: opaque to clients.
struct Token {
    /// Zero: as of whenever the next page is asked.
    version: u64,
    /// The last object handed out.
    start: ObjectKey,
}

impl Token {
    fn encode(&self) -> String {
        let plain = format!("{}\n{}\n{}", self.version, self.start.namespace, self.start.name);
        plain.bytes().map(|b| format!("{b:02x}")).collect()
    }

    fn decode(text: &str) -> Option<Token> {
        if !text.is_ascii() || !text.len().is_multiple_of(2) {
            return None;
        }
        let bytes: Option<Vec<u8>> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect();
        let plain = String::from_utf8(bytes?).ok()?;
        let mut parts = plain.split('\n');
        let version = parts.next()?.parse().ok()?;
        let (namespace, name) = (parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(Token { version, start: ObjectKey::new(Some(namespace), name) })
    }
}
