//! What this component has to be allowed.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

use crate::config::Settings;

/// To hold workflows and let them go, their pods first.
pub fn rights(settings: &Settings) -> Vec<Right> {
    let pods = Resource::pods();
    let mut rights = Vec::new();
    for rule in &settings.owners {
        rights.extend(Right::on(
            &rule.kind,
            FOLLOW,
            "none of this kind is seen, held or released",
        ));
        rights.extend(Right::on(
            &rule.kind,
            &["patch"],
            "holds are neither added nor taken off: what is held stays",
        ));
    }
    rights.extend(Right::on(
        &pods,
        FOLLOW,
        "nobody knows whether pods are left: no workflow is released",
    ));
    rights.extend(Right::on(
        &pods,
        &["patch"],
        "the pods of a deleted workflow are not released, and it waits for them",
    ));
    rights
}
