//! Runs one case.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::hooks::Hooks;
use super::render::{self, Names};
use super::script::{Action, Case, Request, Step};
use super::talk::{self, DEADLINE, Watch};
use crate::control_plane::Compactor;

/// The values of `$pod`, `$bound`, `$schema` and so on.
const ABBREVIATIONS: &[(&str, &str)] = &[
    // No scheduler binds it: it stays Pending without a node.
    (
        "pod",
        r#""spec":{"schedulerName":"nobody","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}"#,
    ),
    // Bound to a node without a kubelet, so that only the case ends it. Each case has its own node: pods of
    // a node that has been missing for long are collected.
    (
        "bound",
        r#""spec":{"nodeName":"$ns-nowhere","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}"#,
    ),
    (
        "leases",
        "/apis/coordination.k8s.io/v1/namespaces/$ns/leases",
    ),
    (
        "crds",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ),
    ("admission", "/apis/admissionregistration.k8s.io/v1"),
    // The part of constraints that limits a policy to the case.
    (
        "here",
        r#""namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"$ns"}}"#,
    ),
    (
        "table",
        "Accept:application/json;as=Table;g=meta.k8s.io;v=v1",
    ),
    (
        "metadata",
        "Accept:application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ),
    (
        "list-of-metadata",
        "Accept:application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    ),
];

/// After this time a server shows the effect of a write, mostly.
const SETTLED: Duration = Duration::from_secs(5);

/// A step with an unexpected response.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) line: usize,
    pub(super) expected: Vec<String>,
    pub(super) answered: Vec<String>,
}

/// The result of a case: the response of each step, and the differences.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) answered: Vec<Vec<String>>,
    pub(super) differences: Vec<Difference>,
}

/// Runs a case in a new namespace.
pub(super) async fn run(
    client: &Client,
    compactor: Option<&Compactor>,
    hooks: &Hooks,
    case: &Case,
    namespace: &str,
) -> Result<Outcome> {
    let mut names = Names::default();
    for (name, text) in ABBREVIATIONS {
        names.abbreviate(name, text);
    }
    names.set("ns", namespace);
    names.set("hook", &hooks.url);
    names.set("bundle", &hooks.bundle);
    let mut talk = Talk {
        client,
        compactor,
        namespace,
        names,
        last: Value::Null,
        watch: None,
    };
    talk.prepare().await?;
    let mut outcome = Outcome::default();
    for step in &case.steps {
        let answered = match talk.step(step).await {
            Ok(answered) => answered,
            // The case ends. The differences before the error are shown too: usually they explain it.
            Err(error) => {
                outcome.differences.push(Difference {
                    line: step.line,
                    expected: step.expected.clone(),
                    answered: vec![format!("{error:#}")],
                });
                break;
            }
        };
        if answered != step.expected {
            outcome.differences.push(Difference {
                line: step.line,
                expected: step.expected.clone(),
                answered: answered.clone(),
            });
        }
        outcome.answered.push(answered);
    }
    Ok(outcome)
}

/// Deletes the namespace of a case that has ended.
pub(super) async fn clean_up(client: &Client, namespace: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}");
    let answer = plain(client, namespace, "DELETE", &path, String::new()).await?;
    ensure!(
        matches!(answer, 200 | 404 | 409),
        "cannot delete the namespace {namespace}: {answer}"
    );
    Ok(())
}

async fn plain(
    client: &Client,
    namespace: &str,
    method: &str,
    path: &str,
    body: String,
) -> Result<u16> {
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        body,
        ..Request::default()
    };
    Ok(talk::send(client, namespace, &request).await?.code)
}

struct Talk<'a> {
    client: &'a Client,
    compactor: Option<&'a Compactor>,
    namespace: &'a str,
    names: Names,
    last: Value,
    watch: Option<Watch>,
}

impl Talk<'_> {
    async fn prepare(&self) -> Result<()> {
        let body = json!({"metadata": {"name": self.namespace}}).to_string();
        let path = "/api/v1/namespaces";
        let answer = plain(self.client, self.namespace, "POST", path, body).await?;
        ensure!(answer == 201, "cannot create the namespace: {answer}");
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Vec<String>> {
        let lines = match &step.action {
            Action::Send(request) => self.send(request).await?,
            Action::Until(request) => return self.until(request, &step.expected).await,
            Action::Watch(request) => self.open(request).await?,
            Action::Events { count, fields } => self.events(*count, fields).await?,
            Action::Closed { fields } => self.events(usize::MAX, fields).await?,
            Action::Let { name, path } => {
                let found = render::at(&self.last, path);
                let found = found.with_context(|| format!("no {path} in {}", self.last))?;
                let text = found
                    .as_str()
                    .map_or_else(|| found.to_string(), str::to_owned);
                self.names.set(name, &text);
                Vec::new()
            }
            Action::Compact => {
                self.compactor.context("this server cannot be compacted")?().await?;
                Vec::new()
            }
        };
        Ok(lines.iter().map(|line| self.names.mask(line)).collect())
    }

    fn filled(&self, request: &Request) -> Request {
        let fill = |text: &String| self.names.fill_in(text);
        let headers = request.headers.iter();
        Request {
            method: request.method.clone(),
            path: fill(&request.path),
            headers: headers.map(fill).collect(),
            fields: request.fields.clone(),
            body: fill(&request.body),
        }
    }

    async fn send(&mut self, request: &Request) -> Result<Vec<String>> {
        let answer = talk::send(self.client, self.namespace, &self.filled(request)).await?;
        self.last = answer.value();
        Ok(answer.tell(&request.fields))
    }

    async fn until(&mut self, request: &Request, expected: &[String]) -> Result<Vec<String>> {
        let started = Instant::now();
        // There is nothing to wait for while a case is recorded for the first time.
        let deadline = match expected {
            [] => SETTLED,
            _ => DEADLINE,
        };
        loop {
            let lines = self.send(request).await?;
            let lines: Vec<_> = lines.iter().map(|line| self.names.mask(line)).collect();
            if lines == expected || started.elapsed() > deadline {
                return Ok(lines);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn open(&mut self, request: &Request) -> Result<Vec<String>> {
        let request = self.filled(request);
        match Watch::open(self.client, self.namespace, &request).await? {
            Ok(watch) => {
                self.watch = Some(watch);
                Ok(vec!["200".to_owned()])
            }
            Err(answer) => Ok(answer.tell(&request.fields)),
        }
    }

    async fn events(&mut self, count: usize, fields: &[String]) -> Result<Vec<String>> {
        let Some(watch) = &mut self.watch else {
            bail!("no watch is open");
        };
        let mut lines = Vec::new();
        let mut shown = 0;
        while shown < count {
            let Some(event) = watch.next().await? else {
                lines.push("closed".to_owned());
                break;
            };
            if may_come_at_any_time(&event) {
                continue;
            }
            shown += 1;
            let kind = event.get("type").and_then(Value::as_str).unwrap_or("?");
            let object = event.get("object").cloned().unwrap_or_default();
            let (head, message) = render::object(&object, fields);
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            lines.push(match name {
                Some(name) => format!("{kind} {name} {head}"),
                None => format!("{kind} {head}"),
            });
            lines.extend(message);
            self.last = object;
        }
        Ok(lines)
    }
}

/// Whether it is a bookmark, but not the one after the initial events: kube-apiserver sends them by its clock.
fn may_come_at_any_time(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
        && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
}
