//! RBAC permissions of pod-finalizer.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

use crate::outcome;
use crate::profile::{Cleanup, Profiles};

/// The permissions to hold and release pods.
pub fn rights(profiles: &Profiles) -> Vec<Right> {
    let pods = Resource::pods();
    let mut rights: Vec<Right> = Right::on(
        &pods,
        FOLLOW,
        "pods are neither watched nor held nor released",
    )
    .collect();
    rights.push(Right::new(
        "",
        "pods",
        "patch",
        "finalizers are neither added nor removed: held pods stay held",
    ));
    if profiles.iter().any(|profile| profile.is_argo()) {
        rights.push(Right::new(
            "",
            "nodes",
            "get",
            "held pods of a lost node stay held until their workflow is deleted",
        ));
    }
    for owner in profiles.owners() {
        rights.extend(Right::on(
            owner,
            FOLLOW,
            "pods of such owners are held, but not released when the owner finishes or is deleted",
        ));
    }
    rights
}

/// The additional permissions to record outcomes; empty if no profile records them.
pub fn rights_to_capture(profiles: &Profiles) -> Vec<Right> {
    if !profiles.capture() {
        return Vec::new();
    }
    let mut rights: Vec<Right> = Right::on(
        &outcome::resource(),
        &["get", "list", "watch", "create"],
        "outcomes are not recorded: pods are held until their consumer has taken the result",
    )
    .collect();
    rights.extend(Right::on(
        &outcome::resource(),
        &["delete"],
        "expired records without an owner are not deleted",
    ));
    rights.push(Right::new(
        "",
        "nodes",
        "get",
        "outcomes of pods whose node was deleted are never final",
    ));
    rights
}

/// The additional permissions to delete pods by their annotation; empty if no profile does that.
pub fn rights_to_clean_up(profiles: &Profiles) -> Vec<Right> {
    if profiles
        .iter()
        .all(|profile| profile.cleanup == Cleanup::None)
    {
        return Vec::new();
    }
    vec![Right::new(
        "",
        "pods",
        "delete",
        "pods whose annotation requires their deletion are not deleted",
    )]
}
