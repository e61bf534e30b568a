//! Waiting for a condition, with a deadline, driven by the log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::address::{Gvr, ObjectKey};
use crate::cluster::{Cluster, EventType, ListOptions};
use crate::sandbox::Sandbox;

/// Longest text of an object in an error, in bytes.
const SHOWN: usize = 4_000;

/// The condition did not come true in time. Returned by
/// [`Sandbox::wait_until_typed`](crate::Sandbox::wait_until_typed), which the [crate's
/// example](crate) calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: condition not met within {waited:?} after {changes} changes; last state: {last}")]
pub struct WaitError {
    /// The awaited object or objects: `pods default/web`.
    pub what: String,
    /// The timeout.
    pub waited: Duration,
    /// Changes seen before the timeout.
    pub changes: u64,
    /// The last state, as JSON, or that the object did not exist.
    pub last: String,
}

impl Sandbox {
    /// Waits until an object fulfils a condition, and returns it. `None` stands for a missing object, so that a
    /// deletion can be awaited too. Cluster-scoped objects have the empty namespace.
    ///
    /// The condition sees every state of the object, even one that is replaced at once. No request is sent, so
    /// nothing is recorded.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use belayer_sandbox::{Gvr, Sandbox};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sandbox = Sandbox::default();
    /// sandbox.load_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}")?;
    /// let soon = Duration::from_secs(5);
    /// let map = sandbox.wait_until(&Gvr::CONFIGMAPS, "default", "settings", soon, |map| map.is_some()).await?;
    /// assert!(map.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At the deadline, with the last state.
    pub async fn wait_until(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        deadline: Duration,
        mut condition: impl FnMut(Option<&Value>) -> bool,
    ) -> Result<Option<Arc<Value>>, WaitError> {
        let wait = Wait {
            cluster: self.cluster(),
            gvr,
            key: ObjectKey::new(Some(namespace), name),
        };
        wait.run(deadline, |object| condition(object).then_some(()))
            .await
            .map(|(object, ())| object)
    }

    /// As [`Sandbox::wait_until`], for a typed resource. An object that cannot be decoded as the type does not
    /// fulfil the condition.
    ///
    /// # Errors
    /// At the deadline, with the last state.
    #[cfg(feature = "client")]
    pub async fn wait_until_typed<K>(
        &self,
        namespace: &str,
        name: &str,
        deadline: Duration,
        mut condition: impl FnMut(Option<&K>) -> bool,
    ) -> Result<Option<K>, WaitError>
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
    {
        let gvr = Gvr::new(K::group(&()), K::version(&()), K::plural(&()));
        let wait = Wait {
            cluster: self.cluster(),
            gvr: &gvr,
            key: ObjectKey::new(Some(namespace), name),
        };
        let check = |object: Option<&Value>| {
            let typed = match object {
                Some(object) => Some(K::deserialize(object).ok()?),
                None => None,
            };
            condition(typed.as_ref()).then_some(typed)
        };
        wait.run(deadline, check).await.map(|(_, typed)| typed)
    }

    /// Waits until the objects of a kind, in one namespace or (empty) in all, fulfil a condition together.
    ///
    /// # Errors
    /// At the deadline, with the names of the objects found.
    pub async fn wait_until_all(
        &self,
        gvr: &Gvr,
        namespace: &str,
        deadline: Duration,
        mut condition: impl FnMut(&[Arc<Value>]) -> bool,
    ) -> Result<Vec<Arc<Value>>, WaitError> {
        let end = deadline_at(deadline);
        let (cluster, mut changes) = (self.cluster(), 0);
        let mut log = cluster.subscribe(Some(gvr), cluster.version());
        loop {
            let namespace = Some(namespace).filter(|ns| !ns.is_empty());
            let page = cluster.list(gvr, namespace, &ListOptions::default());
            let found = page.map(|page| page.items).unwrap_or_default();
            if condition(&found) {
                return Ok(found);
            }
            let more = tokio::time::timeout_at(end, log.next()).await;
            match more {
                Ok(Ok(_)) => changes += 1,
                Ok(Err(_)) => log = cluster.subscribe(Some(gvr), cluster.version()),
                Err(_) => {
                    let names = found.iter().map(|object| crate::meta::name(object));
                    let names: Vec<&str> = names.take(50).collect();
                    return Err(WaitError {
                        what: gvr.resource.to_string(),
                        waited: deadline,
                        changes,
                        last: format!("{} objects: {}", found.len(), names.join(", ")),
                    });
                }
            }
        }
    }
}

/// [`Duration::MAX`] stands for no deadline; an [`Instant`] that far away cannot be represented.
fn deadline_at(deadline: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    Instant::now() + deadline.min(FAR)
}

struct Wait<'a> {
    cluster: &'a Cluster,
    gvr: &'a Gvr,
    key: ObjectKey,
}

impl Wait<'_> {
    fn current(&self) -> Option<Arc<Value>> {
        let namespace = Some(&*self.key.namespace).filter(|ns| !ns.is_empty());
        self.cluster.get(self.gvr, namespace, &self.key.name).ok()
    }

    async fn run<T>(
        &self,
        deadline: Duration,
        mut check: impl FnMut(Option<&Value>) -> Option<T>,
    ) -> Result<(Option<Arc<Value>>, T), WaitError> {
        let end = deadline_at(deadline);
        let mut changes = 0;
        // Subscribe before reading, so that a change in between is seen again rather than missed.
        let mut log = self
            .cluster
            .subscribe(Some(self.gvr), self.cluster.version());
        let mut object = self.current();
        loop {
            if let Some(found) = check(object.as_deref()) {
                return Ok((object, found));
            }
            object = loop {
                match tokio::time::timeout_at(end, log.next()).await {
                    Ok(Ok(event)) if event.key != self.key => {}
                    Ok(Ok(event)) => {
                        changes += 1;
                        let there = event.event_type != EventType::Deleted;
                        break there.then(|| Arc::clone(&event.object));
                    }
                    Ok(Err(_)) => {
                        log = self
                            .cluster
                            .subscribe(Some(self.gvr), self.cluster.version());
                        break self.current();
                    }
                    Err(_) => return Err(self.failed(deadline, changes, object.as_deref())),
                }
            };
        }
    }

    fn failed(&self, waited: Duration, changes: u64, last: Option<&Value>) -> WaitError {
        let last = match last {
            Some(object) => {
                let mut text = serde_json::to_string_pretty(object).unwrap_or_default();
                text.truncate(text.floor_char_boundary(SHOWN));
                format!("\n{text}")
            }
            None if self.cluster.resource(self.gvr).is_none() => {
                format!("the server does not serve {}", self.gvr)
            }
            None => "not found".to_owned(),
        };
        WaitError {
            what: format!("{} {}", self.gvr.resource, self.key),
            waited,
            changes,
            last,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Actor, DeleteOptions, Patch, Subresource, WriteOptions};

    const SOON: Duration = Duration::from_secs(5);

    fn write(sandbox: &Sandbox, value: u64) {
        let (actor, options) = (Actor::new("me"), WriteOptions::default());
        let cluster = sandbox.cluster();
        let data = json!({"data": {"value": value.to_string()}});
        let patch = Patch::Merge(data.clone());
        let (gvr, namespace) = (&Gvr::CONFIGMAPS, Some("default"));
        let patched = cluster.patch(
            &actor,
            gvr,
            namespace,
            "a",
            patch,
            Subresource::None,
            &options,
        );
        if patched.is_err() {
            let mut map = json!({"metadata": {"name": "a"}});
            map["data"] = data["data"].clone();
            cluster
                .create(&actor, gvr, namespace, map, &options)
                .unwrap();
        }
    }

    fn has(value: &'static str) -> impl Fn(Option<&Value>) -> bool {
        move |map| map.is_some_and(|map| map["data"]["value"] == value)
    }

    #[tokio::test(start_paused = true)]
    async fn the_condition_sees_states_that_are_replaced_at_once() {
        let sandbox = Sandbox::builder().seed(1).build();
        let waiter = sandbox.clone();
        let waiting = tokio::spawn(async move {
            waiter
                .wait_until(&Gvr::CONFIGMAPS, "default", "a", SOON, has("2"))
                .await
        });
        tokio::task::yield_now().await;
        (1..4).for_each(|value| write(&sandbox, value));
        let found = waiting.await.unwrap().unwrap().unwrap();
        assert_eq!(found["data"]["value"], "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_can_be_awaited() {
        let sandbox = Sandbox::builder().seed(1).build();
        write(&sandbox, 1);
        let waiter = sandbox.clone();
        let waiting = tokio::spawn(async move {
            let gone = |map: Option<&Value>| map.is_none();
            waiter
                .wait_until(&Gvr::CONFIGMAPS, "default", "a", SOON, gone)
                .await
        });
        tokio::task::yield_now().await;
        let (actor, now) = (Actor::new("me"), DeleteOptions::default());
        sandbox
            .cluster()
            .delete(&actor, &Gvr::CONFIGMAPS, Some("default"), "a", &now)
            .unwrap();
        assert_eq!(waiting.await.unwrap(), Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_contains_the_last_state() {
        let sandbox = Sandbox::builder().seed(1).build();
        let wait = async |gvr: Gvr| {
            let never = sandbox.wait_until(&gvr, "default", "a", SOON, has("9"));
            never.await.unwrap_err().to_string()
        };
        assert_eq!(
            wait(Gvr::CONFIGMAPS).await,
            "configmaps default/a: condition not met within 5s after 0 changes; last state: not found"
        );
        assert!(
            wait(Gvr::new("x.dev", "v1", "things"))
                .await
                .ends_with("the server does not serve x.dev/v1/things")
        );
        write(&sandbox, 7);
        let message = wait(Gvr::CONFIGMAPS).await;
        assert!(message.contains("\"value\": \"7\""), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn many_objects_together() {
        let sandbox = Sandbox::builder().seed(1).build();
        let none = |maps: &[Arc<Value>]| maps.is_empty();
        let found = sandbox
            .wait_until_all(&Gvr::CONFIGMAPS, "", SOON, none)
            .await;
        assert_eq!(found, Ok(vec![]));
        write(&sandbox, 1);
        let message = sandbox
            .wait_until_all(&Gvr::CONFIGMAPS, "", SOON, none)
            .await;
        let message = message.unwrap_err().to_string();
        assert!(message.ends_with("1 objects: a"), "{message}");
    }

    #[cfg(feature = "client")]
    #[tokio::test(start_paused = true)]
    async fn typed_objects_too() {
        use k8s_openapi::api::core::v1::ConfigMap;
        let sandbox = Sandbox::builder().seed(1).build();
        write(&sandbox, 3);
        let map: Option<ConfigMap> = sandbox
            .wait_until_typed("default", "a", SOON, |map: Option<&ConfigMap>| {
                map.is_some_and(|map| map.data.is_some())
            })
            .await
            .unwrap();
        assert_eq!(map.unwrap().data.unwrap()["value"], "3");
    }
}
