//! RBAC permissions of workflow-finalizer.
//!
//! ```
//! use belayer_workflow_finalizer::{Settings, permissions::permissions};
//!
//! for permission in permissions(&Settings::default()) {
//!     println!("{} {}", permission.verb, permission.resource);
//! }
//! ```

use belayer_core::object::Resource;
use belayer_holds::permissions::{FOLLOW, Permission};

use crate::config::Settings;

/// The permissions to hold and release workflows, and to release their pods first. The [module's
/// example](self) prints them.
pub fn permissions(settings: &Settings) -> Vec<Permission> {
    let pods = Resource::pods();
    let mut permissions = Vec::new();
    for rule in &settings.owners {
        permissions.extend(Permission::on(
            &rule.kind,
            FOLLOW,
            "objects of this kind are neither watched nor held nor released",
        ));
        permissions.extend(Permission::on(
            &rule.kind,
            &["patch"],
            "finalizers are neither added nor removed: held objects stay held",
        ));
    }
    permissions.extend(Permission::on(
        &pods,
        FOLLOW,
        "whether pods of a workflow are still held is unknown: no workflow is released",
    ));
    permissions.extend(Permission::on(
        &pods,
        &["patch"],
        "the pods of a deleted workflow are not released, so the workflow is not released either",
    ));
    permissions
}
