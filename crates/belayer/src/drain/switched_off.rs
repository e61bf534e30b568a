//! The holds of components that are switched off: taken off first, unless `--on-disable=keep`.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tokio_util::sync::CancellationToken;

use belayer_core::executor::{Executor, Writes};
use belayer_core::object::Resource;
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::passes::Outcome;
use belayer_drain::progress::Silent;
use belayer_drain::report::Report;
use belayer_drain::run::{Drain, Kinds, Parts};
use belayer_drain::selection::NoSelection;
use belayer_holds::names;
use belayer_inspect::reader::Reader;

use crate::components::Components;
use crate::config::{ConfigError, Source};
use crate::controllers::Controller;

/// How long one attempt may take.
const WITHIN: Duration = Duration::from_secs(600);

/// What must stay for now (a claim in use) is looked at again after this time.
const LEFT_AGAIN: Duration = Duration::from_secs(300);

/// What did not work is tried again after this time.
const ERROR_AGAIN: Duration = Duration::from_secs(30);

/// What is refused is tried again after this time: somebody has to grant a right.
const REFUSED_AGAIN: Duration = Duration::from_secs(600);

/// What becomes of the holds of a component that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnDisable {
    /// They are taken off
    #[default]
    Drain,
    /// They stay, for a Belayer elsewhere that runs it, or for later
    Keep,
}

/// A component that is switched off, and where its holds may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchedOff {
    /// Its name.
    pub component: &'static str,
    /// Its holds.
    pub holds: Vec<&'static str>,
    /// The kinds that they may be on.
    pub kinds: Vec<Resource>,
    /// The key of the gate by which its admission policy is switched.
    pub switch: &'static str,
}

impl SwitchedOff {
    /// The components of this build that do not run, or run without adding holds.
    ///
    /// # Errors
    ///
    /// When the configuration, which says what kinds they held, makes no sense.
    pub fn all(source: &Source, components: &Components) -> Result<Vec<Self>, ConfigError> {
        let off = Controller::built().filter(|controller| !components.holds(*controller));
        off.map(|controller| Self::of(controller, source)).collect()
    }

    fn of(controller: Controller, source: &Source) -> Result<Self, ConfigError> {
        let pods = || vec![Resource::pods()];
        let component = controller.name();
        Ok(match controller {
            Controller::PodFinalizer => Self {
                component,
                holds: vec![names::POD_STATUS_HOLD],
                kinds: pods(),
                switch: switch_of(controller),
            },
            Controller::WorkflowFinalizer => Self {
                component,
                holds: names::OWNER_HOLDS.to_vec(),
                kinds: owner_kinds(source)?,
                switch: switch_of(controller),
            },
            Controller::PodRecreation => Self {
                component,
                holds: vec![names::POD_RECREATION_HOLD],
                kinds: pods(),
                switch: switch_of(controller),
            },
            Controller::PvcProtection => Self {
                component,
                // Not Kubernetes' own, by which it may have held: that one is handed over.
                holds: vec![names::PVC_PROTECTION_HOLD],
                kinds: vec![Resource::claims()],
                switch: switch_of(controller),
            },
        })
    }
}

/// The key of the gate by which a component's admission policy is switched.
pub fn switch_of(controller: Controller) -> &'static str {
    match controller {
        Controller::PodFinalizer => "hold",
        Controller::WorkflowFinalizer => "holdWorkflows",
        Controller::PodRecreation => "holdRecreations",
        Controller::PvcProtection => "holdClaims",
    }
}

#[cfg(feature = "workflow-finalizer")]
fn owner_kinds(source: &Source) -> Result<Vec<Resource>, ConfigError> {
    let settings = source.workflow_finalizer(None)?;
    Ok(settings.owners.into_iter().map(|rule| rule.kind).collect())
}

#[cfg(not(feature = "workflow-finalizer"))]
fn owner_kinds(_: &Source) -> Result<Vec<Resource>, ConfigError> {
    Ok(Vec::new())
}

/// Takes the holds of components that are switched off away, until none is left or `stop` is
/// cancelled.
pub(crate) async fn take_off(
    off: Vec<SwitchedOff>,
    executor: Arc<Executor>,
    reader: Reader,
    namespace: String,
    stop: CancellationToken,
) {
    let each = off.into_iter().map(|component| {
        let drain = Drain::new(Parts {
            executor: Arc::clone(&executor),
            reader: reader.clone(),
            namespace: namespace.clone(),
            purpose: Purpose::SwitchedOff(Order::of_the_admin(), component.holds.clone()),
            kinds: Kinds::These(component.kinds.clone()),
            selection: Box::new(NoSelection),
            timeout: WITHIN,
            except_namespaces: Vec::new(),
        });
        let dry = executor.writes() == Writes::DryRun;
        async move { one(&component, &drain, dry).await }
    });
    let all = futures::future::join_all(each);
    stop.run_until_cancelled(all).await;
}

async fn one(off: &SwitchedOff, drain: &Drain, dry: bool) {
    let component = off.component;
    loop {
        // It asks for no kinds, so that it cannot fail but in its report.
        let report = match drain.run(&Silent).await {
            Ok(report) => report,
            Err(error) => {
                tracing::info!(component, %error, "could not look for finalizers of a component that adds none: trying again");
                tokio::time::sleep(ERROR_AGAIN).await;
                continue;
            }
        };
        count(off, &report);
        let (released, left) = (report.taken.objects, report.left.len());
        let pause = match report.outcome {
            Outcome::Clean => {
                tracing::info!(
                    component,
                    released,
                    "component adds no finalizers, and none of its finalizers is left"
                );
                return;
            }
            Outcome::LeftOver => {
                tracing::warn!(
                    component,
                    released,
                    left,
                    what = %report.left.first().map_or_else(String::new, |left| {
                        format!("{} {}/{}: {}", left.resource, left.namespace, left.name, left.why)
                    }),
                    "component adds no finalizers, but some must stay: a PVC in use that nothing else protects keeps its \
                     finalizer, and a pod that exists only in its PodRecreation is created once pod-recreation is on again"
                );
                LEFT_AGAIN
            }
            Outcome::NewHolds => {
                let namespaces = report.new_holds.namespaces.keys();
                let namespaces = namespaces.map(String::as_str).collect::<Vec<_>>();
                tracing::warn!(
                    component,
                    released,
                    namespaces = namespaces.join(", "),
                    "component adds no finalizers, but someone else keeps adding its finalizer in these namespaces"
                );
                LEFT_AGAIN
            }
            Outcome::Refused => {
                let why = report.refused.iter().map(|refused| &refused.why);
                let why = why
                    .chain(report.unseen.iter().map(|unseen| &unseen.why))
                    .next();
                tracing::warn!(
                    component,
                    why,
                    "component adds no finalizers, but is not allowed to remove those that are left: keep its RBAC \
                     permissions until they are gone, or run `belayer drain`"
                );
                REFUSED_AGAIN
            }
            Outcome::Error => {
                let why = report.failed.iter().map(|failed| &failed.why);
                let unseen = report.unseen.iter().map(|unseen| &unseen.why);
                let why = why.chain(unseen).chain(&report.notes).next();
                tracing::info!(
                    component,
                    released,
                    why,
                    "component adds no finalizers, but not all that are left could be read or removed: trying again"
                );
                ERROR_AGAIN
            }
        };
        if dry {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Counted as every release is.
fn count(off: &SwitchedOff, report: &Report) {
    if report.taken.dry_run {
        return;
    }
    for (evidence, number) in report.taken.holds.values().flatten() {
        metrics::counter!(
            belayer_metrics::RELEASES,
            "controller" => off.component,
            "evidence" => *evidence
        )
        .increment(*number);
    }
}

#[cfg(test)]
#[cfg(all(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pvc-protection"
))]
mod tests {
    use super::*;
    use crate::controllers::Controllers;

    fn off(list: &[&str]) -> Vec<&'static str> {
        let controllers = Controllers::parse(list).unwrap();
        let held_by = belayer_pvc_protection::Mode::Beside;
        let components = Components::of(&Source::default(), &controllers, None).unwrap();
        let components = components.with_claims_held_by(Some(held_by));
        let off = SwitchedOff::all(&Source::default(), &components).unwrap();
        off.into_iter().flat_map(|off| off.holds).collect()
    }

    #[test]
    fn what_does_not_run_is_drained_and_nothing_else() {
        assert!(off(&["*"]).is_empty());
        assert_eq!(
            off(&["*", "-pvc-protection"]),
            ["belayer.dev/pvc-protection"]
        );
        assert!(!off(&["pod-finalizer"]).contains(&"belayer.dev/pod-status"));
    }

    /// Row A18: what an earlier configuration added goes, though the component runs.
    #[test]
    fn a18_claims_are_let_go_where_belayer_only_advises() {
        let controllers = Controllers::parse(&["*"]).unwrap();
        let components = Components::of(&Source::default(), &controllers, None).unwrap();
        let off = SwitchedOff::all(&Source::default(), &components).unwrap();
        let [claims] = off.as_slice() else {
            panic!("{off:?}");
        };
        assert_eq!(claims.holds, [names::PVC_PROTECTION_HOLD]);
        assert_eq!(claims.switch, "holdClaims");
    }

    #[test]
    fn what_kubernetes_own_controller_takes_off_is_none_of_it() {
        assert!(!off(&[]).contains(&names::KUBERNETES_PVC_PROTECTION));
    }
}
