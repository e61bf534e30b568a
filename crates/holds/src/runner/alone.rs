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

use super::{Component, Runner, RunnerParts};
use crate::holding::HoldSwitch;

/// How many keys are processed at once.
const WORKERS: usize = 8;

/// Runs one component on one kind until `stop` is cancelled: an informer, a queue, a recorder of Events and a runner.
/// Requests are sent by `executor`; the labels and annotations that `context` keeps are read. Until its
/// [leadership](Executor::within) begins, only the informer runs, so that the caches of a standby are filled. Work in
/// progress is finished.
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
    let decoders = Decoders::<K>::protobuf_or_json(context);
    let streams = executor.streams().clone();
    let (mut informer, store) = Informer::builder(streams, kind.clone(), decoders.clone()).build();
    let (events, sender) = events::recorder(Arc::clone(&executor));
    let leadership = executor.leadership().clone();
    let runner = Runner::builder(RunnerParts {
        queue: WorkQueue::new(kind.plural.to_string()),
        resource: kind,
        finalizers: Box::new([component.hold()]),
        store,
        executor,
        decoders,
        events,
        clock: Arc::new(clock::now),
        observer: Arc::new(()),
        switch: HoldSwitch::default(),
    })
    .component(Arc::new(component))
    .build();
    informer.add_handler(Arc::new(runner.clone()));
    let work = async {
        let begun = stop.run_until_cancelled(leadership.begun()).await;
        begun.map(|()| runner.work(WORKERS))
    };
    let (.., workers) = tokio::join!(informer.run(stop.clone()), sender.run(stop.clone()), work);
    if let Some(workers) = workers {
        workers.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use belayer_core::client;
    use belayer_core::election::Leadership;
    use belayer_core::executor::{Bounds, Writes};
    use belayer_core::informer::Stored;
    use belayer_core::queries::Waiter;
    use belayer_core::slim::{ObjectMeta, OwnerMeta};
    use belayer_sandbox::{Actor, Gvr, Sandbox, Verb, WriteOptions};
    use jiff::Timestamp;
    use serde_json::json;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::decision::{Decision, Evidence, Rule, Write};

    const HOLD: &str = "example.com/hold";

    const ADD_HOLD: &Rule = &Rule::new(1, "add-hold", "not held");
    const WAIT: &Rule = &Rule::new(2, "wait", "held");

    #[derive(Debug)]
    struct Never;

    impl Evidence for Never {
        fn name(&self) -> &'static str {
            "Never"
        }
    }

    /// Holds everything.
    struct Holds;

    impl Component<OwnerMeta> for Holds {
        type Snapshot = ObjectMeta;
        type Evidence = Never;
        type Query = Infallible;
        type Step = ();

        fn name(&self) -> &'static str {
            "holds"
        }

        fn hold(&self) -> &'static str {
            HOLD
        }

        fn observe(&self, object: &Stored<OwnerMeta>) -> ObjectMeta {
            object.object.meta.clone()
        }

        fn decide(seen: &ObjectMeta, _: Timestamp) -> Decision<Never, Infallible> {
            if seen.has_finalizer(HOLD) {
                return Decision::nothing(WAIT);
            }
            Decision::write(ADD_HOLD, Write::AddHold)
        }

        fn ask(&self, query: Infallible, _: Waiter<'_>) {
            match query {}
        }
    }

    fn replica(
        sandbox: &Sandbox,
        name: &'static str,
        leadership: Leadership,
        stop: &CancellationToken,
    ) -> JoinHandle<()> {
        let client = client::in_process(sandbox.service(name), name);
        let executor = Executor::new(client, name, Bounds::default(), Writes::Sent);
        let executor = Arc::new(executor.within(leadership));
        let context = DecodeContext::default();
        let kind = Resource::config_maps();
        tokio::spawn(run(executor, kind, context, Holds, stop.clone()))
    }

    /// Whether the ConfigMap is held, within a second.
    async fn is_held(sandbox: &Sandbox, name: &str) -> bool {
        for _ in 0..20 {
            let map = sandbox.cluster().get(&Gvr::CONFIGMAPS, Some("a"), name);
            if map.unwrap()["metadata"]["finalizers"] == json!([HOLD]) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// A standby that decided would take over with its keys in the backoff of a failed write.
    #[tokio::test(start_paused = true)]
    async fn a_standby_begins_to_work_when_it_leads() {
        let sandbox = Sandbox::builder().build();
        let create = |gvr: &Gvr, namespace, name| {
            let object = json!({ "metadata": { "name": name } });
            let (actor, options) = (Actor::new("user"), WriteOptions::default());
            let cluster = sandbox.cluster();
            cluster
                .create(&actor, gvr, namespace, object, &options)
                .unwrap();
        };
        create(&Gvr::NAMESPACES, None, "a");
        let (leader_guard, leads) = Leadership::elected();
        leader_guard.extend(tokio::time::Instant::now() + Duration::from_secs(60));
        let (guard, waits) = Leadership::elected();
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let leader = replica(&sandbox, "leader", leads, &first);
        let standby = replica(&sandbox, "standby", waits, &second);
        create(&Gvr::CONFIGMAPS, Some("a"), "early");
        assert!(is_held(&sandbox, "early").await);
        first.cancel();
        leader.await.unwrap();

        create(&Gvr::CONFIGMAPS, Some("a"), "late");
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(!is_held(&sandbox, "late").await);
        let sent = sandbox.recorder().requests_by("standby");
        let reads = |(verb, _): &(Verb, _)| matches!(verb, Verb::List | Verb::Watch);
        assert!(sent.keys().all(reads), "{sent:?}");
        guard.extend(tokio::time::Instant::now() + Duration::from_secs(60));
        assert!(is_held(&sandbox, "late").await);
        second.cancel();
        standby.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_can_be_stopped() {
        let sandbox = Sandbox::builder().build();
        let (_guard, waits) = Leadership::elected();
        let stop = CancellationToken::new();
        let standby = replica(&sandbox, "standby", waits, &stop);
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
        standby.await.unwrap();
    }
}
