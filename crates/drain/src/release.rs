//! Lets one object go: decide, patch, and what each answer of the server means.

use std::collections::BTreeSet;
use std::time::Duration;

use belayer_core::ambient;
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::informer::{Decoders, Reading};
use belayer_core::moment::LogicalTime;
use belayer_core::slim::OwnerMeta;
use belayer_holds::conflict::{After, OnConflict};
use belayer_holds::decision::Evidence as _;
use belayer_holds::release::FinalizerPatch;
use belayer_inspect::reader::Reader;

use crate::decide::{Kept, Look, Purpose, View, Wanted, decide};
use crate::records::{Recorded, Records};
use crate::scan::Found;
use crate::selection::Selection;
use crate::users::Users;

/// Attempts at one object within one pass; the next pass goes on.
const ATTEMPTS: u32 = 12;

/// The longest pause between two attempts, unless the server asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The longest that the server may ask to wait.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What it takes to let objects go.
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

/// What came of an object.
#[derive(Debug, Default)]
pub(crate) struct LetGo {
    /// Holds that were taken off, and the names of the evidence.
    pub(crate) released: Vec<(&'static str, &'static str)>,
    /// Holds that stay.
    pub(crate) kept: Vec<Kept>,
    /// How it ended, if not well.
    pub(crate) trouble: Option<Trouble>,
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server refuses.
    Refused {
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// For a reason that may pass, in words.
    Failed(String),
}

enum Next {
    /// The object as it is now.
    Decide(Found),
    /// It is gone, or another has its name.
    Gone,
    Again(Duration),
    End(Trouble),
}

impl Releaser<'_> {
    pub(crate) async fn let_go(&self, mut object: Found) -> LetGo {
        // Also between the attempts.
        let _waiting = self.reader.contact().waiting();
        let mut look: Option<Look> = None;
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
                    look: look.as_ref(),
                    recorded: recorded.as_ref(),
                },
                self.purpose,
            );
            if verdict.look == Wanted::Yes {
                look = Some(self.users.of(&object.meta, object.seen).await);
                continue;
            }
            if verdict.ask_record == Wanted::Yes {
                recorded = Some(self.records.record(&object.meta).await);
                continue;
            }
            let mut done = LetGo {
                kept: verdict.keep.clone(),
                ..LetGo::default()
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
                    look = None;
                    object = newer;
                }
                Next::Gone => return LetGo::default(),
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::End(trouble) => {
                    done.trouble = Some(trouble);
                    return done;
                }
            }
        }
    }

    /// The table of answers.
    async fn failed(&self, object: &Found, error: &RequestError, attempt: u32) -> Next {
        let about = (&object.kind, &object.meta.key);
        let over = attempt >= ATTEMPTS;
        match OnConflict::Reread.after(error, about) {
            _ if error.class() == ErrorClass::NotServed => Next::Gone,
            After::Over => Next::Gone,
            After::Look if !over => {
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
            _ if over => Next::End(Trouble::Failed(in_words(error))),
            _ if matches!(error.class(), ErrorClass::Unauthorized | ErrorClass::Other) => {
                Next::End(Trouble::Failed(in_words(error)))
            }
            After::Look | After::Retry(_) => {
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
            Err(error) => return Next::End(Trouble::Failed(in_words(&error))),
        };
        match self.decoders.read(&answer) {
            // Another object of that name: this one is gone. The next pass sees the other.
            Ok(OwnerMeta(meta)) if meta.uid != object.meta.uid => Next::Gone,
            Ok(OwnerMeta(meta)) => Next::Decide(Found {
                kind: object.kind.clone(),
                meta,
                seen: LogicalTime::now(),
            }),
            Err(error) => Next::End(Trouble::Failed(format!("cannot be read: {error}"))),
        }
    }
}

/// The pause after this many attempts that ended in a conflict.
pub(crate) fn pause(attempt: u32) -> Duration {
    let ceiling = Duration::from_millis(20 << attempt.min(7)).min(MAX_PAUSE);
    ceiling.mul_f64(0.5 + ambient::unit() / 2.0)
}

fn in_words(error: &RequestError) -> String {
    belayer_inspect::reader::explain(error)
}
