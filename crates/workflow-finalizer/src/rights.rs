//! RBAC permissions of workflow-finalizer.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

use crate::config::Settings;

/// The permissions to hold and release workflows, and to release their pods first.
pub fn rights(settings: &Settings) -> Vec<Right> {
    let pods = Resource::pods();
    let mut rights = Vec::new();
    for rule in &settings.owners {
        rights.extend(Right::on(
            &rule.kind,
            FOLLOW,
            "objects of this kind are neither watched nor held nor released",
        ));
        rights.extend(Right::on(
            &rule.kind,
            &["patch"],
            "finalizers are neither added nor removed: held objects stay held",
        ));
    }
    rights.extend(Right::on(
        &pods,
        FOLLOW,
        "whether pods of a workflow are still held is unknown: no workflow is released",
    ));
    rights.extend(Right::on(
        &pods,
        &["patch"],
        "the pods of a deleted workflow are not released, so the workflow is not released either",
    ));
    rights
}
