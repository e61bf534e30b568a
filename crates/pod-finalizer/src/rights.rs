//! What this component has to be allowed.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

use crate::outcome;
use crate::profile::{Cleanup, Profiles};

/// To hold pods and let them go.
pub fn rights(profiles: &Profiles) -> Vec<Right> {
    let pods = Resource::pods();
    let mut rights: Vec<Right> =
        Right::on(&pods, FOLLOW, "no pod is seen, held or released").collect();
    rights.push(Right::new(
        "",
        "pods",
        "patch",
        "holds are neither added nor taken off: what is held stays",
    ));
    if profiles.iter().any(|profile| profile.is_argo()) {
        rights.push(Right::new(
            "",
            "nodes",
            "get",
            "held pods of a lost node stay until their workflow is gone",
        ));
    }
    for owner in profiles.owners() {
        rights.extend(Right::on(
            owner,
            FOLLOW,
            "pods of such owners are held, and not released when the owner finishes, goes or is gone",
        ));
    }
    rights
}

/// Besides, to record outcomes; nothing where no profile does.
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
        "records that no owner collects stay for ever",
    ));
    rights.push(Right::new(
        "",
        "nodes",
        "get",
        "outcomes of pods whose node is gone are never final",
    ));
    rights
}

/// Besides, to delete pods as their own annotation asks; nothing where no profile does.
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
        "pods whose annotation asks for their deletion stay",
    )]
}
