//! What this component has to be allowed.

use belayer_core::object::Resource;
use belayer_holds::rights::{FOLLOW, Right};

/// To hold claims and let them go.
pub fn rights() -> Vec<Right> {
    let claims = Resource::claims();
    let pods = Resource::pods();
    let mut rights: Vec<Right> =
        Right::on(&claims, FOLLOW, "no claim is seen, held or released").collect();
    rights.push(Right::new(
        "",
        "persistentvolumeclaims",
        "patch",
        "finalizers are neither added nor removed: held PVCs stay held, also those that an earlier version held",
    ));
    rights.push(Right::new(
        "argoproj.io",
        "workflows",
        "get",
        "a held PVC of a finished workflow waits until its completed pods are gone",
    ));
    rights.extend(Right::on(
        &pods,
        FOLLOW,
        "nobody knows which claims are in use: none is released",
    ));
    rights
}
