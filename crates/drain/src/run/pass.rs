//! One pass: lists every object of every kind and handles each one that has a hold.

use std::collections::BTreeSet;

use futures::StreamExt as _;

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, OwnerMeta};
use belayer_holds::names::{
    POD_RECREATION_HOLD, RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_UID_ANNOTATION,
};
use belayer_inspect::reader::{Reader, explain};
use belayer_pod_recreation::api;

use super::Drain;
use crate::decide::Purpose;
use crate::findings::Findings;
use crate::holds::{is_pod, is_pvc};
use crate::passes::Pass;
use crate::progress::Progress;
use crate::records::UncreatedPod;
use crate::release::Releaser;
use crate::report::{Report, Unseen};
use crate::scan::{Found, Scanned, decoders, each, scan};

/// Concurrent releases; the executor limits them as well.
const PARALLEL: usize = 64;

impl Drain {
    pub(super) async fn pass(
        &self,
        kinds: &[Resource],
        pass: &mut Pass,
        found: &mut Findings,
        report: &mut Report,
        progress: &dyn Progress,
    ) {
        let marks = Keep::nothing().annotations([
            RECREATION_ANNOTATION,
            RECREATION_UID_ANNOTATION,
            RECREATION_ATTEMPT_ANNOTATION,
        ]);
        let decoders = decoders(self.parts.selection.keep().and(&marks));
        let scanned = scan(&self.site.reader, &decoders, kinds, progress).await;
        let Scanned {
            found: mut objects,
            hidden,
            unseen,
            objects: count,
            handed_over,
            kubernetes_finalizers,
        } = scanned;
        // After the objects: an object of a namespace that was created anew since then has another UID.
        let ignored = self.ignored_namespaces(found).await;
        report.objects = count;
        report.handed_over = handed_over;
        report.kubernetes_finalizers = kubernetes_finalizers;
        found.note_unlisted(hidden, unseen);
        objects.sort_by_key(order);
        progress.found(objects.len());
        pass.found = objects.len();
        let releaser = Releaser {
            executor: &self.site.executor,
            reader: &self.site.reader,
            decoders: &decoders,
            users: &self.users,
            records: &self.records,
            selection: &*self.parts.selection,
            ignored: &ignored,
            purpose: &self.parts.purpose,
        };
        let mut done = futures::stream::iter(objects)
            .map(|object| {
                let releaser = &releaser;
                async move {
                    let named = (object.kind.clone(), object.meta.clone());
                    (named, releaser.release(object).await)
                }
            })
            .buffer_unordered(PARALLEL);
        while let Some(((kind, meta), result)) = done.next().await {
            found.note((&kind, &meta), result, pass, report);
            progress.handled();
        }
        // After the pods, so that their records name them by now.
        match self.uncreated().await {
            Ok(uncreated) => found.note_uncreated(uncreated, pass, report),
            Err(error) => {
                let failed = Scanned::failed(&api::resource(), &error);
                found.note_unlisted(failed.hidden, failed.unseen);
            }
        }
        found.close(pass);
    }

    /// Pods that exist only in their records, if the purpose includes pod-recreation.
    async fn uncreated(&self) -> Result<Vec<UncreatedPod>, RequestError> {
        let mut uncreated = match &self.parts.purpose {
            Purpose::Everything(_) => self.records.uncreated().await?,
            Purpose::SwitchedOff(_, holds) if holds.contains(&POD_RECREATION_HOLD) => {
                self.records.uncreated().await?
            }
            Purpose::SwitchedOff(..) | Purpose::Unselected(_) => Vec::new(),
        };
        // No Belayer processes the records, or the run does not wait.
        if !matches!(self.parts.purpose, Purpose::Everything(_)) || self.site.is_dry_run() {
            uncreated.iter_mut().for_each(|one| one.in_progress = false);
        }
        Ok(uncreated)
    }

    /// Namespaces that Belayer ignores; read only if the purpose depends on selection.
    async fn ignored_namespaces(&self, found: &mut Findings) -> BTreeSet<String> {
        if !matches!(self.parts.purpose, Purpose::Unselected(_)) {
            return BTreeSet::new();
        }
        let namespaces = Resource::namespaces();
        let keep = Keep::nothing().labels([belayer_holds::names::IGNORE_LABEL]);
        match ignored(&self.site.reader, &namespaces, keep).await {
            Ok(ignored) => ignored,
            Err(error) => {
                found.unseen.push(Unseen {
                    what: namespaces.to_string(),
                    why: explain(&error),
                    unauthenticated: error.class() == ErrorClass::Unauthorized,
                });
                BTreeSet::new()
            }
        }
    }
}

/// Pods first, because their owners may wait for them; PVCs last, because pods may use them.
fn order(found: &Found) -> (u8, Resource, String) {
    let rank = match &found.kind {
        kind if is_pod(kind) => 0,
        kind if is_pvc(kind) => 2,
        _ => 1,
    };
    (rank, found.kind.clone(), found.meta.key.to_string())
}

async fn ignored(
    reader: &Reader,
    namespaces: &Resource,
    keep: Keep,
) -> Result<BTreeSet<String>, RequestError> {
    let decoders = decoders(keep);
    let mut ignored = BTreeSet::new();
    each(reader, &decoders, namespaces, |OwnerMeta { meta }| {
        if belayer_holds::namespace::is_ignored(&meta.labels) {
            ignored.insert(meta.key.name().to_owned());
        }
    })
    .await?;
    Ok(ignored)
}
