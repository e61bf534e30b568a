//! Live lists of the pods of a namespace, and which PVCs they use; shared by all PVCs that need a list.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use belayer_core::http::RequestError;
use belayer_core::informer::{Decoders, Page};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{Resource, ResourceVersion};
use belayer_core::slim::{DecodeContext, ObjectMeta, Pod};
use belayer_inspect::reader::{Reader, explain};
use belayer_pvc_protection::pods_query::Listed;

use crate::decide::Usage;

/// When a list of pods began, and the list.
type PodList = (LogicalTime, Arc<Listed>);

type Namespaces = Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<PodList>>>>>;

/// Lists pods, one namespace at a time; concurrent callers share one list.
pub(crate) struct Users {
    reader: Reader,
    decoders: Decoders<Pod>,
    /// One slot per namespace. The lock of a slot is held during a list request.
    namespaces: Namespaces,
}

impl Users {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            decoders: Decoders::protobuf_or_json(DecodeContext::default()),
            namespaces: Mutex::default(),
        }
    }

    /// The users of `pvc`, from a list that began after `seen`.
    pub(crate) async fn of(&self, pvc: &ObjectMeta, seen: LogicalTime) -> Usage {
        let namespace = pvc.key.namespace().unwrap_or_default();
        let slot = {
            let mut namespaces = self.namespaces.lock();
            Arc::clone(namespaces.entry_ref(namespace).or_default())
        };
        let mut slot = slot.lock().await;
        let (begun, listed) = match &*slot {
            Some((begun, listed)) if *begun > seen => (*begun, Arc::clone(listed)),
            _ => {
                // A failed list is not shared.
                *slot = None;
                let begun = LogicalTime::now();
                match self.list(namespace).await {
                    Ok(listed) => slot.insert((begun, Arc::new(listed))).clone(),
                    Err(error) => {
                        let why = explain(&error);
                        return Usage::Unknown(format!(
                            "could not list the pods of namespace {namespace}: {why}"
                        ));
                    }
                }
            }
        };
        Usage::Listed {
            users: listed.users_of(pvc),
            begun,
        }
    }

    async fn list(&self, namespace: &str) -> Result<Listed, RequestError> {
        let path = Resource::pods().path(Some(namespace));
        let mut listed: Option<Listed> = None;
        let read = self
            .reader
            .decoded_pages(&path, &self.decoders, |page| note_all(&mut listed, page));
        read.await?;
        Ok(listed.unwrap_or_else(|| Listed::at(ResourceVersion::default())))
    }
}

/// Adds the pods of a page. A pod that cannot be decoded is an error: it may use any PVC.
fn note_all(listed: &mut Option<Listed>, page: Page<Pod>) -> Result<(), RequestError> {
    let all = listed.get_or_insert_with(|| Listed::at(page.resource_version));
    for pod in page.items {
        let pod =
            pod.map_err(|bad| RequestError::Decode(format!("cannot decode a pod: {}", bad.why)))?;
        all.note(&pod);
    }
    Ok(())
}
