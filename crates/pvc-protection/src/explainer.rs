//! What pvc-protection says of a claim.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::config::Mode;
use crate::decide::decide;
use crate::look::{Listed, PodsLook, PodsQuery};
use crate::owner::{self, COMPLETED_LABEL, OwnerView};
use crate::snapshot::Snapshot;
use crate::{component, explain, row};
use belayer_controller::explain::{Decided, read};
use belayer_core::facts::{LiveReader, LookError, look};
use belayer_core::http::{JSON, Request};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::moment::LogicalTime;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{Claim, DecodeContext, Keep, Pod};
use belayer_holds::owner::{OwnerQuery, OwnerReader};
use belayer_inspect::explain::{Action, Explained, Explainer};
use belayer_inspect::reader::{Reader, explain as in_words};

/// Explains claims by the same decision that the controller makes.
pub(crate) struct Claims {
    mode: Mode,
}

impl Claims {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode }
    }

    async fn look(&self, key: &ObjectKey, reader: &Reader) -> Result<Explained, String> {
        let request = Request::get(Resource::claims().object_path(key));
        let decoder = JsonDecoder::<Claim>::new(DecodeContext::default());
        let claim = read(reader, &request, &decoder, &format!("claim {key}")).await?;
        // The look begins after this: it is evidence about this deletion.
        let seen = LogicalTime::now();
        let pods = LivePods {
            reader: reader.clone(),
            namespace: key.namespace().unwrap_or_default().to_owned(),
        };
        let question = PodsQuery::new(key.shared_namespace().clone());
        let look = look(&pods, &question)
            .await
            .map_err(|error| error.to_string())?;
        let owner = match owner::question(&claim.meta) {
            Some(question) => Some(owner_view(question, reader).await?),
            None => None,
        };
        let snapshot = explain::snapshot(self.mode, claim.meta, seen, look, owner);
        Ok(self.in_words(&snapshot))
    }

    fn in_words(&self, snapshot: &Snapshot) -> Explained {
        let decision = decide(snapshot, Timestamp::now());
        let held = snapshot
            .claim
            .as_ref()
            .is_some_and(|claim| claim.hold.keeps());
        let decided = Decided {
            component: component::NAME,
            hold: self.mode.hold(),
            held,
            decision: &decision,
        };
        let row = decision.row;
        let explained = decided.explained(|action| {
            let next = match action {
                Action::Keep if row == row::ADVISE => {
                    "Kubernetes lets go when the last of these pods is gone; Belayer only reports"
                }
                Action::Keep if row == row::LEFT_OVER => {
                    "a running Belayer releases it once no pod uses it, or Kubernetes protects it"
                }
                Action::Keep if row == row::OWNER_FINISHED => {
                    "Belayer releases it once the workflow has finished, or the last of these pods is gone"
                }
                Action::Keep if !self.mode.adds_holds() && decision.missing.is_empty() => {
                    "a running Belayer removes the finalizer: pvc-protection only reports"
                }
                Action::Nothing if !self.mode.adds_holds() => {
                    "nothing: pvc-protection only reports, and adds no finalizer"
                }
                Action::Keep if decision.missing.is_empty() => "nothing, until it is deleted",
                Action::Keep => "Belayer lets go at once when the last of these pods is gone",
                _ => "nothing: it is too late for a hold",
            };
            next.to_owned()
        });
        match explained.action {
            // Its deletion waits, but not for Belayer.
            Action::Keep if !held => Explained {
                action: Action::Nothing,
                ..explained
            },
            _ => explained,
        }
    }
}

/// The Workflow that owns a PVC, read live.
async fn owner_view(question: OwnerQuery, reader: &Reader) -> Result<OwnerView, String> {
    let keep = DecodeContext {
        keep: Keep::nothing().labels([COMPLETED_LABEL]),
        ..DecodeContext::default()
    };
    let decoders = Decoders::new(JsonDecoder::new(keep));
    let owners = OwnerReader::new(Arc::clone(reader.executor()), decoders);
    let look = look(&owners, &question).await;
    let look = look.map_err(|error| error.to_string())?;
    Ok(OwnerView {
        question,
        look: Some(look),
    })
}

/// The pods of a namespace, listed now.
struct LivePods {
    reader: Reader,
    namespace: String,
}

impl LivePods {
    async fn list(&self) -> Result<PodsLook, LookError> {
        let failed =
            |message: String| LookError::unusable(format!("pods of {}: {message}", self.namespace));
        let path = Resource::pods().path(Some(&self.namespace));
        let decoder = JsonDecoder::<Pod>::new(DecodeContext::default());
        let mut pages = Vec::new();
        let mut unreadable = None;
        self.reader
            .pages(&path, JSON, |answer| {
                let mut token = None;
                match decoder.decode_page(&answer.body) {
                    Ok(mut page) => {
                        token = page.continue_token.take();
                        pages.push(page);
                    }
                    Err(error) => unreadable = Some(error.to_string()),
                }
                async move { Ok(token) }
            })
            .await
            .map_err(|error| failed(in_words(&error)))?;
        if let Some(why) = unreadable {
            return Err(failed(why));
        }
        let version = pages.first().map(|page| page.resource_version);
        let mut listed = Listed::at(version.unwrap_or_default());
        for item in pages.into_iter().flat_map(|page| page.items) {
            // A pod that cannot be read may use anything: without it the list is no answer.
            let pod = item.map_err(|bad| failed(bad.why.to_string()))?;
            listed.note(&pod);
        }
        Ok(PodsLook::Listed(Arc::new(listed)))
    }
}

impl LiveReader<PodsQuery> for LivePods {
    fn look<'a>(&'a self, _: &'a PodsQuery) -> BoxFuture<'a, Result<PodsLook, LookError>> {
        Box::pin(self.list())
    }
}

impl Explainer for Claims {
    fn component(&self) -> &'static str {
        component::NAME
    }

    fn holds(&self) -> &'static [&'static str] {
        self.mode.ours()
    }

    fn is_about(&self, kind: &Resource) -> bool {
        kind.is_same_kind(&Resource::claims())
    }

    fn explain<'a>(
        &'a self,
        _: &'a Resource,
        key: &'a ObjectKey,
        reader: &'a Reader,
    ) -> BoxFuture<'a, Result<Explained, String>> {
        Box::pin(self.look(key, reader))
    }
}
