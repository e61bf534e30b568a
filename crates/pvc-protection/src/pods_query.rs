//! A live read of the pods of a namespace, shared by all PVCs there that wait for one.
//!
//! One `limit=1` list returns the current resource version of the pods. Once the pod store has reached that
//! version it is as good as a list: if pods change often, that takes milliseconds and costs one small request,
//! however many pods there are. A quiet watch learns the version only from a bookmark, about once a minute, so
//! that the namespace is listed if the store does not [reach it soon](Store::reaches_soon). Only versions of pods are
//! compared with each other. A version before that of the store shows that the server's data went back (a restored
//! etcd): the store proves nothing then, and the namespace is listed.
//!
//! A rule of [`row`](crate::row) asks for it; which pods count is decided by
//! [`uses`](crate::uses::uses), as in the [crate's example](crate).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hashbrown::HashMap;

use belayer_core::executor::Executor;
use belayer_core::http::Pages;
use belayer_core::informer::{Decoders, Page, Reading, Store};
use belayer_core::object::{Resource, ResourceVersion, Uid};
use belayer_core::queries::{LiveReader, Query, ReadError};
use belayer_core::slim::{ObjectMeta, Pod};

use crate::uses::{Users, has_ended};

/// If fewer pods than this remain, listing them is cheaper than waiting for the store.
const FEW: u64 = 100;

/// Pods per page.
const PAGE: u32 = 500;

/// Timeout of the request for one page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest page that is read, in bytes (T3). A larger page is requested again with half the limit.
const PAGE_LIMIT: usize = 32 << 20;

/// Which PVCs the pods of a namespace use now. A rule of [`row`](crate::row) asks for it; which
/// pods count is decided by [`uses`](crate::uses::uses), as in the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodsQuery(Arc<str>);

impl PodsQuery {
    /// The query for the namespace `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for PodsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "which PVCs do the pods of namespace {} use", self.0)
    }
}

/// The result of a live read. A rule of [`row`](crate::row) asks for it; which pods count is
/// decided by [`uses`](crate::uses::uses), as in the [crate's example](crate).
#[derive(Debug, Clone)]
pub enum PodsAnswer {
    /// The namespace's pods were listed.
    Listed(Arc<Listed>),
    /// The pod store reached the server's version, so its index gives the answer.
    StoreReached(ResourceVersion),
}

impl Query for PodsQuery {
    type Answer = PodsAnswer;

    const NAME: &'static str = "pods";

    fn outcome(answer: &PodsAnswer) -> &'static str {
        match answer {
            PodsAnswer::Listed(_) => "listed",
            PodsAnswer::StoreReached(_) => "store",
        }
    }

    fn weight(answer: &PodsAnswer) -> usize {
        match answer {
            PodsAnswer::Listed(listed) => listed.weight(),
            PodsAnswer::StoreReached(_) => 0,
        }
    }
}

/// Which PVCs the listed pods use. A rule of [`row`](crate::row) asks for it; which pods count is
/// decided by [`uses`](crate::uses::uses), as in the [crate's example](crate).
#[derive(Debug)]
pub struct Listed {
    version: Option<ResourceVersion>,
    by_name: HashMap<Arc<str>, UsersOfName>,
    /// Pods that may use any PVC of the namespace, with their UIDs if they are shut down.
    of_any: Vec<AnyUser>,
}

/// A pod that may use any PVC of its namespace.
#[derive(Debug)]
struct AnyUser {
    name: Arc<str>,
    uid: Uid,
    has_ended: bool,
    is_shut_down: bool,
}

/// The users of PVCs of one name.
#[derive(Debug, Default)]
struct UsersOfName {
    /// Pods that refer to the PVC by name.
    plain: Users,
    /// Pods whose generic ephemeral volume has a PVC of this name.
    ephemeral: Vec<(Uid, Arc<str>)>,
}

impl Listed {
    /// A list at this version, with no pod yet.
    pub fn at(version: ResourceVersion) -> Self {
        Self {
            version: Some(version),
            by_name: HashMap::new(),
            of_any: Vec::new(),
        }
    }

    /// The same for a store that was at `version` before the list was read.
    pub(crate) fn after(self, version: ResourceVersion) -> Self {
        Self {
            version: self.version.filter(|listed| *listed >= version),
            ..self
        }
    }

    /// The resource version of the list. A store that has reached it has seen every later change of the users. `None` if
    /// the store was later before the read: the server's data went back (a restored etcd).
    pub fn version(&self) -> Option<ResourceVersion> {
        self.version
    }

    /// Approximate size in bytes.
    fn weight(&self) -> usize {
        let pvcs = self.by_name.iter().map(|(pvc, users)| {
            let ephemeral = users.ephemeral.iter();
            let ephemeral = ephemeral.map(|(_, pod)| shared(pod) + size_of::<(Uid, Arc<str>)>());
            shared(pvc) + users.plain.weight() + ephemeral.sum::<usize>()
        });
        let of_any = self.of_any.iter();
        let of_any = of_any.map(|user| shared(&user.name) + size_of::<AnyUser>());
        self.by_name.capacity() * size_of::<(Arc<str>, UsersOfName)>()
            + pvcs.sum::<usize>()
            + of_any.sum::<usize>()
    }

    /// Adds one pod.
    pub fn note(&mut self, pod: &Pod) {
        if !pod.is_bound() {
            return;
        }
        let name = pod.meta.key.name();
        if pod.may_use_any_pvc() {
            self.of_any.push(AnyUser {
                name: name.into(),
                uid: pod.meta.uid.clone(),
                has_ended: has_ended(pod),
                is_shut_down: pod.is_shut_down(),
            });
            return;
        }
        for pvc in &pod.pvcs {
            self.by_name.entry_ref(pvc).or_default().plain.note_pod(pod);
        }
        if pod.is_shut_down() {
            return;
        }
        for pvc in &pod.ephemeral_pvcs {
            let uid = pod.meta.uid.clone();
            let users = self.by_name.entry_ref(pvc).or_default();
            users.ephemeral.push((uid, name.into()));
        }
    }

    /// The pods that use this PVC.
    pub fn users_of(&self, pvc: &ObjectMeta) -> Users {
        let owner = pvc.controller.as_ref().map(|owner| &owner.uid);
        let mut all = Users::default();
        if let Some(users) = self.by_name.get(pvc.key.name()) {
            all = users.plain.clone();
            for (uid, pod) in &users.ephemeral {
                if Some(uid) == owner {
                    all.note(pod);
                }
            }
        }
        for user in &self.of_any {
            if !(user.is_shut_down && Some(&user.uid) == owner) {
                all.note_uncertain(&user.name, user.has_ended);
            }
        }
        all
    }
}

/// The approximate size of the allocation of a shared name.
fn shared(name: &str) -> usize {
    name.len() + 2 * size_of::<usize>()
}

/// Answers [`PodsQuery`]s. A rule of [`row`](crate::row) asks for it; which pods count is decided
/// by [`uses`](crate::uses::uses), as in the [crate's example](crate).
#[derive(Debug)]
pub struct PodsReader {
    executor: Arc<Executor>,
    decoders: Decoders<Pod>,
    pods: Option<Store<Pod>>,
}

impl PodsReader {
    /// Reads pods by `decoders`; `pods` is the informer's store, if there is an informer.
    pub fn new(executor: Arc<Executor>, decoders: Decoders<Pod>, pods: Option<Store<Pod>>) -> Self {
        Self {
            executor,
            decoders,
            pods,
        }
    }

    async fn pods(&self, query: &PodsQuery) -> Result<PodsAnswer, ReadError> {
        let path = Resource::pods().path(Some(&query.0));
        let before = self.pods.as_ref().map(Store::resource_version);
        let before = before.unwrap_or_default();
        if let Some(pods) = &self.pods
            && let Some(pods_answer) = self.by_store(pods, before, &path).await?
        {
            return Ok(pods_answer);
        }
        let mut listed = Listed::at(ResourceVersion::default());
        // Starts from the first page again: the page above is older than the pages that follow.
        let mut pages = Pages::of(PAGE);
        loop {
            let mut page = self.page(&path, &mut pages).await?;
            if pages.is_first() {
                listed = Listed::at(page.resource_version).after(before);
            }
            let token = page.continue_token.take();
            note_all(&mut listed, page)?;
            if !pages.turn(token)? {
                return Ok(PodsAnswer::Listed(Arc::new(listed)));
            }
        }
    }

    /// The answer from one small request: a namespace with at most one pod, or a version that the store reaches.
    async fn by_store(
        &self,
        pods: &Store<Pod>,
        before: ResourceVersion,
        path: &str,
    ) -> Result<Option<PodsAnswer>, ReadError> {
        let first = self.page(path, &mut Pages::of(1)).await?;
        let now = first.resource_version;
        if first.continue_token.is_none() {
            let mut listed = Listed::at(now).after(before);
            note_all(&mut listed, first)?;
            return Ok(Some(PodsAnswer::Listed(Arc::new(listed))));
        }
        let more = first.remaining.unwrap_or(u64::MAX);
        let reached = more >= FEW && pods.reaches_soon(now, before).await;
        Ok(reached.then_some(PodsAnswer::StoreReached(now)))
    }

    async fn page(&self, path: &str, pages: &mut Pages) -> Result<Page<Pod>, ReadError> {
        let accept = self.decoders.accept(Reading::List);
        let request = |pages: &Pages| {
            let request = pages.request(path).accept(accept.clone());
            request.timeout(PAGE_TIMEOUT).body_limit(PAGE_LIMIT)
        };
        let answer = self.executor.page(pages, request).await?;
        Ok(self.decoders.read_page(&answer)?)
    }
}

/// A pod that cannot be decoded may use any PVC, so the list is then not an answer.
fn note_all(listed: &mut Listed, page: Page<Pod>) -> Result<(), ReadError> {
    for pod in page.items {
        listed.note(&pod?);
    }
    Ok(())
}

impl LiveReader<PodsQuery> for PodsReader {
    fn read<'a>(&'a self, query: &'a PodsQuery) -> BoxFuture<'a, Result<PodsAnswer, ReadError>> {
        Box::pin(self.pods(query))
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::informer::BadObject;
    use belayer_core::object::{ObjectKey, OwnerReference};
    use belayer_core::slim::{ANY_PVC, DecodeError};

    use super::*;

    fn meta(name: &str, uid: &str) -> ObjectMeta {
        ObjectMeta::new(
            ObjectKey::new("shop", name),
            Uid::new(uid),
            ResourceVersion::new(1),
        )
    }

    fn pod(name: &str, pvcs: &[&str], ephemeral: &[&str]) -> Pod {
        Pod {
            node_name: Some("node-1".into()),
            pvcs: pvcs.iter().map(|pvc| Arc::from(*pvc)).collect(),
            ephemeral_pvcs: ephemeral.iter().map(|pvc| Arc::from(*pvc)).collect(),
            ..Pod::new(meta(name, name))
        }
    }

    /// A list and the rule itself must agree, whatever the pods are like.
    #[test]
    fn a_list_agrees_with_uses() {
        let mut shut_down = pod("d", &["data"], &["d-scratch"]);
        shut_down.meta.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        shut_down.meta.deletion_grace_period = Some(0);
        let mut shut_down_any = pod("e", &[ANY_PVC], &[]);
        shut_down_any.meta.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        shut_down_any.meta.deletion_grace_period = Some(0);
        let pods = [
            pod("a", &["data"], &[]),
            pod("b", &["other"], &["b-scratch"]),
            Pod {
                node_name: None,
                ..pod("c", &["data"], &["c-scratch"])
            },
            shut_down,
            shut_down_any,
        ];
        let mut listed = Listed::at(ResourceVersion::new(1));
        pods.iter().for_each(|pod| listed.note(pod));
        for name in [
            "data",
            "other",
            "none",
            "b-scratch",
            "c-scratch",
            "d-scratch",
        ] {
            for owner in [None, Some("b"), Some("c"), Some("d"), Some("e")] {
                let mut pvc = meta(name, "claim");
                pvc.controller = owner.map(|owner| {
                    Arc::new(OwnerReference {
                        api_version: "v1".into(),
                        kind: "Pod".into(),
                        name: owner.into(),
                        uid: Uid::new(owner),
                    })
                });
                let mut by_rule = Users::default();
                let users = pods.iter().filter(|pod| crate::uses::uses(pod, &pvc));
                users.for_each(|pod| by_rule.note_pod(pod));
                assert_eq!(listed.users_of(&pvc), by_rule, "{name} of {owner:?}");
            }
        }
    }

    #[test]
    fn t3_a_pod_with_very_many_pvcs_may_use_any() {
        let mut listed = Listed::at(ResourceVersion::new(1));
        listed.note(&pod("a", &[ANY_PVC], &[]));
        assert_eq!(listed.users_of(&meta("data", "claim")).total(), 1);
    }

    #[test]
    fn t3_the_names_in_a_list_are_weighed() {
        let mut listed = Listed::at(ResourceVersion::new(1));
        let empty = listed.weight();
        let long = "x".repeat(200);
        for n in 0..100 {
            let pod_name = format!("{long}-{n}");
            let (pvc, scratch) = (format!("claim-{long}-{n}"), format!("{pod_name}-scratch"));
            listed.note(&pod(&pod_name, &[pvc.as_str()], &[scratch.as_str()]));
        }
        // Each pod's name twice, and two names of PVCs.
        assert!(
            listed.weight() - empty > 100 * 4 * 200,
            "{}",
            listed.weight()
        );
    }

    #[test]
    fn a_pod_that_cannot_be_read_may_use_anything() {
        let bad = BadObject {
            key: Some(ObjectKey::new("shop", "odd")),
            uid: None,
            resource_version: None,
            change: None,
            why: DecodeError::Missing("metadata.uid"),
        };
        let page = Page {
            items: vec![Ok(pod("a", &[], &[])), Err(bad)],
            resource_version: ResourceVersion::new(1),
            continue_token: None,
            remaining: None,
        };
        let mut listed = Listed::at(ResourceVersion::new(1));
        let error = note_all(&mut listed, page).unwrap_err();
        assert!(error.message.contains("shop/odd"), "{error}");
    }
}
