//! Live looks at who uses the claims of a namespace, shared by all of them that may believe one.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use belayer_core::http::{Request, RequestError};
use belayer_core::informer::{Decoders, JsonDecoder, ProtobufDecoder, Reading};
use belayer_core::moment::Moment;
use belayer_core::object::Resource;
use belayer_core::slim::{DecodeContext, Interner, Keep, ObjectMeta, Pod};
use belayer_inspect::reader::{PAGE, Reader, explain};
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
    begun: Moment,
    listed: Result<Arc<Listed>, String>,
}

impl Users {
    pub(crate) fn new(reader: Reader) -> Self {
        let context = DecodeContext {
            keep: Keep::nothing(),
            interner: Interner::default(),
        };
        Self {
            reader,
            decoders: Decoders::new(ProtobufDecoder::new(context.clone()))
                .or(JsonDecoder::new(context)),
            namespaces: Mutex::default(),
        }
    }

    /// Who uses `claim`, by a look that began after `seen`.
    pub(crate) async fn of(&self, claim: &ObjectMeta, seen: Moment) -> Look {
        let namespace = claim.key.namespace().unwrap_or_default();
        let slot = {
            let mut namespaces = self.namespaces.lock();
            Arc::clone(namespaces.entry_ref(namespace).or_default())
        };
        let mut slot = slot.lock().await;
        let look = match &*slot {
            Some(look) if look.begun > seen => look.clone(),
            _ => {
                let begun = Moment::now();
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
        let unreadable = |why: String| RequestError::Decode(why);
        let mut listed: Option<Listed> = None;
        let mut token: Option<String> = None;
        loop {
            let request = Request::list(&*path, PAGE, token.as_deref())
                .accept(self.decoders.accept(Reading::List));
            let answer = self.reader.read(&request).await?;
            let decoder = self
                .decoders
                .pick(&answer.content_type)
                .ok_or_else(|| unreadable(format!("content type {:?}", answer.content_type)))?;
            let page = decoder
                .decode_page(&answer.body)
                .map_err(|error| unreadable(error.to_string()))?;
            let all = listed.get_or_insert_with(|| Listed::at(page.resource_version));
            for pod in page.items {
                // A pod that cannot be read may use anything: without it the list is no answer.
                all.note(&pod.map_err(|bad| unreadable(format!("a pod: {}", bad.why)))?);
            }
            token = page.continue_token.filter(|token| !token.is_empty());
            if token.is_none() {
                let empty = || Listed::at(page.resource_version);
                return Ok(listed.unwrap_or_else(empty));
            }
        }
    }
}
