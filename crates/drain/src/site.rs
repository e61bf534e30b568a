//! Belayer's other objects in a cluster: the gate, the policies that add holds, the namespace.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use belayer_core::executor::{Class, Executor, Writes};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::{Account, Change, GateClient, GateObject};
use belayer_holds::names::NAMESPACE_GUARD;
use belayer_inspect::reader::{ReadResult, Reader};

use crate::holds;
use crate::pause::pause;

/// The account of the chart and the manifests, which owns the gate.
const ACCOUNT: &str = "belayer";

/// Label of every object that is installed with Belayer.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "belayer");

/// Belayer's objects in the cluster besides holds.
pub(crate) struct Site {
    pub(crate) executor: Arc<Executor>,
    pub(crate) reader: Reader,
    pub(crate) gate: GateClient,
    pub(crate) namespace: String,
}

/// State of the gate after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GateState {
    /// Its mode was `draining` already.
    WasDraining,
    /// The run set its mode to `draining`.
    Draining,
    /// There is none, and neither is the account with which Belayer runs: a gate would only keep a later installation in
    /// draining mode.
    NotInstalled,
    /// Belayer's namespace does not exist, so no replica can read a gate.
    NoNamespace,
    /// The API server does not serve the kind, so no replica can read a gate.
    NotServed,
    /// The run did not change it.
    #[default]
    Untouched,
}

/// Result of [`Site::close_gate`].
pub(crate) struct Closed {
    pub(crate) gate: GateState,
    /// The gate was created, and is not deleted with Belayer.
    pub(crate) is_without_owner: bool,
}

impl From<GateState> for Closed {
    fn from(gate: GateState) -> Self {
        Self {
            gate,
            is_without_owner: false,
        }
    }
}

/// What [`Drain::resume`](crate::run::Drain::resume) found. A drain ends with an [outcome](crate::passes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resumed {
    /// There is no gate.
    NoGate,
    /// The gate is not in draining mode: nothing had to be changed.
    NotDraining,
    /// Holds are added again. The switches of admission policies that stay off because they were off before the drain,
    /// with their values.
    Ended(Vec<(String, String)>),
}

/// The kinds of policies that add holds. Bindings first: a policy without a binding has no effect.
const POLICY_KINDS: [&str; 2] = [
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
];

/// Whether policies of this kind may add holds.
pub(crate) fn is_policy_kind(kind: &Resource) -> bool {
    *kind.group == *"admissionregistration.k8s.io"
        && POLICY_KINDS.iter().any(|plural| *kind.plural == **plural)
}

/// An admission policy, or its binding, that adds holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) kind: Resource,
    pub(crate) name: String,
    /// It adds a hold of Belayer and does not have Belayer's label.
    pub(crate) is_of_others: bool,
}

#[derive(Deserialize)]
struct PolicyObject {
    metadata: PolicyMeta,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct PolicyMeta {
    name: String,
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<String, String>>,
}

impl PolicyObject {
    fn is_labelled(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(LABEL.0))
            .map(String::as_str)
            == Some(LABEL.1)
    }

    /// Whether it adds a finalizer of Belayer. The placeholder policy, which stays for a bug of the API
    /// server and matches nothing, does not.
    fn adds_holds(&self) -> bool {
        let spec = self.spec.to_string();
        holds::all().any(|hold| spec.contains(hold))
    }
}

impl Site {
    /// Sends one request, and reports a server that does not respond.
    async fn send<T>(
        &self,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        self.reader.contact().asked(request).await
    }

    /// Sets the gate to draining unless it is already; creates it if there is none and Belayer may be installed.
    pub(crate) async fn close_gate(&self) -> Result<Closed, RequestError> {
        let mut attempt = 0;
        loop {
            let found = match self.send(self.gate.read()).await {
                Err(error) if error.class() == ErrorClass::NotFound => None,
                Err(error) if error.class() == ErrorClass::NotServed => {
                    return Ok(GateState::NotServed.into());
                }
                read => Some(read?),
            };
            let written = match found {
                Some(state) => {
                    // A drain before this one may have been clean: this one may not be.
                    let change = state.to_draining();
                    let now = if state.is_draining() {
                        GateState::WasDraining
                    } else {
                        GateState::Draining
                    };
                    if change.is_empty() {
                        return Ok(now.into());
                    }
                    let written = self.send(self.gate.write(&state, &change)).await;
                    written.map(|()| now.into())
                }
                None => {
                    let made = GateObject::made_draining();
                    let owner = match self.account().await {
                        ReadResult::Absent if self.lacks_namespace(&self.namespace).await => {
                            return Ok(GateState::NoNamespace.into());
                        }
                        ReadResult::Absent => return Ok(GateState::NotInstalled.into()),
                        read => read.found().cloned(),
                    };
                    let created = self.send(self.gate.create(&made, owner.as_ref())).await;
                    created.map(|()| Closed {
                        gate: GateState::Draining,
                        is_without_owner: owner.is_none(),
                    })
                }
            };
            let error = match written {
                Ok(now) => return Ok(now),
                Err(error) => error,
            };
            match error.class() {
                // Another client wrote at the same time.
                ErrorClass::Conflict | ErrorClass::AlreadyExists => {
                    attempt += 1;
                    tokio::time::sleep(pause(attempt)).await;
                }
                ErrorClass::NotFound => return Ok(GateState::NoNamespace.into()),
                ErrorClass::NotServed => return Ok(GateState::NotServed.into()),
                // The namespace is being deleted: no object can be created in it.
                ErrorClass::Forbidden if is_terminating(&error) => {
                    return Ok(GateState::NoNamespace.into());
                }
                _ => return Err(error),
            }
        }
    }

    /// Belayer's account, with which the gate is deleted. Without it the gate stays after an uninstall.
    async fn account(&self) -> ReadResult<Account> {
        let kind = Resource::new("", "v1", "ServiceAccount", "serviceaccounts");
        let key = ObjectKey::new(&*self.namespace, ACCOUNT);
        let read: ReadResult<Value> = self.reader.object(&kind, &key).await;
        read.map(|account| {
            let uid = account["metadata"]["uid"].as_str();
            Account::new(ACCOUNT, uid.unwrap_or_default())
        })
    }

    /// Notes in the gate, if there is one, that no hold is left, so that the namespace and the CRDs may be deleted. Returns
    /// false, and notes nothing, if the gate is not draining any more.
    pub(crate) async fn mark(&self) -> Result<bool, RequestError> {
        let drained = |state: &GateObject| match state.is_draining() {
            true => (state.to_drained(), true),
            false => (Change::new(), false),
        };
        let marked = self.change_gate(drained).await?;
        Ok(marked.unwrap_or(true))
    }

    /// Whether the namespace and the CRDs are guarded with the gate of this namespace.
    pub(crate) async fn is_guarded(&self) -> Result<bool, RequestError> {
        let path = guards().object_path(&ObjectKey::cluster(NAMESPACE_GUARD));
        match self.reader.json::<PolicyObject>(&Request::get(path)).await {
            Ok(guard) => Ok(guard.spec["paramRef"]["namespace"] == *self.namespace),
            Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the binding of the policy that guards the namespace and the CRDs. With the first of them its parameter is
    /// deleted, and then it would deny the deletion of the others. Returns whether there was one.
    pub(crate) async fn remove_guard(&self) -> Result<bool, RequestError> {
        self.delete(&guards(), NAMESPACE_GUARD).await
    }

    /// Sets the gate to normal. Sets `written` before it writes: if the answer is lost, the gate may be normal at the
    /// next try.
    pub(crate) async fn open_gate(&self, written: &mut bool) -> Result<Resumed, RequestError> {
        let normal = |state: &GateObject| {
            let change = state.to_normal();
            *written |= !change.is_empty();
            let resumed = if *written {
                Resumed::Ended(state.with(&change).still_off())
            } else {
                Resumed::NotDraining
            };
            (change, resumed)
        };
        let resumed = self.change_gate(normal).await?;
        Ok(resumed.unwrap_or(Resumed::NoGate))
    }

    /// Writes a change of the gate, if there is a gate and something to change; again after another client wrote.
    /// Returns what `change` returns besides.
    async fn change_gate<T>(
        &self,
        mut change: impl FnMut(&GateObject) -> (Change, T),
    ) -> Result<Option<T>, RequestError> {
        let mut attempt = 0;
        loop {
            let Some(state) = self.send(self.gate.find()).await? else {
                return Ok(None);
            };
            let (change, besides) = change(&state);
            if change.is_empty() {
                return Ok(Some(besides));
            }
            match self.send(self.gate.write(&state, &change)).await {
                Ok(()) => return Ok(Some(besides)),
                Err(error) if error.class() == ErrorClass::Conflict => {
                    attempt += 1;
                    tokio::time::sleep(pause(attempt)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The policies that add holds of Belayer, and their bindings, of the kinds that are served.
    pub(crate) async fn policies(
        &self,
        served: &[Resource],
    ) -> Result<Vec<Policy>, (Resource, RequestError)> {
        let mut found = Vec::new();
        for plural in POLICY_KINDS {
            let is = |kind: &&Resource| is_policy_kind(kind) && *kind.plural == *plural;
            let Some(kind) = served.iter().find(is) else {
                continue;
            };
            let all = self.reader.all::<PolicyObject>(&kind.path(None)).await;
            for object in all.map_err(|error| (kind.clone(), error))? {
                let adds = object.adds_holds();
                let binds = plural.ends_with("bindings") && object.is_labelled();
                if adds || binds {
                    found.push(Policy {
                        kind: kind.clone(),
                        name: object.metadata.name.clone(),
                        is_of_others: !object.is_labelled(),
                    });
                }
            }
        }
        Ok(found)
    }

    /// Deletes a policy.
    pub(crate) async fn remove(&self, policy: &Policy) -> Result<(), RequestError> {
        self.delete(&policy.kind, &policy.name).await.map(drop)
    }

    /// Deletes a cluster-scoped object. Returns whether it existed.
    async fn delete(&self, kind: &Resource, name: &str) -> Result<bool, RequestError> {
        let path = kind.object_path(&ObjectKey::cluster(name));
        let request = Request::delete(path, r#"{"apiVersion":"v1","kind":"DeleteOptions"}"#);
        let written = self.executor.write(&request, Class::Write);
        match self.send(written).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A note if Belayer's namespace does not exist: Belayer may run in another one.
    pub(crate) async fn without_its_namespace(&self) -> Option<String> {
        self.lacks_namespace(&self.namespace).await.then(|| {
            format!(
                "namespace {} does not exist: if Belayer runs in another one, it keeps adding holds; set that namespace with \
                 --own-namespace",
                self.namespace
            )
        })
    }

    /// Whether the server reports that no namespace has this name.
    pub(crate) async fn lacks_namespace(&self, name: &str) -> bool {
        let key = ObjectKey::cluster(name);
        let read: ReadResult<IgnoredAny> = self.reader.object(&Resource::namespaces(), &key).await;
        matches!(read, ReadResult::Absent)
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.executor.writes() == Writes::DryRun
    }
}

/// The kind of the binding of the policy that guards the namespace and the CRDs.
fn guards() -> Resource {
    Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    )
}

fn is_terminating(error: &RequestError) -> bool {
    error.api().is_some_and(|api| {
        api.has_cause("NamespaceTerminating") || api.message.contains("being terminated")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::belayers(json!({"app.kubernetes.io/name": "belayer"}), "belayer.dev/pod-status", (true, true))]
    #[case::an_unlabelled_copy(json!({}), "belayer.dev/workflow-cleanup", (false, true))]
    #[case::a_placeholder_that_adds_no_hold(json!({"app.kubernetes.io/name": "belayer"}), "/metadata/name", (true, false))]
    #[case::an_unrelated_policy(json!({"app.kubernetes.io/name": "other"}), "example.com/hold", (false, false))]
    fn policies_that_add_holds(
        #[case] labels: Value,
        #[case] value: &str,
        #[case] expected: (bool, bool),
    ) {
        let policy: PolicyObject = serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": labels },
            "spec": { "mutations": [{ "jsonPatch": { "expression": format!("[{value:?}]") } }] },
        }))
        .unwrap();
        assert_eq!((policy.is_labelled(), policy.adds_holds()), expected);
    }
}
