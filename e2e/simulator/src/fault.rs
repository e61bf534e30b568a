//! The kinds of faults between Belayer and the API server.

use std::time::Duration;

use belayer_checker::BELAYER;
use belayer_sandbox::{Answer, Fault, Match, Verb, WatchEnd};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::objects::AGENT;
use crate::replica::{ELECTION, instance};

/// What the controllers watch.
pub(crate) const WATCHED: [&str; 5] = [
    "pods",
    "workflows",
    "persistentvolumeclaims",
    "podrecreations",
    "namespaces",
];

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// A patch is answered with 409.
    Conflict,
    /// A write is carried out, and its answer is lost.
    LostAnswer,
    /// A request never reaches the server.
    LostRequest,
    /// 403, as by RBAC or a policy.
    Forbidden,
    /// 429 with Retry-After.
    TooManyRequests,
    /// 503 with Retry-After.
    Unavailable,
    /// 500.
    InternalError,
    /// 504.
    Timeout,
    /// Requests are slow.
    Slow,
    /// Writes of the controllers reach the server only after up to 20 s. No part of [`FaultKind::ALL`].
    Late,
    /// Writes of the controllers, sometimes also of the leader election and of node agents, or only creations of pods, are carried out up
    /// to a minute after the client has given them up. No part of [`FaultKind::ALL`].
    HandledLate,
    /// Pods that the controllers create are denied, as by a policy. No part of [`FaultKind::ALL`].
    DeniedPods,
    /// A request gets no answer at all.
    Hang,
    /// Watch events arrive late and in bursts.
    LateEvents,
    /// Watches break in the middle of the stream.
    BrokenWatch,
    /// Watches end with 410.
    ExpiredWatch,
    /// A watch sends a line that is not JSON.
    Garbage,
    /// Watches deliver nothing.
    PausedWatches,
    /// Live reads of owners and namespaces fail.
    NoLiveReads,
    /// No connection at all.
    CutOff,
    /// The watch of one kind of objects delivers nothing. No part of [`FaultKind::ALL`]: see
    /// [`MORE_NAMES`](crate::plan::MORE_NAMES).
    StaleKind,
    /// The watch of this kind of objects delivers nothing. No part of [`FaultKind::ALL`] either.
    Stale(&'static str),
}

impl FaultKind {
    /// All of them.
    pub(crate) const ALL: [Self; 17] = [
        Self::Conflict,
        Self::LostAnswer,
        Self::LostRequest,
        Self::Forbidden,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::InternalError,
        Self::Timeout,
        Self::Slow,
        Self::Hang,
        Self::LateEvents,
        Self::BrokenWatch,
        Self::ExpiredWatch,
        Self::Garbage,
        Self::PausedWatches,
        Self::NoLiveReads,
        Self::CutOff,
    ];

    /// Its name in the coverage.
    pub(crate) fn name(self) -> String {
        format!("fault {self:?}")
    }

    /// Whether it stops watches, which has no single hits.
    pub(crate) fn stops_watches(self) -> bool {
        matches!(self, Self::PausedWatches | Self::StaleKind | Self::Stale(_))
    }

    /// The fault for the requests of the controllers, of the leader election, or of both, with random figures; of all replicas, or of
    /// one. With `of_one_kind`, half of the faults of watches concern one kind of object only, so that caches differ in age.
    pub(crate) fn draw(
        self,
        replica: Option<usize>,
        of_one_kind: bool,
        rng: &mut StdRng,
    ) -> Vec<Fault> {
        let clients: &[&str] = match rng.random_range(0..5) {
            0 => &[ELECTION],
            1 => &[BELAYER, ELECTION],
            _ => &[BELAYER],
        };
        let clients = match (self, replica) {
            // The election watches no objects and reads no owners.
            // Node agents have no number.
            (Self::HandledLate, None) if rng.random_bool(0.3) => &[BELAYER, ELECTION, AGENT],
            (Self::Stale(_) | Self::Late | Self::HandledLate | Self::DeniedPods, _)
            | (Self::NoLiveReads, Some(_)) => &[BELAYER][..],
            // A leader that can renew its Lease stays the leader.
            (Self::CutOff, Some(_)) => &[BELAYER, ELECTION],
            _ => clients,
        };
        let kind = (self == Self::StaleKind || of_one_kind && rng.random_bool(0.5))
            .then(|| WATCHED.choose(rng).copied())
            .flatten();
        let kind = match self {
            Self::Stale(kind) => Some(kind),
            _ => kind,
        };
        let faults = clients.iter().map(|client| match replica {
            Some(number) => self.of(&instance(client, number), kind, rng),
            None => self.of(client, kind, rng),
        });
        faults.collect()
    }

    fn of(self, client: &str, kind: Option<&str>, rng: &mut StdRng) -> Fault {
        let probability = rng.random_range(0.05..0.6);
        let seconds = Duration::from_secs(rng.random_range(1..20));
        let all = || Fault::on(Match::any().client(client));
        let requests = || {
            let verbs = [
                Verb::Get,
                Verb::List,
                Verb::Create,
                Verb::Patch,
                Verb::Delete,
            ];
            Fault::on(Match::verbs(verbs).client(client)).probability(probability)
        };
        let writes = || Fault::on(Match::writes().client(client)).probability(probability);
        let watches = || {
            let watches = Match::watches().client(client);
            Fault::on(match kind {
                Some(kind) => watches.resource(kind),
                None => watches,
            })
        };
        let creates = || Match::verb(Verb::Create).resource("pods").client(client);
        let after = rng.random_range(1..30);
        match self {
            Self::Conflict => Fault::on(Match::verb(Verb::Patch).client(client))
                .probability(probability)
                .answer(Answer::conflict()),
            Self::LostAnswer => writes().lose_answer(),
            Self::LostRequest => requests().lose_request(),
            Self::Forbidden => writes().answer(Answer::forbidden("not today")),
            Self::TooManyRequests => requests().answer(Answer::too_many_requests(seconds)),
            Self::Unavailable => requests().answer(Answer::service_unavailable_for(seconds)),
            Self::InternalError => requests().answer(Answer::internal_error()),
            Self::Timeout => requests().answer(Answer::timeout()),
            Self::Slow => requests().delay(seconds / 4),
            Self::Late => writes().delay(seconds),
            Self::HandledLate if kind == Some("pods") => Fault::on(creates())
                .probability(probability)
                .handle_late(seconds * 3),
            Self::HandledLate => writes().handle_late(seconds * 3),
            Self::DeniedPods => {
                Fault::on(creates()).answer(Answer::forbidden("denied by the team's policy"))
            }
            Self::Hang => requests().hang(),
            Self::LateEvents => watches().jitter_events(seconds),
            Self::BrokenWatch => watches().end_watch_after(after, WatchEnd::Break),
            Self::ExpiredWatch => watches().end_watch_after(after, WatchEnd::Expired),
            Self::Garbage => watches().end_watch_after(after, WatchEnd::Garbage),
            Self::PausedWatches | Self::StaleKind | Self::Stale(_) => watches().pause_watches(),
            Self::NoLiveReads => Fault::on(Match::verb(Verb::Get).client(client))
                .answer(Answer::service_unavailable()),
            Self::CutOff => all().lose_request(),
        }
    }
}
