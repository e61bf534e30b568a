//! The input of the decisions: a pod reduced to what the rules need. The rules of
//! [`row`](crate::row) read it.

use std::time::Duration;

use std::sync::Arc;

use belayer_core::events::truncated;
use belayer_core::object::Uid;
use belayer_core::slim::{Phase, Pod};
use belayer_holds::names::{
    POD_RECREATION_HOLD, RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION, RELEASE_ANNOTATION, WIPE_ANNOTATION,
};
use belayer_holds::selection::Selection;

use crate::api::{self, Wipe};
use crate::config::Settings;
use crate::proof::{FirstSeen, MayHaveRun, NeverRan};
use crate::reason::Class;
use crate::record::Record;

/// Requeue delay while a store is not synced.
pub(crate) const UNKNOWN: Duration = Duration::from_secs(5);

/// What the store has under a pod's name. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub enum ObservedPod {
    /// The store is not synced.
    Unknown,
    /// No pod.
    Absent,
    /// This pod.
    Present(Box<PodView>),
}

/// What the rules read of a pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its UID.
    pub uid: Uid,
    /// The node to which it is bound.
    pub node: Option<Arc<str>>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Whether it has the finalizer of pod-recreation.
    pub held: bool,
    /// Whether it is re-created if its node rejects it.
    pub selection: Selection,
    /// The attempt that created it, by its annotations, or by the record that names it if a client has removed them.
    pub origin: Option<Origin>,
    /// Whether its annotation requests its release.
    pub release_requested: bool,
    /// Whether its node must be wiped before it is re-created, by its annotation.
    pub wipe: Wipe,
    /// Whether Belayer has annotated that it is not re-created.
    pub recreation_ended: bool,
    /// Its state.
    pub state: PodState,
}

/// The attempt that created a pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Name of the record.
    pub record: Arc<str>,
    /// UID of the record.
    pub record_uid: Uid,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Whether the pod's annotations name it. Otherwise only the record names the pod.
    pub annotated: bool,
}

impl Origin {
    /// The attempt that created `pod`, if the status of `record` names that pod as a re-created one.
    pub(crate) fn by(record: &Record, pod: &Uid) -> Option<Self> {
        (record.names(pod) && record.first_uid != pod.as_str()).then(|| Self {
            record: record.meta.key.name().into(),
            record_uid: record.meta.uid.clone(),
            attempt: record.status.attempts,
            annotated: false,
        })
    }
}

/// The state of a pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodState {
    /// Neither started nor ended.
    Pending,
    /// A container of it has started; it may have ended since.
    Started,
    /// Failed with a reason, and no container is known to have started.
    Rejected(Rejection),
    /// Ended in any other way.
    Ended,
}

/// The rejection of a pod. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`.
    pub reason: Arc<str>,
    /// `status.message`.
    pub message: Option<Arc<str>>,
    /// The class of the reason.
    pub class: Class,
    /// The proof that no container of it ran, or why there is none.
    pub never_ran: Result<NeverRan, MayHaveRun>,
}

impl Rejection {
    /// Whether the pod may be re-created: by its reason, and because no container of it ever ran.
    pub fn is_recreated(&self) -> bool {
        self.class.is_recreated() && self.never_ran.is_ok()
    }

    /// Whether it shows that a container started. Only that refutes a rejection that a record has.
    pub fn shows_start(&self) -> bool {
        self.never_ran.is_err_and(MayHaveRun::is_start)
    }

    /// Why the pod is not re-created, as text.
    pub fn objection(&self) -> String {
        match self.never_ran {
            Err(why) if self.class.is_recreated() => format!("{}: {why}", self.reason),
            _ => format!(
                "{}: pods rejected for a reason of class {} are not re-created",
                self.reason,
                self.class.as_str()
            ),
        }
    }
}

impl PodView {
    /// What the rules read of `pod`, without what the store has of its earlier versions.
    pub fn of(pod: &Pod, settings: &Settings, first_seen: FirstSeen) -> Self {
        let annotation = |name: &str| pod.meta.annotations.get(name);
        Self {
            uid: pod.meta.uid.clone(),
            node: pod.node_name.clone(),
            deleting: pod.meta.is_deleting(),
            held: pod.meta.has_finalizer(POD_RECREATION_HOLD),
            selection: if settings.eligibility.selects(pod) {
                Selection::Yes
            } else {
                Selection::No
            },
            origin: origin(pod),
            release_requested: annotation(RELEASE_ANNOTATION) == Some("true"),
            wipe: match annotation(WIPE_ANNOTATION) {
                Some("true") => Wipe::Required,
                _ => Wipe::None,
            },
            recreation_ended: annotation(RECREATION_ENDED_ANNOTATION)
                .is_some_and(|text| is_about(text, &pod.meta.uid)),
            state: state(pod, settings, first_seen),
        }
    }

    /// Whether it is re-created if its node rejects it.
    pub fn is_selected(&self) -> bool {
        self.selection == Selection::Yes
    }

    /// Its rejection, if it may be re-created.
    pub fn recreatable(&self) -> Option<&Rejection> {
        match &self.state {
            PodState::Rejected(rejection) if rejection.is_recreated() => Some(rejection),
            _ => None,
        }
    }

    /// Its rejection, which was proven and which a record has, if nothing refutes it.
    pub fn recorded_rejection(&self) -> Option<&Rejection> {
        match &self.state {
            PodState::Rejected(rejection) if !rejection.shows_start() => Some(rejection),
            _ => None,
        }
    }

    /// Whether its present state shows that a container of it started.
    pub fn ran(&self) -> bool {
        match &self.state {
            PodState::Started => true,
            PodState::Rejected(rejection) => rejection.shows_start(),
            PodState::Pending | PodState::Ended => false,
        }
    }

    /// Whether Belayer creates a record for it.
    pub fn is_candidate(&self) -> bool {
        self.recreatable().is_some()
            && self.origin.is_none()
            && self.is_selected()
            && self.held
            && !self.deleting
            && !self.recreation_ended
            && !self.release_requested
    }
}

/// The annotations that the rules read.
pub const ANNOTATIONS: &[&str] = &[
    belayer_holds::names::RECREATE_ANNOTATION,
    belayer_holds::names::MIRROR_ANNOTATION,
    RECREATION_ENDED_ANNOTATION,
    RELEASE_ANNOTATION,
    WIPE_ANNOTATION,
];

/// The annotations of a pod that an attempt created. They count only if Belayer created the pod: manifests and backups
/// contain them, too.
pub const ORIGIN_ANNOTATIONS: &[&str] = &[
    RECREATION_ANNOTATION,
    RECREATION_UID_ANNOTATION,
    RECREATION_ATTEMPT_ANNOTATION,
];

/// The value of [`RECREATION_ENDED_ANNOTATION`] of a pod. It names the pod, because exported manifests and backups carry it
/// to others.
pub(crate) fn end_annotation(pod: &Uid, why: &str) -> String {
    truncated(&format!("pod {pod}: {why}")).into_owned()
}

/// Whether such a value ends the re-creation of this pod. Without a UID it does, too: a user wrote it, or an earlier version.
fn is_about(text: &str, pod: &Uid) -> bool {
    let named = text
        .strip_prefix("pod ")
        .and_then(|rest| rest.split_once(": "));
    named.is_none_or(|(uid, _)| uid == pod.as_str() || uid.contains(' '))
}

/// The attempt that created a pod, by its annotations. Users edit them: invalid annotations, and
/// those whose record belongs to another pod name, are ignored. The rules of [`row`](crate::row)
/// read it.
pub fn origin(pod: &Pod) -> Option<Origin> {
    let annotations = &pod.meta.annotations;
    let record = annotations.get(RECREATION_ANNOTATION)?;
    if !api::is_name_for(record, pod.meta.key.name()) {
        return None;
    }
    Some(Origin {
        record: record.into(),
        record_uid: Uid::new(annotations.get(RECREATION_UID_ANNOTATION)?),
        attempt: annotations
            .get(RECREATION_ATTEMPT_ANNOTATION)?
            .parse()
            .ok()?,
        annotated: true,
    })
}

fn state(pod: &Pod, settings: &Settings, first_seen: FirstSeen) -> PodState {
    if pod.started || matches!(pod.phase, Phase::Running | Phase::Succeeded) {
        return PodState::Started;
    }
    if pod.phase != Phase::Failed {
        return PodState::Pending;
    }
    let Some(reason) = &pod.reason else {
        return PodState::Ended;
    };
    let message = pod.message().map_or("", |message| &**message);
    PodState::Rejected(Rejection {
        reason: Arc::clone(reason),
        message: pod.message().cloned(),
        class: settings.classes.of(reason, message),
        never_ran: NeverRan::prove(pod, first_seen),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_this_pod("pod u-1: it was rejected 4 times", true)]
    #[case::of_another_pod("pod u-2: it was rejected 4 times", false)]
    #[case::of_a_user("never again", true)]
    #[case::of_a_user_about_pods("pod of the canary: never again", true)]
    #[case::empty("", true)]
    fn the_annotation_that_ends_a_re_creation_is_about_a_pod(
        #[case] text: &str,
        #[case] ends: bool,
    ) {
        assert_eq!(is_about(text, &Uid::new("u-1")), ends);
    }
}
