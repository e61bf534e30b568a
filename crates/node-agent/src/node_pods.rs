//! Live lists of the pods of this node, by UID, shared by all who may believe one.
//!
//! A record names a pod by UID, and whoever may write a record's status can name any: whether that pod is
//! here is looked up by UID, never by the record's name (row T1). No list of the whole cluster is needed
//! for it: of a pod that is bound elsewhere nothing is on this node.

use std::sync::Arc;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::Request;
use belayer_core::informer::{Decoders, Reading};
use belayer_core::moment::LogicalTime;
use belayer_core::object::{Resource, Uid};
use belayer_core::slim::Pod;
use hashbrown::HashMap;
use tokio::sync::Mutex;

use crate::requests::ApiError;

/// Pods asked for at once.
const PAGE: u32 = 500;

/// Lists the pods of a node, as often as somebody needs a newer list.
#[derive(Debug)]
pub(crate) struct NodePods {
    decoders: Decoders<Pod>,
    selector: String,
    /// The lock is held while somebody lists.
    last: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    begun: LogicalTime,
    pods: Arc<HashMap<Uid, Arc<Pod>>>,
}

impl NodePods {
    pub(crate) fn new(node: &str, decoders: Decoders<Pod>) -> Self {
        Self {
            decoders,
            selector: format!("spec.nodeName={node}"),
            last: Mutex::default(),
        }
    }

    /// The pod of this UID, if it is on the node, by a list that began after this was called.
    pub(crate) async fn find(
        &self,
        executor: &Executor,
        uid: &Uid,
    ) -> Result<Option<Arc<Pod>>, ApiError> {
        let asked = LogicalTime::now();
        let mut last = self.last.lock().await;
        let seen = match &*last {
            Some(seen) if seen.begun > asked => seen,
            _ => {
                let begun = LogicalTime::now();
                let pods = Arc::new(self.list(executor).await?);
                last.insert(Seen { begun, pods })
            }
        };
        Ok(seen.pods.get(uid).cloned())
    }

    /// A pod that cannot be read may be the one that is looked for: without it the list is no answer.
    async fn list(&self, executor: &Executor) -> Result<HashMap<Uid, Arc<Pod>>, ApiError> {
        let path = Resource::pods().path(None);
        let mut pods = HashMap::new();
        let mut token: Option<String> = None;
        loop {
            let request = Request::list(path.clone(), PAGE, token.as_deref())
                .query("fieldSelector", self.selector.clone())
                .accept(self.decoders.accept(Reading::List));
            let answer = executor.read(&request, Class::Evidence).await?;
            let page = self
                .decoders
                .read_page(&answer)
                .map_err(|error| ApiError::Decode(error.to_string()))?;
            for item in page.items {
                let pod = item.map_err(|bad| ApiError::Decode(bad.why.to_string()))?;
                pods.insert(pod.meta.uid.clone(), Arc::new(pod));
            }
            token = page.continue_token;
            if token.is_none() {
                return Ok(pods);
            }
        }
    }
}
