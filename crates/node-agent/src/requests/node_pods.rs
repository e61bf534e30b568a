//! Live lists of the pods of this node, by UID, shared by all pods that need a list.
//!
//! A record names a pod by UID, and a client that may write a record's status can name any. So the pod is
//! looked up by UID, never by the record's name (rule T1). The pods of this node suffice: a pod that is
//! bound to another node has no files here.

use std::sync::Arc;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::Request;
use belayer_core::informer::{Decoders, Reading};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{Resource, Uid};
use belayer_core::slim::Pod;
use hashbrown::HashMap;
use tokio::sync::Mutex;

use super::ApiError;

/// Page size of a list.
const PAGE: u32 = 500;

/// Lists the pods of a node; concurrent callers share one list.
#[derive(Debug)]
pub(crate) struct NodePods {
    decoders: Decoders<Pod>,
    selector: String,
    /// The last list. The lock is held during a list request.
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

    /// The pod with this UID, if a list that began after this call contains it.
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

    /// Lists all pods of the node. A pod that cannot be decoded is an error: it may be the one in question.
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
