//! Live looks at who uses the claims of a namespace, shared by all of them that may believe one.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use belayer_core::http::RequestError;
use belayer_core::informer::{Decoders, Page, Reading};
use belayer_core::moment::LogicalTime;
use belayer_core::object::{Resource, ResourceVersion};
use belayer_core::slim::{DecodeContext, ObjectMeta, Pod};
use belayer_inspect::reader::{Reader, explain};
use belayer_pvc_protection::look::Listed;

use crate::decide::Look;

type Namespaces = Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Seen>>>>>;

/// Looks at pods, one namespace at a time, as often as somebody needs a newer look.
pub(crate) struct Users {
    reader: Reader,
    decoders: Decoders<Pod>,
    /// One slot per namespace; the lock of a slot is held while somebody looks.
    namespaces: Namespaces,
}

#[derive(Clone)]
struct Seen {
    begun: LogicalTime,
    listed: Result<Arc<Listed>, String>,
}

impl Users {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            decoders: Decoders::protobuf_or_json(DecodeContext::default()),
            namespaces: Mutex::default(),
        }
    }

    /// Who uses `claim`, by a look that began after `seen`.
    pub(crate) async fn of(&self, claim: &ObjectMeta, seen: LogicalTime) -> Look {
        let namespace = claim.key.namespace().unwrap_or_default();
        let slot = {
            let mut namespaces = self.namespaces.lock();
            Arc::clone(namespaces.entry_ref(namespace).or_default())
        };
        let mut slot = slot.lock().await;
        let look = match &*slot {
            Some(look) if look.begun > seen => look.clone(),
            _ => {
                let begun = LogicalTime::now();
                let listed = self.list(namespace).await;
                let look = Seen {
                    begun,
                    listed: listed.map(Arc::new).map_err(|error| explain(&error)),
                };
                // A look that failed helps nobody else.
                *slot = look.listed.is_ok().then(|| look.clone());
                look
            }
        };
        match look.listed {
            Ok(listed) => Look::Seen {
                users: listed.users_of(claim),
                begun: look.begun,
            },
            Err(why) => Look::Failed(format!("the pods of {namespace}: {why}")),
        }
    }

    async fn list(&self, namespace: &str) -> Result<Listed, RequestError> {
        let path = Resource::pods().path(Some(namespace));
        let accept = self.decoders.accept(Reading::List);
        let mut listed: Option<Listed> = None;
        self.reader
            .pages(&path, &accept, |answer| {
                let page = self.decoders.read_page(&answer);
                let next = page.and_then(|page| note_all(&mut listed, page));
                async move { next }
            })
            .await?;
        Ok(listed.unwrap_or_else(|| Listed::at(ResourceVersion::default())))
    }
}

/// Notes the pods of a page; where the next one begins. A pod that cannot be read may use anything:
/// without it the list is no answer.
fn note_all(listed: &mut Option<Listed>, page: Page<Pod>) -> Result<Option<String>, RequestError> {
    let all = listed.get_or_insert_with(|| Listed::at(page.resource_version));
    for pod in page.items {
        let pod = pod.map_err(|bad| RequestError::Decode(format!("a pod: {}", bad.why)))?;
        all.note(&pod);
    }
    Ok(page.continue_token)
}
