//! Releases one object: decides, patches, and handles the server's response.

use std::collections::BTreeSet;
use std::time::Duration;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, Reading};
use belayer_core::logical_time::LogicalTime;
use belayer_core::slim::OwnerMeta;
use belayer_holds::conflict::{After, OnConflict};
use belayer_holds::decision::Evidence as _;
use belayer_holds::release::FinalizerPatch;
use belayer_inspect::reader::{Reader, explain};

use crate::decide::{Kept, Purpose, Usage, View, decide};
use crate::pause::pause;
use crate::records::{Recorded, Records};
use crate::scan::Found;
use crate::selection::Selection;
use crate::users::Users;

/// Attempts at one object in one pass; the next pass continues.
const ATTEMPTS: u32 = 12;

/// Longest pause that the server may request.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Releases objects.
pub(crate) struct Releaser<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) reader: &'a Reader,
    pub(crate) decoders: &'a Decoders<OwnerMeta>,
    pub(crate) users: &'a Users,
    pub(crate) records: &'a Records,
    pub(crate) selection: &'a dyn Selection,
    pub(crate) ignored: &'a BTreeSet<String>,
    pub(crate) purpose: &'a Purpose,
}

/// Result for one object.
#[derive(Debug, Default)]
pub(crate) struct ObjectResult {
    /// Removed holds, with the names of the evidence.
    pub(crate) released: Vec<(&'static str, &'static str)>,
    /// Holds that stay.
    pub(crate) kept: Vec<Kept>,
    /// Why the release failed, if it did.
    pub(crate) trouble: Option<Trouble>,
}

/// Why a release failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server denied it.
    Refused {
        /// HTTP status.
        code: u16,
        /// Message of the server.
        message: String,
    },
    /// Another cause, which may pass; a message.
    Failed(String),
}

enum Next {
    /// Decide again about the object as it is now.
    Decide(Found),
    /// The object does not exist any more, or another one has its name.
    Gone,
    Again(Duration),
    End(Trouble),
}

impl Releaser<'_> {
    pub(crate) async fn release(&self, mut object: Found) -> ObjectResult {
        // Also covers the pauses between attempts.
        let _waiting = self.reader.contact().waiting();
        let mut usage: Option<Usage> = None;
        let mut recorded: Option<Recorded> = None;
        let mut attempt = 0;
        loop {
            let verdict = decide(
                &View {
                    kind: &object.kind,
                    meta: &object.meta,
                    seen: object.seen,
                    selected: &|hold| {
                        self.selection
                            .selects(hold, &object.kind, &object.meta, self.ignored)
                    },
                    usage: usage.as_ref(),
                    recorded: recorded.as_ref(),
                },
                self.purpose,
            );
            if verdict.list_pods {
                usage = Some(self.users.of(&object.meta, object.seen).await);
                continue;
            }
            if verdict.read_record {
                recorded = Some(self.records.record(&object.meta).await);
                continue;
            }
            let mut done = ObjectResult {
                kept: verdict.keep.clone(),
                ..ObjectResult::default()
            };
            let Some(patch) = FinalizerPatch::release(&object.meta, &verdict.holds()) else {
                return done;
            };
            attempt += 1;
            let (kind, key) = (&object.kind, &object.meta.key);
            let sent = self.executor.patch(kind, key, patch.body(), Class::Release);
            let error = match self.reader.contact().asked(sent).await {
                Ok(_) => {
                    let names = verdict.release.iter();
                    done.released = names.map(|(hold, why)| (*hold, why.name())).collect();
                    for (hold, evidence) in &done.released {
                        tracing::info!(object = %key, %kind, uid = %object.meta.uid, hold, evidence, "released");
                    }
                    return done;
                }
                Err(error) => error,
            };
            match self.failed(&object, &error, attempt).await {
                Next::Decide(newer) => {
                    usage = None;
                    object = newer;
                }
                Next::Gone => return ObjectResult::default(),
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::End(trouble) => {
                    done.trouble = Some(trouble);
                    return done;
                }
            }
        }
    }

    /// The next step after a failed patch.
    async fn failed(&self, object: &Found, error: &RequestError, attempt: u32) -> Next {
        let about = (&object.kind, &object.meta.key);
        let over = attempt >= ATTEMPTS;
        match OnConflict::Reread.after(error, about) {
            _ if error.class() == ErrorClass::NotServed => Next::Gone,
            After::Over => Next::Gone,
            After::Read if !over => {
                tokio::time::sleep(pause(attempt)).await;
                self.reread(object).await
            }
            After::Denied => {
                let code = error.api().map_or(0, |api| api.code);
                let message = error
                    .api()
                    .map_or_else(|| error.to_string(), |api| api.message.clone());
                Next::End(Trouble::Refused { code, message })
            }
            _ if over => Next::End(Trouble::Failed(explain(error))),
            _ if matches!(error.class(), ErrorClass::Unauthorized | ErrorClass::Other) => {
                Next::End(Trouble::Failed(explain(error)))
            }
            After::Read | After::Retry(_) => {
                let asked = error.retry_after().unwrap_or_default().min(MAX_WAIT);
                Next::Again(pause(attempt).max(asked))
            }
        }
    }

    async fn reread(&self, object: &Found) -> Next {
        let request = Request::get(object.kind.object_path(&object.meta.key))
            .accept(self.decoders.accept(Reading::Object));
        let answer = match self.reader.read(&request).await {
            Ok(answer) => answer,
            Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => {
                return Next::Gone;
            }
            Err(error) => return Next::End(Trouble::Failed(explain(&error))),
        };
        match self.decoders.read(&answer) {
            // Another object has the name: this one is deleted. The next pass handles the other.
            Ok(OwnerMeta { meta }) if meta.uid != object.meta.uid => Next::Gone,
            Ok(OwnerMeta { meta }) => Next::Decide(Found {
                kind: object.kind.clone(),
                meta,
                seen: LogicalTime::now(),
            }),
            Err(error) => Next::End(Trouble::Failed(format!("cannot be decoded: {error}"))),
        }
    }
}
