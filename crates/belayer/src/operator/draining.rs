//! Draining: follows the gate, and removes the holds of components that are switched off.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{self, join_all};
use tokio::sync::Notify;

use belayer_controller::Configured;
use belayer_controller::context::{
    BackgroundTask, ControllerContext, Options, Watched, list_state_known, zeros,
};
use belayer_core::informer::{Event, InformerState};
use belayer_core::object::Resource;
use belayer_core::slim::{Namespace, Slim};
use belayer_core::watch;
use belayer_drain::evidence;
use belayer_drain::follow::{Follower, GateStatus, Switches};
use belayer_drain::opening::Switch;
use belayer_holds::gate::GateClient;
use belayer_holds::names::write_policy;
use belayer_holds::permissions::{FOLLOW, Permission};
use belayer_inspect::reader::Reader;

use crate::controllers::Components;
use crate::drain::switched_off::{SwitchedOff, release_switched_off};

/// Follows the gate from the start: before the first read no replica adds a hold. Writes wait until the workers
/// have started.
pub(super) fn join(
    options: &Options,
    components: &Components,
    context: &mut ControllerContext,
) -> BackgroundTask {
    let executor = Arc::clone(&context.shared.executor);
    let status = GateStatus::new(context.shared.switch.clone());
    let gate = GateClient::new(Arc::clone(&executor), &options.namespace);
    let switches = switches(options, components, context);
    let held = switches.on.iter().flat_map(|switch| &switch.informers);
    let held: Vec<_> = held.map(|(_, state)| state.clone()).collect();
    let follower = Follower::new(gate, status.clone(), switches);

    let (state, own) = (status.clone(), options.namespace.clone());
    context.namespaces.on_event(move |event| {
        if let Some(ends) = ends(event, &own) {
            state.namespace_ends(ends);
        }
    });

    let evidence = || evidence::SWITCHED_OFF.iter().copied();
    for component in &components.switched_off {
        zeros::of_component(component.controller().name, evidence(), &[]);
    }
    let off = components.switched_off.iter();
    let off: Vec<_> = off.map(|one| watched(one, context)).collect();
    let namespace = options.namespace.clone();
    let reader = Reader::new(options.client.clone(), options.bounds);
    context.pods.run_in_background(Box::new(move |stop| {
        async move {
            status.keep_switches(true);
            // A switch waits for the informers of what its policy holds.
            let opened = join_all(held.into_iter().map(|state| async {
                list_state_known(state).await;
                status.keep_switches(true);
            }));
            let released = release_switched_off(off, executor, reader, namespace, stop.clone());
            stop.run_until_cancelled(future::join(opened, released))
                .await;
            stop.cancelled().await;
            status.keep_switches(false);
        }
        .boxed()
    }));
    Box::new(|stop| follower.run(stop).boxed())
}

/// A controller that is switched off, with what the informers of the running ones see of its finalizer.
fn watched(configured: &Arc<dyn Configured>, context: &mut ControllerContext) -> SwitchedOff {
    let finalizer = configured.controller().finalizer;
    let mut off = SwitchedOff {
        configured: Arc::clone(configured),
        deleting: Arc::default(),
        is_watched: true,
    };
    for kind in configured.holds().into_iter().map(|hold| hold.kind) {
        let mut owners = context.owners.kinds.iter_mut();
        if kind == context.pods.watched.resource {
            notify(&mut context.pods.watched, finalizer, &off.deleting);
        } else if let Some(owners) = owners.find(|watched| watched.resource == kind) {
            notify(owners, finalizer, &off.deleting);
        } else {
            off.is_watched = false;
        }
    }
    off
}

/// Notifies `deleting` of each object with `finalizer` that is being deleted.
fn notify<K: Slim>(watched: &mut Watched<K>, finalizer: &'static str, deleting: &Arc<Notify>) {
    let deleting = Arc::clone(deleting);
    watched.on_event(move |event| {
        let meta = event.news().map(|news| news.object.meta());
        if meta.is_some_and(|meta| meta.is_deleting() && meta.has_finalizer(finalizer)) {
            deleting.notify_one();
        }
    });
}

/// Whether an event means that Belayer's own namespace is being deleted.
fn ends(event: &Event<Namespace>, own: &str) -> Option<bool> {
    let namespace = match event {
        Event::Added { object, .. } => object,
        Event::Updated { new, .. } => new,
        // A new namespace of this name has another UID.
        _ => return None,
    };
    (namespace.meta.key.name() == own).then(|| namespace.meta.is_deleting())
}

/// The policies of components that are switched off, and of those that run but add no finalizers by a policy, are
/// switched off: what a policy adds without a component that removes it would stay. A component of another Belayer
/// (`--on-disable=keep`) leaves its switch as it is.
fn switches(options: &Options, components: &Components, context: &ControllerContext) -> Switches {
    let by_policy = |one: &&Arc<dyn Configured>| one.adds_holds() && has_policy(&***one);
    let (holding, others): (Vec<_>, Vec<_>) = components.running.iter().partition(by_policy);
    let off = components.switched_off.iter().chain(others);
    Switches {
        on: holding
            .into_iter()
            .map(|one| switch(&**one, |kind| context.informer_state(kind)))
            .collect(),
        off: off.map(|off| off.controller().switch).collect(),
        lease: options.lease.clone(),
    }
}

fn has_policy(configured: &dyn Configured) -> bool {
    let parts = configured.requires();
    parts.iter().any(|part| !part.policies.is_empty())
}

fn switch(
    configured: &dyn Configured,
    informer: impl Fn(&Resource) -> Option<watch::Receiver<InformerState>>,
) -> Switch {
    const WITHOUT: &str = "no finalizer is removed";
    let mut switch = Switch {
        key: configured.controller().switch,
        informers: Vec::new(),
        releases: Vec::new(),
        limits: Vec::new(),
    };
    for kind in configured.holds().into_iter().map(|hold| hold.kind) {
        let limit = write_policy(&kind);
        if !switch.limits.contains(&limit) {
            switch.limits.push(limit);
        }
        // What it does not see, it does not release either.
        for verbs in [FOLLOW, &["patch"]] {
            let permissions = Permission::on(&kind, verbs, WITHOUT);
            switch.releases.extend(permissions);
        }
        if let Some(state) = informer(&kind) {
            switch.informers.push((kind, state));
        }
    }
    switch
}

#[cfg(test)]
#[cfg(feature = "pod-finalizer")]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod_finalizer(mode: &str) -> Settings {
        let argo = json!({ "builtIn": "argo", "mode": mode });
        let config = json!({ "profiles": [argo] });
        let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
        config.try_into().unwrap()
    }

    #[rstest]
    #[case::it_holds("enforce", true)]
    #[case::it_only_reports("observe", false)]
    fn gate_a_controller_that_holds_nothing_turns_no_switch_on(
        #[case] mode: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(has_policy(&pod_finalizer(mode)), expected);
    }

    #[test]
    fn gate_a_switch_needs_that_belayer_sees_and_releases_what_its_policy_holds() {
        let switch = switch(&pod_finalizer("enforce"), |_| None);
        let needs: Vec<String> = switch.releases.iter().map(ToString::to_string).collect();
        assert_eq!(needs, ["get pods", "list pods", "watch pods", "patch pods"]);
        assert_eq!(switch.limits, ["belayer-pod-writes"]);
    }
}
