//! A pod that tries to have more than its own directory wiped.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use rustix::mount::mount_bind_recursive;
use serde_json::json;

use super::site::{Site, Timeout};
use crate::harness::{Cluster, NO_SCHEDULER};

const PRECIOUS: &str = "precious";

pub(super) async fn hostile(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = site.agent().await?;
    let neighbour = site.pod("neighbour").await?;
    site.leave_state(&neighbour)?;
    let outside = site.sibling("outside");
    fs::create_dir_all(outside.join("deep"))?;
    fs::write(outside.join("deep/file"), PRECIOUS)?;
    fs::write(outside.join("linked"), PRECIOUS)?;

    let spec = json!({
        "schedulerName": NO_SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "busybox" }],
    });
    // Its name and annotations do not matter: directories follow from its UID alone.
    let annotations = json!({
        "belayer.dev/wipe-path": outside.display().to_string(),
        "belayer.dev/paths": format!("../{neighbour}"),
        "podUID": neighbour,
        "belayer.dev/pod-uid": neighbour,
    });
    let uid = site.create("web", spec, annotations).await?;
    site.bind("web").await?;
    let own = site.dir(&uid);
    fs::create_dir_all(own.join("a/bind"))?;
    symlink(&outside, own.join("outside"))?;
    symlink("..", own.join("up"))?;
    symlink(site.dir(&neighbour), own.join("a/neighbour"))?;
    symlink(outside.parent().unwrap_or(&outside), own.join("a/more"))?;
    fs::hard_link(outside.join("linked"), own.join("a/linked"))?;
    mount_bind_recursive(&outside, own.join("a/bind"))?;
    fs::create_dir(own.join("neighbours"))?;
    mount_bind_recursive(site.dir(&neighbour), own.join("neighbours"))?;
    // A bind mount of the root itself inside it.
    fs::create_dir(own.join("root"))?;
    mount_bind_recursive(site.root(), own.join("root"))?;

    site.reject("web").await?;
    site.successor("web", &uid).await?;
    ensure!(!own.exists(), "its own files still exist");
    for file in ["deep/file", "linked"] {
        let text = fs::read_to_string(outside.join(file))?;
        ensure!(text == PRECIOUS, "{file} was changed");
    }
    let theirs = site.dir(&neighbour).join("content/src/deep/file-0");
    ensure!(theirs.exists(), "the other pod's files were changed");
    agent.stop().await?;
    belayer.stop().await
}
