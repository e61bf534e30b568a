//! What all components stand on.

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;

use belayer_core::events::{self, EventRecorder, EventSender};
use belayer_core::executor::Executor;
use belayer_core::facts::Pace;
use belayer_core::informer::{Decoders, JsonDecoder, ProtobufDecoder};
use belayer_core::object::Resource;
use belayer_core::runner::Observer;
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::slim::{DecodeContext, Interner, Keep, Namespace};

use super::Options;
use super::feed::Watched;

/// The client, the executor and what else there is once in a process.
pub(super) struct Ground {
    /// For watches.
    pub(super) client: Client,
    /// Belayer's own namespace.
    pub(super) namespace: String,
    /// For everything else that is asked of the server.
    pub(super) executor: Arc<Executor>,
    /// Tells people.
    pub(super) events: EventRecorder,
    /// Is told of everything that is executed.
    pub(super) observer: Arc<dyn Observer>,
    /// How often one thing may be asked live.
    pub(super) pace: Pace,
    /// Ends live looks and the telling of Events: after the workers have ended.
    pub(super) after_work: CancellationToken,
    /// All namespaces.
    pub(super) namespaces: Watched<Namespace>,
    interner: Interner,
}

impl Ground {
    /// The ground, and what sends its Events.
    pub(super) fn new(options: &Options, keep_of_namespaces: Keep) -> (Self, EventSender) {
        let executor = Arc::new(Executor::new(
            options.client.clone(),
            options.bounds,
            options.writes,
        ));
        let (events, sender) = events::recorder(Arc::clone(&executor));
        let interner = Interner::default();
        let namespaces = Watched::new(
            &options.client,
            Resource::new("", "v1", "Namespace", "namespaces"),
            decoders(keep_of_namespaces, &interner),
            |builder| builder,
        );
        let ground = Self {
            client: options.client.clone(),
            namespace: options.namespace.clone(),
            executor,
            events,
            observer: Arc::clone(&options.observer),
            pace: Pace::default(),
            after_work: CancellationToken::new(),
            namespaces,
            interner,
        };
        (ground, sender)
    }

    /// Decoders of a kind whose rules read the labels and annotations in `keep`.
    pub(super) fn decoders<K: SlimJson + SlimProtobuf>(&self, keep: Keep) -> Decoders<K> {
        decoders(keep, &self.interner)
    }
}

fn decoders<K: SlimJson + SlimProtobuf>(keep: Keep, interner: &Interner) -> Decoders<K> {
    let context = DecodeContext {
        keep,
        interner: interner.clone(),
    };
    Decoders::new(ProtobufDecoder::new(context.clone())).or(JsonDecoder::new(context))
}
