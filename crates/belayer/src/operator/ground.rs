//! What all components stand on.

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;

use belayer_core::ambient;
use belayer_core::events::{self, EventRecorder, EventSender};
use belayer_core::executor::Executor;
use belayer_core::facts::{Budget, Facts, LiveReads, Oracle, Pace, Question, Wake};
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::slim::{DecodeContext, Interner, Keep, Namespace, Slim};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::holding::{HoldSwitch, Holding};
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::runner::{self, Observer};

use super::feed::Watched;
use super::holds::Told;
use super::options::Options;

/// The client, the executor and what else there is once in a process.
pub(super) struct Ground {
    /// For watches.
    pub(super) client: Client,
    /// Belayer's own namespace.
    pub(super) namespace: String,
    /// For everything else that is asked of the server.
    pub(super) executor: Arc<Executor>,
    /// Whether holds may be added.
    pub(super) switch: HoldSwitch,
    /// Tells people.
    pub(super) events: EventRecorder,
    /// Is told of everything that is executed.
    pub(super) observer: Arc<dyn Observer>,
    /// How often one thing may be asked live.
    pub(super) pace: Pace,
    /// How many live reads may be in flight at once, for all components together.
    pub(super) reads: LiveReads,
    /// How much memory all live answers may take.
    answers: Budget,
    /// Ends live looks and the telling of Events: after the workers have ended.
    pub(super) after_work: CancellationToken,
    /// All namespaces.
    pub(super) namespaces: Watched<Namespace>,
    /// What components say of their holds.
    pub(super) told: Told,
    interner: Interner,
}

impl Ground {
    /// The ground, and what sends its Events.
    pub(super) fn new(options: &Options, keep_of_namespaces: Keep) -> (Self, EventSender) {
        let client = options.client.clone();
        let executor = Executor::new(client, FIELD_MANAGER, options.bounds, options.writes)
            .within(options.tenure.clone());
        let executor = Arc::new(executor);
        let (events, sender) = events::recorder(Arc::clone(&executor));
        let interner = Interner::default();
        let namespaces = Watched::new(
            &options.client,
            Resource::namespaces(),
            decoders(keep_of_namespaces, &interner),
            |builder| builder,
        );
        let ground = Self {
            client: options.client.clone(),
            namespace: options.namespace.clone(),
            executor,
            switch: HoldSwitch::new(Holding::Unknown),
            events,
            observer: Arc::clone(&options.observer),
            pace: Pace::default(),
            reads: LiveReads::default(),
            answers: Budget::default(),
            after_work: CancellationToken::new(),
            namespaces,
            told: Told::default(),
            interner,
        };
        (ground, sender)
    }

    /// Answers of `oracle`, each told to `wake`.
    pub(super) fn facts<Q: Question, O: Oracle<Q>>(&self, oracle: O, wake: Wake) -> Facts<Q> {
        self.facts_at(oracle, wake, self.pace)
    }

    /// The same where one thing is asked at a pace of its own.
    pub(super) fn facts_at<Q: Question, O: Oracle<Q>>(
        &self,
        oracle: O,
        wake: Wake,
        pace: Pace,
    ) -> Facts<Q> {
        let cancel = self.after_work.clone();
        let reads = self.reads.clone();
        Facts::within(Arc::new(oracle), wake, pace, reads, cancel, &self.answers)
    }

    /// What a runner of a kind is made of; `ours` are the finalizers that it may touch.
    pub(super) fn runner<K: Slim>(
        &self,
        watched: &Watched<K>,
        queue: &WorkQueue<ObjectKey>,
        ours: &'static [&'static str],
    ) -> runner::Parts<K> {
        runner::Parts {
            resource: watched.resource.clone(),
            ours,
            store: watched.store.clone(),
            queue: queue.clone(),
            executor: Arc::clone(&self.executor),
            decoders: watched.decoders.clone(),
            events: self.events.clone(),
            clock: Arc::new(ambient::now),
            observer: Arc::clone(&self.observer),
            switch: self.switch.clone(),
        }
    }

    /// Decoders of a kind whose rules read the labels and annotations in `keep`.
    pub(super) fn decoders<K: SlimJson + SlimProtobuf>(&self, keep: Keep) -> Decoders<K> {
        decoders(keep, &self.interner)
    }

    /// Decoders of a custom resource that is read whole: those travel as JSON only.
    #[cfg(feature = "pod-recreation")]
    pub(super) fn json_decoders<K: SlimJson>(&self) -> Decoders<K> {
        Decoders::new(JsonDecoder::new(DecodeContext {
            keep: Keep::nothing(),
            interner: self.interner.clone(),
        }))
    }
}

fn decoders<K: SlimJson + SlimProtobuf>(keep: Keep, interner: &Interner) -> Decoders<K> {
    Decoders::protobuf_or_json(DecodeContext {
        keep,
        interner: interner.clone(),
    })
}
