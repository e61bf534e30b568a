//! Reads and writes the gate ConfigMap.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};

use super::{Change, GateConfigMap};
use crate::names;

/// Reads and writes the gate ConfigMap.
#[derive(Debug, Clone)]
pub struct GateClient {
    executor: Arc<Executor>,
    key: ObjectKey,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Option<Vec<GateConfigMap>>,
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
            key: GateConfigMap::key(namespace),
        }
    }

    /// Namespace and name of the ConfigMap.
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
    /// As [`Executor::read`]; not found if the ConfigMap does not exist.
    pub async fn read(&self) -> Result<GateConfigMap, RequestError> {
        let request = Request::get(self.path());
        self.executor.read(&request, Class::Evidence).await?.json()
    }

    /// Reads the gate; `None` if the ConfigMap does not exist.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn find(&self) -> Result<Option<GateConfigMap>, RequestError> {
        match self.read().await {
            Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Reads the gate, and the version to watch from.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn list(&self) -> Result<(Option<GateConfigMap>, String), RequestError> {
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
        Resource::config_maps().object_path(&self.key)
    }

    fn collection(&self) -> String {
        Resource::config_maps().path(self.key.namespace())
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.key.name())
    }

    /// Changes keys of the version that was read.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; a conflict if another client changed it since.
    pub async fn write(&self, read: &GateConfigMap, change: &Change) -> Result<(), RequestError> {
        let body = json!({
            "metadata": { "uid": read.metadata.uid, "resourceVersion": read.metadata.resource_version },
            "data": change,
        });
        let request = Request::patch(self.path(), PatchKind::Merge, body.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }

    /// Creates the ConfigMap.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; not found if its namespace does not exist.
    pub async fn create(&self, data: &Change) -> Result<(), RequestError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.key.name(),
                "namespace": self.key.namespace(),
                "labels": { "app.kubernetes.io/name": "belayer" },
            },
            "data": data,
        });
        let request = Request::post(self.collection(), object.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }
}
