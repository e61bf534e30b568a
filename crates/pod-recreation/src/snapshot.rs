//! What decisions read: a pod in the words of this component.

use std::sync::Arc;

use belayer_core::object::Uid;
use belayer_core::slim::{Phase, Pod};
use belayer_holds::names::{
    POD_RECREATION_HOLD, RECREATION_ANNOTATION, RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION, RELEASE_ANNOTATION, WIPE_ANNOTATION,
};

use crate::api;
use crate::config::Settings;
use crate::proof::{FirstSight, MayHaveRun, NeverRan};
use crate::reason::Class;

/// A pod under a record's name.
#[derive(Debug, Clone)]
pub enum Sight {
    /// The store cannot say.
    Unknown,
    /// There is none, as of the store.
    Absent,
    /// There is one.
    Present(Box<PodView>),
}

/// A pod, as far as this component cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Identity.
    pub uid: Uid,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// UID of its controller.
    pub owner: Option<Uid>,
    /// Whether deletion was asked for.
    pub deletion: Deletion,
    /// Whether our hold is on it.
    pub hold: Hold,
    /// Whether it is to be re-created if rejected.
    pub selection: Selection,
    /// Which attempt of which record it is.
    pub mark: Option<Mark>,
    /// What its annotations ask for.
    pub asks: Asks,
    /// How far it has come.
    pub state: PodState,
}

/// Whether deletion was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It was.
    Asked,
    /// It was not.
    No,
}

/// Whether our hold is on a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Whether a pod is to be re-created if rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// It is.
    Eligible,
    /// It is not.
    No,
}

/// What annotations on a pod ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    /// The admin: let it go.
    pub release: Asked,
    /// The user: wipe its node before it is re-created.
    pub wipe: Asked,
    /// We, earlier: do not re-create it (any more).
    pub leave: Asked,
}

/// Whether something was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asked {
    /// It was.
    Yes,
    /// It was not.
    #[default]
    No,
}

impl Asked {
    pub(crate) fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// What a re-created pod says of its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Name of the record.
    pub record: Arc<str>,
    /// UID of the record.
    pub record_uid: Uid,
    /// Which attempt.
    pub attempt: u32,
}

/// How far a pod has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodState {
    /// Not started, not ended.
    Pending,
    /// A container of it has started, whatever came of it.
    Started,
    /// Failed with a reason, without a container known to have started.
    Rejected(Rejection),
    /// Ended in any other way.
    Ended,
}

/// A pod that failed with a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`.
    pub reason: Arc<str>,
    /// `status.message`.
    pub message: Option<Arc<str>>,
    /// What the reason means.
    pub class: Class,
    /// Whether it is proven that nothing of it ran.
    pub never_ran: Result<NeverRan, MayHaveRun>,
}

impl Rejection {
    /// Whether it may be re-created: the reason says so and nothing of it ever ran.
    pub fn is_recreated(&self) -> bool {
        self.class.is_recreated() && self.never_ran.is_ok()
    }

    /// Why not, in words.
    pub fn objection(&self) -> String {
        match self.never_ran {
            Err(why) if self.class.is_recreated() => format!("{}: {why}", self.reason),
            _ => format!(
                "{}: a reason of class {} is not worth another try",
                self.reason,
                self.class.as_str()
            ),
        }
    }
}

impl PodView {
    /// What `pod` is to this component.
    pub fn of(pod: &Pod, settings: &Settings, sight: FirstSight) -> Self {
        let annotation = |name: &str| pod.meta.annotations.get(name);
        let said = |name: &str| Asked::from(annotation(name) == Some("true"));
        Self {
            uid: pod.meta.uid.clone(),
            node: pod.node_name.clone(),
            owner: pod.meta.controller.as_ref().map(|owner| owner.uid.clone()),
            deletion: if pod.meta.is_deleting() {
                Deletion::Asked
            } else {
                Deletion::No
            },
            hold: if pod.meta.has_finalizer(POD_RECREATION_HOLD) {
                Hold::On
            } else {
                Hold::Off
            },
            selection: if settings.eligibility.selects(pod) {
                Selection::Eligible
            } else {
                Selection::No
            },
            mark: mark(pod),
            asks: Asks {
                release: said(RELEASE_ANNOTATION),
                wipe: said(WIPE_ANNOTATION),
                leave: Asked::from(annotation(RECREATION_ENDED_ANNOTATION).is_some()),
            },
            state: state(pod, settings, sight),
        }
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion == Deletion::Asked
    }

    /// Its rejection, if it may be re-created.
    pub fn recreatable(&self) -> Option<&Rejection> {
        match &self.state {
            PodState::Rejected(rejection) if rejection.is_recreated() => Some(rejection),
            _ => None,
        }
    }

    /// Whether a record is to be made for it.
    pub fn is_candidate(&self) -> bool {
        self.recreatable().is_some()
            && self.mark.is_none()
            && self.selection == Selection::Eligible
            && self.hold == Hold::On
            && !self.is_deleting()
            && self.asks.leave == Asked::No
            && self.asks.release == Asked::No
    }
}

/// The annotations that we read.
pub const ANNOTATIONS: &[&str] = &[
    belayer_holds::names::RECREATE_ANNOTATION,
    belayer_holds::names::MIRROR_ANNOTATION,
    RECREATION_ANNOTATION,
    RECREATION_UID_ANNOTATION,
    RECREATION_ATTEMPT_ANNOTATION,
    RECREATION_ENDED_ANNOTATION,
    RELEASE_ANNOTATION,
    WIPE_ANNOTATION,
];

/// Which attempt of which record a pod says it is. Annotations travel: what a copy under another name
/// says, or what its user wrote there, is no mark.
pub fn mark(pod: &Pod) -> Option<Mark> {
    let annotations = &pod.meta.annotations;
    let record = annotations.get(RECREATION_ANNOTATION)?;
    if !api::is_name_for(record, pod.meta.key.name()) {
        return None;
    }
    Some(Mark {
        record: record.into(),
        record_uid: Uid::new(annotations.get(RECREATION_UID_ANNOTATION)?),
        attempt: annotations
            .get(RECREATION_ATTEMPT_ANNOTATION)?
            .parse()
            .ok()?,
    })
}

fn state(pod: &Pod, settings: &Settings, sight: FirstSight) -> PodState {
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
        never_ran: NeverRan::prove(pod, sight),
    })
}
