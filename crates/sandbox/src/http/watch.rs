//! Watches: a stream of events from a version.

mod stream;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{StreamExt as _, unfold};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::body::SandboxBody;
use super::negotiate::{Form, not_acceptable};
use super::respond::Answer;
use super::route::ResourceRequest;
use super::{Call, Server};
use crate::address::Gvr;
use crate::cluster::{ListOptions, VersionMatch, event_view, parse_version, too_large};
use crate::error::{ApiError, Cause};
use crate::kinds::ResourceInfo;
use crate::meta;
use crate::selector::Selectors;
use stream::{BOOKMARK_EVERY, Start, WatchStream};

/// Minimum lifetime of a watch without a timeout; the maximum is twice this.
const MIN_LIFE: Duration = Duration::from_secs(1800);

pub(super) fn serve(
    server: &Arc<Server>,
    call: &Call,
    request: &ResourceRequest,
    info: &ResourceInfo,
    form: Form,
) -> Result<Answer, ApiError> {
    if form == Form::MetadataList {
        return Err(not_acceptable());
    }
    let query = &call.query;
    // Events of the new group are stored as those of core.
    let core = event_view::shows(&request.gvr).then(|| server.cluster.resource(&Gvr::EVENTS));
    let (stored, gvr, fields) = match core.flatten() {
        Some(core) => {
            let fields = event_view::field_selector(query.get("fieldSelector"));
            (core, Gvr::EVENTS, fields)
        }
        None => {
            let fields = query.get("fieldSelector").to_owned();
            (Arc::new(info.clone()), request.gvr.clone(), fields)
        }
    };
    let labels = query.get("labelSelector");
    let selectors = Selectors::parse(labels, &fields, &stored, &gvr.version)
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    if !info.namespaced() && !request.namespace.is_empty() {
        return Err(ApiError::not_served());
    }
    let start = start(server, call, request)?;
    let now = Instant::now();
    let timeout = match query.get("timeoutSeconds").parse::<u64>() {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => MIN_LIFE + Duration::from_secs(server.cluster.rng().below(MIN_LIFE.as_secs())),
    };
    let stream = WatchStream {
        subscription: server.cluster.subscribe(Some(&gvr), start.from),
        store: server.cluster.inner.changed.listen(),
        faults: server.faults.changes(),
        live: server.faults.register(call.target.clone()),
        plan: call.decision.watch.clone(),
        include_object: query.get("includeObject").to_owned(),
        bookmarks: query.flag("allowWatchBookmarks"),
        next_bookmark: now + BOOKMARK_EVERY,
        deadline: now.checked_add(timeout).unwrap_or(now + 2 * MIN_LIFE),
        server: Arc::clone(server),
        request: request.clone(),
        info: info.clone(),
        form,
        selectors,
        start,
        queue: VecDeque::new(),
        sent: 0,
        over: false,
    };
    let frames = unfold(stream, |mut stream| async move {
        let frame = stream.next().await?;
        Some((frame, stream))
    });
    let mut response = Response::new(SandboxBody::stream(frames.boxed()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn start(server: &Server, call: &Call, request: &ResourceRequest) -> Result<Start, ApiError> {
    let query = &call.query;
    let version_text = query.get("resourceVersion");
    let version = parse_version(version_text)?;
    let streams = match query.get("sendInitialEvents") {
        "" => None,
        _ => Some(query.flag("sendInitialEvents")),
    };
    let continues = !query.get("continue").is_empty();
    check_initial(streams, query.get("resourceVersionMatch"), continues)?;
    let newest = server.cluster.version();
    let newest = call.decision.stale.map_or(newest, |at| at.min(newest));
    let show_state = match streams {
        Some(wanted) => wanted,
        None => version == 0,
    };
    if !show_state {
        let from = if version == 0 { newest } else { version };
        return Ok(Start {
            initial: VecDeque::new(),
            announce_end: false,
            from,
        });
    }
    if version > newest {
        return Err(too_large(version, newest));
    }
    let options = ListOptions {
        label_selector: query.get("labelSelector").to_owned(),
        field_selector: query.get("fieldSelector").to_owned(),
        version_match: (version > 0).then_some(VersionMatch::NotOlderThan),
        resource_version: if version > 0 {
            version_text.to_owned()
        } else {
            String::new()
        },
        ..ListOptions::default()
    };
    let namespace = Some(request.namespace.as_str()).filter(|ns| !ns.is_empty());
    let page = server
        .cluster
        .list_as_of(&request.gvr, namespace, &options, call.decision.stale)?;
    let wanted = |o: &Arc<Value>| request.name.is_empty() || meta::name(o) == request.name;
    Ok(Start {
        initial: page.items.into_iter().filter(wanted).collect(),
        announce_end: streams == Some(true) && query.flag("allowWatchBookmarks"),
        from: page.resource_version,
    })
}

fn check_initial(
    streams: Option<bool>,
    version_match: &str,
    continues: bool,
) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let wrong = Cause::forbidden(
        field,
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    let causes = match (streams, version_match) {
        (Some(_), "NotOlderThan") if continues => vec![Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        )],
        (None, "") | (Some(_), "NotOlderThan") => return Ok(()),
        (None, _) => vec![Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )],
        (Some(_), "") => vec![wrong],
        (Some(_), other) => {
            vec![wrong, Cause::not_supported(field, other, &["NotOlderThan"])]
        }
    };
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", causes))
}
