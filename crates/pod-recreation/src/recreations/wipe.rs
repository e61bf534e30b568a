//! Requests the wipe of a node: adds an entry to its `NodeWipe`, after live reads of the node and of the pod.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use belayer_core::clock;
use belayer_core::http::{
    ErrorClass, METADATA_ONLY, METADATA_ONLY_LIST, Pages, PatchKind, Request, RequestError,
};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::workqueue::Backoff;
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::node_wipe::{self, Entry};
use belayer_holds::runner::Stepped;
use belayer_inspect::reader::Page;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::requests::{CreateMode, looked_up};
use super::{Execution, SOON};
use crate::api::Wipe;
use crate::component::pod_key;
use crate::decide::{REFUSED, StatusWrite, WITHDRAWN, node_gone_status, refused_status};
use crate::record::Record;
use crate::snapshot::PodView;

/// Page size of a list of the node's pods.
const PAGE: u32 = 500;

/// Most entries of one namespace in the list of a node: a quarter, so that no user fills it (rule T8).
const MAX_PER_NAMESPACE: usize = node_wipe::MAX_WIPES / 4;

/// Why a wipe is not to be requested: reason and message of the condition `StateWiped`.
type Objection = (&'static str, &'static str);

/// The record names a UID that its pod never had: only a client that writes records can cause that (rule T1). The
/// message does not name the pod that has the UID.
const NOT_ITS_POD: Objection = (REFUSED, "the record's pod never had this UID");

/// The pod is on another node.
const NOT_HERE: Objection = (REFUSED, "the pod is not on this node");

/// The pod may have run, so its files may be needed (invariant RAN-ONCE).
const MAY_HAVE_RUN: Objection = (REFUSED, "the pod may have run");

/// The pod has no wipe annotation.
const NOT_ASKED: Objection = (
    WITHDRAWN,
    "the pod does not request a wipe: it has no annotation belayer.dev/wipe=true",
);

/// Delay before the next check whether another record has written the entry. Usually the event of the list is first.
const NEXT_TURN: Duration = Duration::from_secs(1);

/// What has become of the request of a wipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// The list has the entry. The cache shows it soon.
    Listed,
    /// Another record writes the entry with its own. Whether the API server accepts it is not known yet.
    ByAnotherRecord,
    /// The API server does not serve the kind, or the namespace has its share of the list.
    Refused,
    /// No entry is needed, or none may be written. The status of the record says so.
    Recorded(Stepped),
}

impl From<Requested> for Stepped {
    fn from(requested: Requested) -> Self {
        match requested {
            Requested::Listed => Self::Later(SOON),
            Requested::ByAnotherRecord => Self::Later(NEXT_TURN),
            Requested::Refused => Self::Retry(Backoff::DENIED),
            Requested::Recorded(stepped) => stepped,
        }
    }
}

/// The entries that wait for the write to the list of each node. The API server repeats patches of one object that meet, at
/// a growing cost, so one record at a time writes to a list: the entries of all that wait.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Entries>>);

type Entries = BTreeMap<String, Entry>;

impl Lists {
    /// How many entries of a namespace wait for the write to the list of a node.
    fn waiting(&self, node: &str, namespace: &str) -> usize {
        let all = self.0.lock();
        let waiting = all.get(node).into_iter().flat_map(BTreeMap::values);
        waiting.filter(|entry| entry.namespace == namespace).count()
    }
}

/// The right to write to the list of a node.
struct Turn<'a> {
    lists: &'a Lists,
    node: &'a str,
    is_over: bool,
}

impl<'a> Turn<'a> {
    /// Adds an entry to those that wait. `None` while another record writes: it writes this entry next, or drops it if its
    /// own write fails.
    fn take(lists: &'a Lists, node: &'a str, pod: &Uid, entry: Entry) -> Option<Self> {
        let mut all = lists.0.lock();
        let is_free = !all.contains_key(node);
        all.entry(node.to_owned())
            .or_default()
            .insert(pod.to_string(), entry);
        is_free.then(|| Self {
            lists,
            node,
            is_over: false,
        })
    }

    /// The entries that wait. If there are none, the turn ends.
    fn next(&mut self) -> Option<Entries> {
        let mut all = self.lists.0.lock();
        let waiting = all.get_mut(self.node)?;
        if waiting.is_empty() {
            all.remove(self.node);
            self.is_over = true;
            return None;
        }
        Some(std::mem::take(waiting))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // After its end it may be another one's.
        if !self.is_over {
            self.lists.0.lock().remove(self.node);
        }
    }
}

/// A pod in a list of which only the metadata is read.
#[derive(Debug, Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Debug, Deserialize)]
struct ItemMeta {
    uid: String,
}

/// Why the directories of a rejected pod on this node are not to be removed; `None` if they are.
fn objection_to(pod: &PodView, node: &str) -> Option<Objection> {
    if pod.node.as_deref() != Some(node) {
        Some(NOT_HERE)
    } else if pod.wipe != Wipe::Required {
        Some(NOT_ASKED)
    } else if pod.recorded_rejection().is_none() {
        Some(MAY_HAVE_RUN)
    } else {
        None
    }
}

impl Execution<'_> {
    /// Step 3. The pod is identified by its UID, never by its name: it is the record's own, on this node and rejected by
    /// its own status, or no pod of this node has that UID any more (rule T1).
    pub(super) async fn request_wipe(
        &self,
        record: &Record,
        node: &str,
        pod: &Uid,
    ) -> Result<Requested, RequestError> {
        let Some(node_uid) = self.uid_of_node(node).await? else {
            let next = node_gone_status(record, clock::now());
            let written = self.write(record, &StatusWrite::of(next)).await;
            return written.map(Requested::Recorded);
        };
        if let Some(because) = self.objection(record, node, pod).await? {
            let (_, why) = because;
            tracing::warn!(record = %record.meta.key, node, uid = %pod, "not requesting the wipe of the node: {why}");
            let next = refused_status(record, because, clock::now());
            let written = self.write(record, &StatusWrite::of(next)).await;
            return written.map(Requested::Recorded);
        }
        self.add_entry(record, (node, &node_uid), pod).await
    }

    /// The UID of a node; `None` if it does not exist.
    pub(super) async fn uid_of_node(&self, node: &str) -> Result<Option<Value>, RequestError> {
        let (nodes, key) = (Resource::nodes(), ObjectKey::cluster(node));
        let executor = &self.context.executor;
        let found = executor.find(&nodes, &key, METADATA_ONLY).await?;
        let read: Option<Value> = found.map(|answer| answer.json()).transpose()?;
        Ok(read.map(|node| node["metadata"]["uid"].clone()))
    }

    /// Why the directories of the pod are not to be removed; `None` if they are.
    async fn objection(
        &self,
        record: &Record,
        node: &str,
        pod: &Uid,
    ) -> Result<Option<Objection>, RequestError> {
        let named = self.read_pod(&pod_key(record)).await?;
        let Some((_, view)) = named.filter(|(_, view)| view.uid == *pod) else {
            let is_there = self.is_on_node(node, pod).await?;
            return Ok(is_there.then_some(NOT_ITS_POD));
        };
        Ok(objection_to(&view, node))
    }

    /// Whether a pod with this UID is bound to the node, under any name. Only metadata is read: pods may be large.
    async fn is_on_node(&self, node: &str, uid: &Uid) -> Result<bool, RequestError> {
        let path = self.it.pods.path(None);
        let mut pages = Pages::of(PAGE);
        loop {
            let request = |pages: &Pages| {
                let request = pages.request(&path).accept(METADATA_ONLY_LIST);
                request.query("fieldSelector", format!("spec.nodeName={node}"))
            };
            let answer = self.context.executor.page(&mut pages, request).await?;
            let page: Page<Item> = Page::read(&answer)?;
            let mut pods = page.items.iter().flatten();
            if pods.any(|pod| pod.metadata.uid == uid.as_str()) {
                return Ok(true);
            }
            if !pages.turn(page.metadata.continue_token)? {
                return Ok(false);
            }
        }
    }

    /// Whether the namespace has its share of the node's list, by the store and with the entries that wait.
    fn has_its_share(&self, node: &str, namespace: &str) -> bool {
        let wipes = &self.it.parts.component.parts.wipes;
        let list = wipes.lookup(&ObjectKey::cluster(node)).found();
        let stored = list.map_or(0, |list| {
            let of_namespace = |wipe: &&node_wipe::Wipe| wipe.pod.namespace() == Some(namespace);
            list.wipes.values().filter(of_namespace).count()
        });
        stored + self.it.lists.waiting(node, namespace) >= MAX_PER_NAMESPACE
    }

    /// Adds the entry of a record, with those of other records that wait.
    async fn add_entry(
        &self,
        record: &Record,
        (node, node_uid): (&str, &Value),
        pod: &Uid,
    ) -> Result<Requested, RequestError> {
        let key = pod_key(record);
        let namespace = key.namespace().unwrap_or_default();
        if self.has_its_share(node, namespace) {
            tracing::warn!(record = %record.meta.key, node, "not requesting the wipe of the node: {MAX_PER_NAMESPACE} pods of the namespace wait for one");
            return Ok(Requested::Refused);
        }
        let entry = Entry {
            namespace: namespace.to_owned(),
            pod_name: key.name().to_owned(),
            record: record.meta.key.name().to_owned(),
            requested_at: clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        };
        let Some(mut turn) = Turn::take(&self.it.lists, node, pod, entry) else {
            return Ok(Requested::ByAnotherRecord);
        };
        while let Some(entries) = turn.next() {
            if !self.write_entries((node, node_uid), &entries).await? {
                return Ok(Requested::Refused);
            }
        }
        Ok(Requested::Listed)
    }

    /// A merge patch of these keys, which conflicts with no other entry. The owner is the node: the garbage collector
    /// deletes the list with it. `false` if the API server does not serve the kind.
    async fn write_entries(
        &self,
        (node, node_uid): (&str, &Value),
        entries: &Entries,
    ) -> Result<bool, RequestError> {
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid }]);
        let mut object = json!({
            "metadata": { "ownerReferences": owner },
            "spec": { "wipes": entries },
        });
        let wipes = node_wipe::resource();
        let name = ObjectKey::cluster(node);
        let request = Request::patch(
            wipes.object_path(&name),
            PatchKind::Merge,
            object.to_string(),
        )
        .query("fieldManager", FIELD_MANAGER);
        match self.send(&request).await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_gone(&wipes, &name) => {}
            Err(error) => return Err(error),
        }
        object["apiVersion"] = wipes.api_version().into();
        object["kind"] = node_wipe::KIND.into();
        object["metadata"]["name"] = node.into();
        let created = self
            .create(&wipes, &name, &object, CreateMode::Persisted)
            .await;
        match looked_up(created, (&wipes, &name)) {
            Ok(_) => Ok(true),
            // Its CRD is missing: the record continues without the wipe.
            Err(error) if error.class() == ErrorClass::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::decide::tests::case;
    use crate::proof::MayHaveRun;
    use crate::reason::Class;

    /// T1. The store may be behind a live read, and then has no proof for the pod: that is no objection, because the
    /// record has the rejection.
    #[rstest]
    #[case::rejected(Class::Race, case::never_ran(), None)]
    #[case::for_a_permanent_reason(Class::Permanent, case::never_ran(), None)]
    #[case::the_store_is_behind(Class::Race, Err(MayHaveRun::NotHeld), None)]
    #[case::it_has_started(Class::Race, Err(MayHaveRun::SeenStarted), Some(MAY_HAVE_RUN))]
    fn t1_only_a_start_forbids_the_wipe_of_a_recorded_rejection(
        #[case] class: Class,
        #[case] never_ran: Result<crate::proof::NeverRan, MayHaveRun>,
        #[case] expected: Option<Objection>,
    ) {
        let pod = PodView {
            wipe: Wipe::Required,
            ..case::with(class, never_ran, case::pod("u-1"))
        };
        assert_eq!(objection_to(&pod, "node-1"), expected);
        assert_eq!(objection_to(&pod, "node-2"), Some(NOT_HERE));
        let not_asked = PodView {
            wipe: Wipe::None,
            ..pod
        };
        assert_eq!(objection_to(&not_asked, "node-1"), Some(NOT_ASKED));
    }

    #[test]
    fn a_page_of_metadata_is_read() {
        let page =
            r#"{ "metadata": { "continue": "t" }, "items": [{ "metadata": { "uid": "u-1" } }] }"#;
        let page: Page<Item> = serde_json::from_str(page).unwrap();
        assert_eq!(page.items.unwrap()[0].metadata.uid, "u-1");
        assert_eq!(page.metadata.continue_token.as_deref(), Some("t"));
    }

    #[test]
    fn t1_an_answer_without_items_is_no_empty_list() {
        let page: Page<Item> = serde_json::from_str(r#"{ "items": null }"#).unwrap();
        assert!(page.items.is_none());
        assert!(serde_json::from_str::<Page<Item>>(r#"{ "metadata": {} }"#).is_err());
    }

    /// The entries that arrive during a write are written together by the next one.
    #[test]
    fn one_record_at_a_time_writes_the_entries_of_all_that_wait() {
        let lists = Lists::default();
        let take = |node, pod| Turn::take(&lists, node, &Uid::new(pod), Entry::default());
        let mut first = take("node-1", "u-1").unwrap();
        let mut next = || {
            let entries = first.next()?;
            Some(entries.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(next().unwrap(), ["u-1"]);
        assert!(take("node-1", "u-2").is_none());
        assert!(take("node-1", "u-3").is_none());
        assert!(take("node-2", "u-4").is_some());
        assert_eq!(lists.waiting("node-1", ""), 2);
        assert_eq!(next().unwrap(), ["u-2", "u-3"]);
        assert_eq!(next(), None);
        let _second = take("node-1", "u-5").unwrap();
        drop(first);
        assert!(take("node-1", "u-6").is_none());
    }

    /// The records whose entries were dropped try again.
    #[test]
    fn a_failed_write_ends_the_turn() {
        let lists = Lists::default();
        let take = |pod| Turn::take(&lists, "node-1", &Uid::new(pod), Entry::default());
        let first = take("u-1").unwrap();
        assert!(take("u-2").is_none());
        drop(first);
        let entries = take("u-3").unwrap().next().unwrap();
        assert_eq!(entries.into_keys().collect::<Vec<_>>(), ["u-3"]);
    }
}
