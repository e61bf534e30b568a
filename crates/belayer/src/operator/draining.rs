//! Draining: what this process learns of it, and what becomes of components that are switched off.

use std::sync::Arc;

use futures::FutureExt as _;

use belayer_controller::context::{BackgroundTask, ControllerContext, Options, zeros};
use belayer_core::informer::Event;
use belayer_core::slim::Namespace;
use belayer_drain::evidence;
use belayer_drain::follow::{Follower, Home, Switches};
use belayer_drain::gate::Gate;
use belayer_inspect::reader::Reader;

use crate::controllers::{CONTROLLERS, Components};
use crate::drain::switched_off::take_off;

/// Follows the gate from the first moment on: before it has been read, nobody adds a hold. What is
/// to be written waits until the workers work.
pub(super) fn join(
    options: &Options,
    components: &Components,
    context: &mut ControllerContext,
) -> BackgroundTask {
    let executor = Arc::clone(&context.shared.executor);
    let home = Home::new(context.shared.switch.clone());
    let gate = Gate::new(Arc::clone(&executor), &options.namespace);
    let follower = Follower::new(gate, home.clone(), switches(components));

    let (told, own) = (home.clone(), options.namespace.clone());
    context.namespaces.on_event(move |event| {
        if let Some(ends) = ends(event, &own) {
            told.namespace_ends(ends);
        }
    });

    let off = components.switched_off.clone();
    for component in &off {
        let evidence = evidence::SWITCHED_OFF.iter().copied();
        zeros::of_component(component.controller().name, evidence, &[]);
    }
    let namespace = options.namespace.clone();
    let reader = Reader::new(options.client.clone(), options.bounds);
    context.pods.run_beside(Box::new(move |stop| {
        async move {
            home.keep_switches(true);
            take_off(off, executor, reader, namespace, stop.clone()).await;
            stop.cancelled().await;
            home.keep_switches(false);
        }
        .boxed()
    }));
    Box::new(|stop| follower.run(stop).boxed())
}

/// What an event says of Belayer's own namespace.
fn ends(event: &Event<Namespace>, own: &str) -> Option<bool> {
    let namespace = match event {
        Event::Added { object, .. } => object,
        Event::Updated { new, .. } => new,
        // Whoever comes back comes as another one.
        _ => return None,
    };
    (namespace.meta.key.name() == own).then(|| namespace.meta.is_deleting())
}

/// The policies of components that are switched off, or only report, add no holds: nothing would remove them. Where
/// that is kept, another Belayer does.
fn switches(components: &Components) -> Switches {
    let running = CONTROLLERS
        .iter()
        .filter(|controller| components.holds(controller.name));
    let off = components.switched_off.iter();
    Switches {
        on: running.map(|controller| controller.switch).collect(),
        off: off.map(|off| off.controller().switch).collect(),
    }
}
