//! What pod-recreation says of a pod, and of the record of its re-creation.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;

use belayer_core::facts::{OwnerOracle, look};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::moment::Moment;
use belayer_core::names;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Interner, Namespace, OwnerMeta, Pod};
use belayer_inspect::explain::{Action, Explained, Explainer, Row};
use belayer_inspect::reader::{Reader, explain as in_words};
use belayer_inspect::report::age;
use belayer_pod_recreation::decide::{Effect, NamespaceSight, Verdict, decide};
use belayer_pod_recreation::explain;
use belayer_pod_recreation::holds::{self, RecordSight};
use belayer_pod_recreation::record::Record;
use belayer_pod_recreation::snapshot::{Hold, PodView};
use belayer_pod_recreation::{NAME, Settings, api, component};

use super::Decided;
use crate::config::Source;
use crate::exit::Failure;

/// Explains pods and records by the same decisions that the controller makes.
pub(super) struct PodRecreation {
    settings: Settings,
    pods: JsonDecoder<Pod>,
}

impl PodRecreation {
    pub(super) fn new(source: &Source) -> Result<Self, Failure> {
        let settings = source
            .pod_recreation(None)
            .map_err(Failure::configuration)?;
        let context = DecodeContext {
            keep: component::keep_of_pods(&settings),
            interner: Interner::default(),
        };
        Ok(Self {
            pods: JsonDecoder::new(context),
            settings,
        })
    }

    async fn pod(&self, key: &ObjectKey, reader: &Reader) -> Result<Option<Pod>, String> {
        let kind = Resource::new("", "v1", "Pod", "pods");
        let answer = match reader.read(&Request::get(kind.object_path(key))).await {
            Ok(answer) => answer,
            Err(error)
                if error
                    .api()
                    .is_some_and(|api| api.is_not_found_naming(&kind, key)) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(format!("pod {key}: {}", in_words(&error))),
        };
        let pod = self.pods.decode_object(&answer.body);
        pod.map(Some).map_err(|error| format!("pod {key}: {error}"))
    }

    async fn record(&self, key: &ObjectKey, reader: &Reader) -> Result<RecordSight, String> {
        let kind = api::resource();
        let answer = match reader.read(&Request::get(kind.object_path(key))).await {
            Ok(answer) => answer,
            Err(error) if error.class() == ErrorClass::NotServed => {
                return Ok(RecordSight::NotServed);
            }
            Err(error)
                if error
                    .api()
                    .is_some_and(|api| api.is_not_found_naming(&kind, key)) =>
            {
                return Ok(RecordSight::Absent);
            }
            Err(error) => return Err(format!("{kind} {key}: {}", in_words(&error))),
        };
        let record = JsonDecoder::<Record>::new(DecodeContext::default());
        match record.decode_object(&answer.body) {
            Ok(record) => Ok(RecordSight::Found(Box::new(record))),
            Err(error) => Err(format!("{kind} {key}: {error}")),
        }
    }

    async fn namespace(&self, key: &ObjectKey, reader: &Reader) -> Result<NamespaceSight, String> {
        let kind = Resource::new("", "v1", "Namespace", "namespaces");
        let name = key.namespace().unwrap_or_default();
        let request = Request::get(kind.object_path(&ObjectKey::cluster(name)));
        let answer = reader
            .read(&request)
            .await
            .map_err(|error| format!("namespace {name}: {}", in_words(&error)))?;
        let found = JsonDecoder::<Namespace>::new(DecodeContext::default());
        match found.decode_object(&answer.body) {
            Ok(namespace) if namespace.meta.is_deleting() => Ok(NamespaceSight::Terminating),
            Ok(_) => Ok(NamespaceSight::Active),
            Err(error) => Err(format!("namespace {name}: {error}")),
        }
    }

    /// The hold on a pod.
    async fn about_pod(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, String> {
        let Some(pod) = self.pod(key, reader).await? else {
            return Err(format!("pod {key} is gone"));
        };
        // Every look below begins after this: it is evidence about this very pod.
        let seen = Moment::now();
        let view = explain::view(&pod, &self.settings);
        let record = self.record(&component::record_key(&pod), reader).await?;
        let asked = match explain::question(&pod, &view) {
            Some(question) => {
                let metadata = JsonDecoder::<OwnerMeta>::new(DecodeContext::default());
                let oracle =
                    OwnerOracle::new(Arc::clone(reader.executor()), Decoders::new(metadata));
                let fact = look(&oracle, &question).await;
                let fact = fact.map_err(|error| error.to_string())?;
                Some((question, Some(fact)))
            }
            None => None,
        };
        let held = view.hold == Hold::On;
        let next = self.next_step(&view, &record, key, reader).await?;
        let snapshot = explain::hold_snapshot(view, seen, record, asked);
        let decision = holds::decide(&snapshot, Timestamp::now());
        let decided = Decided {
            component: NAME,
            hold: names::POD_RECREATION_HOLD,
            held,
            decision: &decision,
            says: explain::says(decision.row),
        };
        let explained = decided.explained(|action| {
            let text = match action {
                Action::Keep => {
                    "Belayer lets go once it has started, or its record has come to its end"
                }
                _ => "nothing: the pod comes and goes as if Belayer were not there",
            };
            text.to_owned()
        });
        Ok(Explained {
            notes: next.into_iter().collect(),
            ..explained
        })
    }

    /// What the machine does about a pod besides its hold.
    async fn next_step(
        &self,
        view: &PodView,
        record: &RecordSight,
        key: &ObjectKey,
        reader: &Reader,
    ) -> Result<Option<String>, String> {
        let record = match record {
            RecordSight::Found(record) => Some((**record).clone()),
            RecordSight::Absent => None,
            RecordSight::NotServed | RecordSight::Unknown => return Ok(None),
        };
        let name = record
            .as_ref()
            .map(|record| record.meta.key.name().to_owned());
        let namespace = self.namespace(key, reader).await?;
        let ttl = self.settings.record_ttl;
        let snapshot = explain::record_snapshot(record, Some(view.clone()), namespace, ttl);
        let verdict = decide(&snapshot, Timestamp::now());
        if name.is_none() && verdict.effect.is_none() {
            return Ok(None);
        }
        let of = name.map_or_else(String::new, |name| format!(" of podrecreation {name}"));
        Ok(Some(format!(
            "its re-creation{of}: row {} ({}): {}; next, a running Belayer {}",
            verdict.row.number,
            verdict.row.name,
            explain::says(verdict.row),
            said(&verdict),
        )))
    }

    /// A record.
    async fn about_record(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, String> {
        let RecordSight::Found(record) = self.record(key, reader).await? else {
            return Err(format!("podrecreation {key} is gone"));
        };
        let pod = self.pod(&component::pod_key(&record), reader).await?;
        let view = pod.map(|pod| explain::view(&pod, &self.settings));
        let namespace = self.namespace(key, reader).await?;
        let message = record.status.message.clone();
        let ttl = self.settings.record_ttl;
        let snapshot = explain::record_snapshot(Some(*record), view, namespace, ttl);
        let verdict = decide(&snapshot, Timestamp::now());
        Ok(Explained {
            component: NAME,
            hold: names::POD_RECREATION_HOLD,
            held: false,
            row: Row {
                number: verdict.row.number,
                name: verdict.row.name,
                says: explain::says(verdict.row).to_owned(),
            },
            action: match &verdict.effect {
                None => Action::Nothing,
                Some(Effect::DeleteRecord) => Action::Delete,
                Some(_) => Action::Record,
            },
            evidence: None,
            missing: missing(&verdict),
            why_not: None,
            next: format!("a running Belayer {}", said(&verdict)),
            look_again_seconds: verdict.again.map(|after| after.as_secs()),
            notes: message.into_iter().collect(),
        })
    }
}

/// What the machine waits for, where it has told nobody yet.
fn missing(verdict: &Verdict) -> Vec<String> {
    let told = verdict.notice.as_ref().filter(|_| verdict.effect.is_none());
    told.map(|notice| notice.message.to_string())
        .into_iter()
        .collect()
}

fn said(verdict: &Verdict) -> String {
    match (&verdict.effect, verdict.again) {
        (Some(effect), _) => explain::step(effect).to_owned(),
        (None, Some(after)) => {
            let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
            format!("waits, and looks again within {}", age(seconds))
        }
        (None, None) => "waits for the next change of the pod or the record".to_owned(),
    }
}

impl Explainer for PodRecreation {
    fn component(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        names::POD_RECREATION_HOLD
    }

    fn is_about(&self, kind: &Resource) -> bool {
        let records = api::resource();
        let is_pod = kind.group.is_empty() && *kind.plural == *"pods";
        is_pod || (kind.group == records.group && kind.plural == records.plural)
    }

    fn explain<'a>(
        &'a self,
        kind: &'a Resource,
        key: &'a ObjectKey,
        reader: &'a Reader,
    ) -> BoxFuture<'a, Result<Explained, String>> {
        if kind.group.is_empty() {
            Box::pin(self.about_pod(key, reader))
        } else {
            Box::pin(self.about_record(key, reader))
        }
    }
}
