use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use belayer_core::clock;
use belayer_core::events;
use belayer_core::executor::Executor;
use belayer_core::informer::{Decoders, Informer};
use belayer_core::object::Resource;
use belayer_core::slim::DecodeContext;
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::workqueue::WorkQueue;

use super::{Component, Executed, Observer, Runner, RunnerParts};
use crate::holding::HoldSwitch;

/// How many keys are processed at once.
const WORKERS: usize = 8;

/// Runs one component on one kind until `stop` is cancelled: an informer, a queue, a recorder of Events and a runner.
/// Requests are sent by `executor`; the labels and annotations that `context` keeps are read. Work in progress is
/// finished.
///
/// Several components on one kind, or several kinds, need a [`Runner`] for each kind, whose [`RunnerParts`] they share.
/// The [module's example](crate::runner) runs one component.
pub async fn run<K: SlimJson + SlimProtobuf, C: Component<K>>(
    executor: Arc<Executor>,
    kind: Resource,
    context: DecodeContext,
    component: C,
    stop: CancellationToken,
) {
    struct Ignores;

    impl Observer for Ignores {
        fn executed(&self, _: &Executed<'_>) {}
    }

    let decoders = Decoders::<K>::protobuf_or_json(context);
    let streams = executor.streams().clone();
    let (mut informer, store) = Informer::builder(streams, kind.clone(), decoders.clone()).build();
    let (events, sender) = events::recorder(Arc::clone(&executor));
    let runner = Runner::builder(RunnerParts {
        queue: WorkQueue::new(kind.plural.to_string()),
        resource: kind,
        finalizers: Box::new([component.hold()]),
        store,
        executor,
        decoders,
        events,
        clock: Arc::new(clock::now),
        observer: Arc::new(Ignores),
        switch: HoldSwitch::default(),
    })
    .component(Arc::new(component))
    .build();
    informer.add_handler(Arc::new(runner.clone()));
    let workers = runner.work(WORKERS);
    tokio::join!(informer.run(stop.clone()), sender.run(stop));
    workers.shutdown().await;
}
