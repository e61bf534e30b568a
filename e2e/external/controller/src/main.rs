//! A controller as one value on `belayer-controller`: its settings are checked, its permissions are data.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use belayer_controller::config::{Key, Problem, Section};
use belayer_controller::context::ControllerContext;
use belayer_controller::{Configured, Controller, Hold, InformerRequirements, Site};
use belayer_core::{ObjectMeta, Resource};
use belayer_holds::permissions::{FOLLOW, Permission};
use belayer_holds::selection::Selected;
use belayer_inspect::Explainer;
use belayer_inspect::preflight::Part;

const KEEPER: Controller = Controller {
    name: "keeper",
    key: "keeper",
    default_on: true,
    keys: &[Key::live(
        "keeper.workers",
        "1 or more",
        "2",
        "ConfigMaps worked on at once.",
    )],
    crds: &[],
    finalizer: "example.com/keeper",
    switch: "holdConfigMaps",
    configure: |section: &Section<'_>| -> Result<Arc<dyn Configured>, Problem> {
        Ok(Arc::new(section.read::<Settings>()?))
    },
};

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    workers: Option<usize>,
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &KEEPER
    }

    fn holds(&self) -> Vec<Hold> {
        vec![Hold {
            kind: Resource::config_maps(),
            finalizers: vec![KEEPER.finalizer],
        }]
    }

    fn requires(&self) -> Vec<Part> {
        let kind = Resource::config_maps();
        let follow = Permission::on(&kind, FOLLOW, "no ConfigMap is seen");
        vec![Part::new(
            KEEPER.name,
            "ClusterRole keeper",
            follow.collect(),
        )]
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements::default()
    }

    fn selects(&self, _: &Resource, object: &ObjectMeta, _: bool) -> Selected {
        object.labels.get("keep").is_some().into()
    }

    fn join(&self, _: &mut ControllerContext) {}

    fn explainers(&self, _: &Site<'_>) -> Vec<Explainer> {
        Vec::new()
    }
}

fn main() -> anyhow::Result<()> {
    let section = Section::new("keeper: {workers: 3}", KEEPER.key);
    ensure!(section.read::<Settings>()?.workers == Some(3));
    let keeper = (KEEPER.configure)(&section)?;
    ensure!(keeper.holds().len() == 1);
    for part in keeper.requires() {
        println!(
            "controller: {} needs {} permissions",
            part.name,
            part.permissions.len()
        );
    }
    let mistyped = Section::new("keeper: {worker: 3}", KEEPER.key);
    let problem = (KEEPER.configure)(&mistyped)
        .err()
        .context("a mistyped key is refused")?;
    ensure!(
        problem.message.contains("did you mean `workers`?"),
        "{problem}"
    );
    Ok(())
}
