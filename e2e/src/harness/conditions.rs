//! Conditions of one object of any kind. `what` describes the condition in an error.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kube::api::DynamicObject;

use super::objects::finalizers;
use crate::kinds::Objects;
use crate::wait::{SOON, eventually, throughout};

/// Waits until the object has a finalizer.
pub(super) async fn is_held(
    objects: &Objects,
    name: &str,
    hold: &str,
    what: &str,
) -> Result<DynamicObject> {
    eventually(what, SOON, async || {
        let seen = objects.get(name).await?;
        ensure!(finalizers(&seen).contains(&hold), "{}", describe(&seen));
        Ok(seen)
    })
    .await
}

/// Waits until the object has lost a finalizer, or is removed.
pub(super) async fn is_not_held(
    objects: &Objects,
    name: &str,
    hold: &str,
    what: &str,
) -> Result<()> {
    eventually(what, SOON, async || match objects.get_opt(name).await? {
        Some(seen) if finalizers(&seen).contains(&hold) => bail!("{}", describe(&seen)),
        _ => Ok(()),
    })
    .await
}

/// Waits until the object is removed.
pub(super) async fn is_removed(
    objects: &Objects,
    name: &str,
    deadline: Duration,
    what: &str,
) -> Result<()> {
    eventually(what, deadline, async || {
        match objects.get_opt(name).await? {
            Some(seen) => bail!("{}", describe(&seen)),
            None => Ok(()),
        }
    })
    .await
}

/// Checks that the object keeps a finalizer during the whole `window`.
pub(super) async fn keeps_hold(
    objects: &Objects,
    name: &str,
    hold: &str,
    window: Duration,
    what: &str,
) -> Result<()> {
    throughout(what, window, async || {
        let seen = objects.get(name).await?;
        ensure!(finalizers(&seen).contains(&hold), "{}", describe(&seen));
        Ok(())
    })
    .await
}

/// The state of an object, for an error.
pub(super) fn describe(object: &impl kube::ResourceExt) -> String {
    let deleting = match &object.meta().deletion_timestamp {
        Some(_) => "being deleted",
        None => "not being deleted",
    };
    format!(
        "{} is {deleting}, with finalizers {:?}",
        object.name_any(),
        object.finalizers()
    )
}
