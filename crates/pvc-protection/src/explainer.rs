//! `belayer explain` for a PVC, by pvc-protection.

use std::sync::Arc;

use crate::component::{self, Parts, PvcProtection, UsersOf, UsersView};
use crate::config::Mode;
use crate::decide::PvcDecision;
use crate::owner::COMPLETED_LABEL;
use crate::pods_query::{PodsAnswer, PodsQuery, PodsReader};
use crate::row;
use crate::snapshot::{CachedUsers, Hold};
use belayer_controller::explain::{Live, LiveQueries, explained};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{Keep, ObjectMeta, Pvc};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::view::Answers as _;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer};
use belayer_inspect::reader::Reader;

impl UsersView for Live {
    type Pods = LiveQueries<PodsQuery>;
}

/// The pods of the namespace are listed once: that list is the index, and the live read beside it.
impl UsersOf for LiveQueries<PodsQuery> {
    fn users_of(&self, pvc: &ObjectMeta) -> CachedUsers {
        let pods_answer = self.get(&PodsQuery::new(pvc.key.shared_namespace().clone()));
        match pods_answer.as_ref().map(|pods_answer| pods_answer.answer()) {
            Some(PodsAnswer::Listed(listed)) => CachedUsers::Known {
                users: listed.users_of(pvc),
                as_of: listed.version().unwrap_or_default(),
            },
            Some(PodsAnswer::StoreReached(_)) | None => CachedUsers::Unknown,
        }
    }
}

/// Explains PVCs by the same decision that the controller makes.
pub(crate) fn explainer(mode: Mode) -> Explainer {
    let kinds = vec![Resource::pvcs()];
    Explainer::new(component::NAME, mode.finalizers(), kinds, mode, explain)
}

/// For rule 3: rule 6 applies once the pods have ended.
const OF_WORKFLOW: &str = "Belayer releases it once the workflow has finished and the last of these pods has ended, or the \
                           last of them is deleted";

async fn explain(
    mode: Arc<Mode>,
    _: Resource,
    key: ObjectKey,
    reader: Reader,
) -> Result<Explained, ExplainError> {
    let mode = *mode;
    let live = Live::new(&reader);
    let pvcs = live.store::<Pvc>(Resource::pvcs(), Keep::nothing());
    let pvc = pvcs.subject(&key).await?;
    let pods = PodsReader::new(live.executor(), live.decoders(Keep::nothing()), None);
    let pods = live.queries(pods);
    let keep = Keep::nothing().labels([COMPLETED_LABEL]);
    let parts = Parts {
        pvcs,
        pods: pods.clone(),
        pods_queries: pods,
        owners: live.owners(keep),
        queue: WorkQueue::new(component::NAME),
    };
    let protection = PvcProtection::<Live>::new(mode, parts);
    let (snapshot, decision) = live.decide(&protection, &pvc).await?;
    let hold = snapshot.pvc.as_ref().map(|pvc| pvc.hold);
    let held = hold.is_some_and(Hold::keeps);
    let is_of_workflow = snapshot.pvc.is_some_and(|pvc| pvc.owner.is_some());
    let explained = explained(&protection, held, &decision, |action| {
        let is_keep = matches!(action, Action::Keep);
        let text = if is_keep && decision.row == row::IN_USE && is_of_workflow {
            OF_WORKFLOW
        } else {
            waits(mode, action, &decision)
        };
        text.to_owned()
    });
    Ok(match explained.action {
        // Its deletion waits, but not for Belayer.
        Action::Keep if !held => Explained {
            action: Action::Nothing,
            ..explained
        },
        _ => explained,
    })
}

fn waits(mode: Mode, action: Action, decision: &PvcDecision) -> &'static str {
    let row = decision.row;
    match action {
        Action::Keep if row == row::ADVISE => {
            "Kubernetes removes its finalizer when the last of these pods is deleted; Belayer only reports"
        }
        Action::Keep if row == row::LEFT_OVER => {
            "Belayer removes its finalizer once no pod uses it, or Kubernetes protects it"
        }
        Action::Keep if row == row::OWNER_FINISHED => {
            "Belayer releases it once the workflow has finished, or the last of these pods is deleted"
        }
        Action::Keep if !mode.adds_holds() && decision.missing.is_empty() => {
            "Belayer removes the finalizer: pvc-protection only reports"
        }
        Action::Nothing if !mode.adds_holds() => {
            "nothing: pvc-protection only reports, and adds no finalizer"
        }
        Action::Keep if decision.missing.is_empty() => "nothing, until it is deleted",
        Action::Keep => "Belayer releases it as soon as the last of these pods is deleted",
        _ => "nothing: Belayer adds no finalizer to a PVC that is being deleted",
    }
}
