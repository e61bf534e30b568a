//! Reads and writes the gate.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::object::ObjectKey;

use super::{Account, Change, GateObject, resource};
use crate::names;

/// Reads and writes the gate.
///
/// ```no_run
/// use std::sync::Arc;
/// use belayer_core::{Executor, RequestError};
/// use belayer_holds::gate::{GateClient, GateObject};
///
/// async fn drain(executor: Arc<Executor>) -> Result<(), RequestError> {
///     let client = GateClient::new(executor, "belayer");
///     match client.find().await? {
///         Some(gate) => client.write(&gate, &gate.to_draining()).await,
///         None => client.create(&GateObject::made_draining(), None).await,
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct GateClient {
    executor: Arc<Executor>,
    key: ObjectKey,
}

/// Whether an account owned the gate before. Returned by
/// [`GateClient::adopt`](crate::gate::GateClient::adopt).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// It did.
    Before,
    /// It does now.
    Now,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Option<Vec<GateObject>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl GateClient {
    /// The gate in Belayer's namespace.
    pub fn new(executor: Arc<Executor>, namespace: &str) -> Self {
        Self {
            executor,
            key: GateObject::key(namespace),
        }
    }

    /// Namespace and name of the gate.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The executor for its requests.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Reads the gate.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`]; not found if the gate does not exist.
    pub async fn read(&self) -> Result<GateObject, RequestError> {
        let request = Request::get(self.path());
        self.executor.read(&request, Class::Evidence).await?.json()
    }

    /// Reads the gate; `None` if it, or its kind, does not exist.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn find(&self) -> Result<Option<GateObject>, RequestError> {
        match self.read().await {
            Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Reads the gate, and the version to watch from.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn list(&self) -> Result<(Option<GateObject>, String), RequestError> {
        let request = Request::get(self.collection()).query("fieldSelector", self.selector());
        let answer = self.executor.read(&request, Class::Evidence).await?;
        let list: List = answer.json()?;
        let Some(items) = list.items else {
            return Err(RequestError::Decode("a list without items".to_owned()));
        };
        Ok((items.into_iter().next(), list.metadata.resource_version))
    }

    /// A watch of the gate from `version`.
    pub fn watch(&self, version: &str, seconds: u64) -> Request {
        Request::get(self.collection())
            .query("watch", "true")
            .query("fieldSelector", self.selector())
            .query("resourceVersion", version)
            .query("timeoutSeconds", seconds.to_string())
    }

    fn path(&self) -> String {
        resource().object_path(&self.key)
    }

    fn collection(&self) -> String {
        resource().path(self.key.namespace())
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.key.name())
    }

    /// Changes keys of the version that was read.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; a conflict if another client changed it since.
    pub async fn write(&self, read: &GateObject, change: &Change) -> Result<(), RequestError> {
        self.patch(read, json!({ "data": change })).await
    }

    /// Adds an owner to the version that was read, unless it is one already.
    ///
    /// # Errors
    ///
    /// As [`GateClient::write`].
    pub async fn adopt(
        &self,
        read: &GateObject,
        account: &Account,
    ) -> Result<Adopted, RequestError> {
        let Some(owners) = read.owners_with(account) else {
            return Ok(Adopted::Before);
        };
        let body = json!({ "metadata": { "ownerReferences": owners } });
        self.patch(read, body).await?;
        Ok(Adopted::Now)
    }

    async fn patch(&self, read: &GateObject, mut body: Value) -> Result<(), RequestError> {
        body["metadata"]["uid"] = json!(read.metadata.uid);
        body["metadata"]["resourceVersion"] = json!(read.metadata.resource_version);
        let request = Request::patch(self.path(), PatchKind::Merge, body.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }

    /// Creates the gate.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; not found if its namespace does not exist, not served without its CRD.
    pub async fn create(&self, data: &Change, owner: Option<&Account>) -> Result<(), RequestError> {
        let kind = resource();
        let object = json!({
            "apiVersion": kind.api_version(),
            "kind": &*kind.kind,
            "metadata": {
                "name": self.key.name(),
                "namespace": self.key.namespace(),
                "labels": { "app.kubernetes.io/name": "belayer" },
                "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
            },
            "data": data,
        });
        let request = Request::post(self.collection(), object.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::client;
    use belayer_core::executor::{Bounds, Writes};
    use belayer_sandbox::{Actor, Answer, Fault, Gvr, Match, Sandbox, WriteOptions};

    use super::*;
    use crate::gate::CRD;

    const NAMESPACE: &str = "here";

    fn client(sandbox: &Sandbox) -> GateClient {
        let http = client::in_process(sandbox.service("belayer"), "belayer/1.0");
        let executor = Executor::new(http, "belayer", Bounds::default(), Writes::Sent);
        GateClient::new(Arc::new(executor), NAMESPACE)
    }

    /// A server with the namespace of the gate and its kind.
    fn server() -> Sandbox {
        let sandbox = Sandbox::builder().build();
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        });
        create(&sandbox, &Gvr::NAMESPACES, None, namespace);
        let definition = serde_saphyr::from_str(CRD).unwrap();
        create(&sandbox, &Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
        sandbox
    }

    fn create(sandbox: &Sandbox, kind: &Gvr, namespace: Option<&str>, object: Value) {
        let (admin, options) = (Actor::new("admin"), WriteOptions::default());
        let created = sandbox
            .cluster()
            .create(&admin, kind, namespace, object, &options);
        created.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_without_its_kind_does_not_exist() {
        let client = client(&Sandbox::builder().build());
        assert_eq!(client.find().await.unwrap(), None);
        let error = client.read().await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotServed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_cannot_be_read_may_exist() {
        let sandbox = server();
        let forbidden = Fault::on(Match::any().client("belayer")).answer(Answer::forbidden("no"));
        let _fault = sandbox.faults().inject(forbidden);
        let error = client(&sandbox).find().await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Forbidden);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_is_created_read_listed_and_changed() {
        let sandbox = server();
        let client = client(&sandbox);
        assert_eq!(client.find().await.unwrap(), None);
        let another = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate",
            "metadata": { "name": "another", "namespace": NAMESPACE },
        });
        let gates = Gvr::new("belayer.dev", "v1alpha1", "gates");
        create(&sandbox, &gates, Some(NAMESPACE), another);
        assert_eq!(client.list().await.unwrap().0, None);
        let owner = Account::new("belayer", "account-uid");
        client
            .create(&GateObject::made_draining(), Some(&owner))
            .await
            .unwrap();
        let gate = client.read().await.unwrap();
        assert!(gate.is_draining());
        assert_eq!(client.find().await.unwrap().as_ref(), Some(&gate));
        let (listed, version) = client.list().await.unwrap();
        assert_eq!(listed.as_ref(), Some(&gate));
        let collection = "/apis/belayer.dev/v1alpha1/namespaces/here/gates";
        assert_eq!(client.watch(&version, 7).path(), collection);
        // The account owns it already; another one is added.
        let adopted = client.adopt(&gate, &owner).await.unwrap();
        assert_eq!(adopted, Adopted::Before);
        let other = Account::new("belayer-other", "other-uid");
        let adopted = client.adopt(&gate, &other).await.unwrap();
        assert_eq!(adopted, Adopted::Now);
        // What was read is not the newest version any more.
        let change = gate.to_drained();
        let error = client.write(&gate, &change).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Conflict);
        let gate = client.read().await.unwrap();
        assert!(!gate.is_drained());
        client.write(&gate, &change).await.unwrap();
        assert!(client.read().await.unwrap().is_drained());
    }
}
