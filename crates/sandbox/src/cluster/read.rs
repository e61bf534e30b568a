//! Get and list.

use std::sync::Arc;

use serde_json::Value;

use super::{Cluster, ListOptions, ListPage, State, VersionMatch, at_version, event_view, locate};
use crate::address::{Gvr, ObjectKey};
use crate::error::{ApiError, Cause, Reason};
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
        if event_view::shows(gvr) {
            let found = self.get_as_of(&Gvr::EVENTS, namespace, name, at);
            let event = found.map_err(event_view::error)?;
            return Ok(Arc::new(event_view::outgoing(&event)));
        }
        let state = self.inner.state.lock();
        let (info, key) = locate(&state, gvr, namespace, name)?;
        let found = match at {
            None => state.get(&info, &key).cloned(),
            Some(at) => state
                .get_at(&info, &key, at)
                .ok_or_else(|| ApiError::expired(EXPIRED_LIST))?,
        };
        let object = found.ok_or_else(|| ApiError::not_found(&info.group, &info.resource, name))?;
        Ok(at_version(&info, &gvr.version, object))
    }

    /// Objects of a kind, in one namespace or in all, ordered by namespace and name.
    ///
    /// # Errors
    /// 400 for invalid selectors and tokens, 404 for a kind that is not served, 410 for a
    /// compacted version or token, 422 for contradictory options, 504 for a version
    /// that does not exist yet.
    pub fn list(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ListPage, ApiError> {
        self.list_as_of(gvr, namespace, options, None)
    }

    /// A list as of a server that has seen nothing after `newest`.
    pub(crate) fn list_as_of(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        options: &ListOptions,
        newest: Option<u64>,
    ) -> Result<ListPage, ApiError> {
        if event_view::shows(gvr) {
            let options = event_view::list_options(options);
            let page = self.list_as_of(&Gvr::EVENTS, namespace, &options, newest)?;
            return Ok(event_view::page(page));
        }
        let state = self.inner.state.lock();
        let info = state
            .kinds
            .find(gvr)
            .cloned()
            .ok_or_else(ApiError::not_served)?;
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
        let read = Read {
            state: &state,
            info: &info,
            namespace,
            selectors: &selectors,
            plan: &plan,
        };
        // A list of any version comes from the watch cache, which ignores the limit.
        let any_version = options.resource_version == "0" && options.continue_token.is_empty();
        let limit = if any_version { 0 } else { options.limit };
        let mut page = read.page(limit)?;
        drop(state);
        if info.custom {
            for item in &mut page.items {
                *item = at_version(&info, &gvr.version, Arc::clone(item));
            }
        }
        Ok(page)
    }
}

/// The start and the version of a list.
struct Plan {
    at: u64,
    start: Option<ObjectKey>,
    continued: bool,
    /// How many objects follow `start`, if counted before.
    left: Option<u64>,
}

fn plan(options: &ListOptions, newest: u64) -> Result<Plan, ApiError> {
    check_options(options)?;
    if !options.continue_token.is_empty() {
        let token = Token::decode(&options.continue_token).ok_or_else(|| {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: malformed token",
            )
        })?;
        // Zero: the client accepted a rest that is not of one version.
        let at = if token.version == 0 {
            newest
        } else {
            token.version
        };
        if at > newest {
            return Err(too_large(at, newest));
        }
        return Ok(Plan {
            at,
            start: Some(token.start),
            continued: true,
            left: token.left,
        });
    }
    let asked = parse_version(&options.resource_version).map_err(|why| {
        ApiError::bad_request(format!("invalid resource version: {}", why.message))
    })?;
    if asked > newest {
        return Err(too_large(asked, newest));
    }
    // Older clients that page from a version mean "exactly".
    let exact = match options.version_match {
        Some(VersionMatch::Exact) => true,
        Some(VersionMatch::NotOlderThan) => false,
        None => asked > 0 && options.limit > 0,
    };
    Ok(Plan {
        at: if exact { asked } else { newest },
        start: None,
        continued: false,
        left: None,
    })
}

fn check_options(options: &ListOptions) -> Result<(), ApiError> {
    let version = options.resource_version.as_str();
    let wanted = options.version_match;
    let cause = check_match(wanted, version, !options.continue_token.is_empty());
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

/// The error in a `resourceVersionMatch`.
pub(crate) fn check_match(
    wanted: Option<VersionMatch>,
    version: &str,
    continues: bool,
) -> Option<Cause> {
    let field = "resourceVersionMatch";
    let why = match wanted? {
        _ if continues => "resourceVersionMatch is forbidden when continue is provided",
        _ if version.is_empty() => {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        }
        VersionMatch::Exact if version == "0" => {
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        }
        _ => return None,
    };
    Some(Cause::forbidden(field, why))
}

/// 422 of contradictory options.
pub(crate) fn list_options_invalid(cause: Cause) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

/// A resourceVersion of a query; empty is zero.
pub(crate) fn parse_version(text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let message = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        ApiError::new(500, Reason::Unknown, message)
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
        Reason::Timeout,
        format!("Timeout: Too large resource version: {asked}, current: {newest}"),
    )
    .with_causes(vec![cause])
    .retry_after(1)
}

/// One list, read under the lock.
struct Read<'a> {
    state: &'a State,
    info: &'a ResourceInfo,
    namespace: &'a str,
    selectors: &'a Selectors,
    plan: &'a Plan,
}

impl Read<'_> {
    fn page(&self, limit: usize) -> Result<ListPage, ApiError> {
        let start = self.plan.start.as_ref();
        // Without selectors the objects after the page need not be read.
        let all = limit == 0 || !self.selectors.is_empty();
        let max = if all {
            usize::MAX
        } else {
            limit.saturating_add(1)
        };
        let found = self
            .state
            .scan(self.info, self.namespace, start, self.plan.at, max);
        let mut found = found.ok_or_else(|| self.expired())?;
        if let Some(name) = self.selectors.fields.name() {
            found.retain(|(key, _)| &*key.name == name);
        }
        if !self.selectors.is_empty() {
            found.retain(|(_, object)| self.selectors.matches(object));
        }
        let mut page = ListPage {
            items: Vec::new(),
            resource_version: self.plan.at,
            continue_token: String::new(),
            remaining: None,
        };
        if limit > 0 && found.len() > limit {
            found.truncate(limit);
            page.remaining = self.selectors.is_empty().then(|| self.left_after(limit));
            if let Some((last, _)) = found.last() {
                let left = page.remaining;
                let token = Token {
                    version: self.plan.at,
                    start: last.clone(),
                    left,
                };
                page.continue_token = token.encode();
            }
        }
        page.items = found.into_iter().map(|(_, object)| object).collect();
        Ok(page)
    }

    fn left_after(&self, limit: usize) -> u64 {
        let left = self.plan.left.unwrap_or_else(|| {
            let start = self.plan.start.as_ref();
            let count = self
                .state
                .count(self.info, self.namespace, start, self.plan.at);
            u64::try_from(count).unwrap_or(u64::MAX)
        });
        left.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX))
    }

    fn expired(&self) -> ApiError {
        if !self.plan.continued {
            return ApiError::expired(EXPIRED_LIST);
        }
        let mut error = ApiError::expired(EXPIRED_CONTINUE);
        error.continue_token = self.plan.start.clone().map(|start| {
            Token {
                version: 0,
                start,
                left: None,
            }
            .encode()
            .into_boxed_str()
        });
        error
    }
}

/// The position of a list's next page: opaque to clients.
struct Token {
    /// Zero: the newest version when the next page is read.
    version: u64,
    /// The last object returned.
    start: ObjectKey,
    /// How many objects follow it at that version.
    left: Option<u64>,
}

impl Token {
    fn encode(&self) -> String {
        let left = self.left.map(|n| n.to_string()).unwrap_or_default();
        let ObjectKey { namespace, name } = &self.start;
        let plain = format!("{}\n{namespace}\n{name}\n{left}", self.version);
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
        let parts: Vec<&str> = plain.split('\n').collect();
        let [version, namespace, name, left] = parts.as_slice() else {
            return None;
        };
        let left = match *left {
            "" => None,
            left => Some(left.parse().ok()?),
        };
        let start = ObjectKey::new(Some(namespace), name);
        Some(Token {
            version: version.parse().ok()?,
            start,
            left,
        })
    }
}
