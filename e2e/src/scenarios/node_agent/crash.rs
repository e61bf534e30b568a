//! The agent is killed with -9.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result, ensure};

use super::site::{Busy, Site, Timeout, wiped, wiped_message};
use crate::harness::{Belayer, Cluster, SOON, eventually};

/// Killed when fewer than this many of the 100 directories are left; the last time as early as possible,
/// during its start.
const KILLED_AT: [usize; 6] = [100, 80, 60, 30, 1, 1_000];

/// An agent with a handler and a hook that signal their start and wait for a file.
async fn halting(site: &Site) -> Result<Belayer> {
    let wait = |begun: &str, go: &str| {
        format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.05; done",
            site.sibling(begun).display(),
            site.sibling(go).display()
        )
    };
    let config = format!(
        "nodeAgent:\n  roots: [{}]\n  handlers:\n  - command: [/bin/sh, -c, '{}']\n  hooks:\n  \
         - command: [/bin/sh, -c, '{}']\n    timeoutSeconds: 9\n",
        site.root().display(),
        wait("handler", "handler-go"),
        wait("hook", "hook-go"),
    );
    let options = site.agent_options().config(&config);
    site.cluster().start_belayer_with(&options).await
}

/// A hook whose message differs every time, with an agent that watches no pods.
pub(super) async fn failing_hook(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let runs = site.sibling("runs");
    let hook = format!("date +%N | tee -a {} >&2; exit 1", runs.display());
    let config = format!(
        "nodeAgent:\n  roots: [{}]\n  hooks:\n  - command: [/bin/sh, -c, '{hook}']\n",
        site.root().display(),
    );
    let options = site.agent_options().config(&config);
    let agent = cluster.start_belayer_with(&options).await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    site.reject("web").await?;
    appears(&runs).await?;
    // The pauses are half a second and then twice as long each, up to half a minute: six or seven in 20 s.
    let count = || Ok::<_, Error>(fs::read_to_string(&runs)?.lines().count());
    let window = tokio::time::sleep(Duration::from_secs(20));
    eventually("the hook is run again and again", SOON, async || {
        let count = count()?;
        ensure!(count >= 4, "it ran {count} times");
        Ok(())
    })
    .await?;
    window.await;
    let count = count()?;
    ensure!(count <= 15, "the hook ran {count} times in 20 s");
    cluster.note(format!("the hook ran {count} times in 20 s"));
    ensure!(site.dir(&uid).exists(), "removed although its hook failed");
    agent.stop().await?;
    belayer.stop().await
}

async fn appears(path: &Path) -> Result<()> {
    eventually(&format!("{} exists", path.display()), SOON, async || {
        ensure!(path.exists(), "it does not exist");
        Ok(())
    })
    .await
}

pub(super) async fn at_each_step(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    site.allow_handlers().await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;

    // While a handler runs; then again, with the pod rejected while it runs.
    let agent = halting(&site).await?;
    appears(&site.sibling("handler")).await?;
    agent.kill().await?;
    fs::remove_file(site.sibling("handler"))?;
    let agent = halting(&site).await?;
    appears(&site.sibling("handler")).await?;
    site.reject("web").await?;

    // While a hook runs: the handler, which waits forever, was terminated first.
    appears(&site.sibling("hook")).await?;
    agent.kill().await?;
    fs::write(site.sibling("handler-go"), "")?;
    ensure!(
        site.dir(&uid).exists(),
        "removed before the hooks had ended"
    );

    // Between tries that cannot complete.
    fs::write(site.sibling("hook-go"), "")?;
    let busy = Busy::mount(&site.dir(&uid).join("mnt"))?;
    let agent = halting(&site).await?;
    eventually("the remaining files are reported", SOON, async || {
        let status = site.record().await?.data["status"].clone();
        ensure!(
            wiped_message(&status).contains("a mount in use"),
            "{status}"
        );
        Ok(())
    })
    .await?;
    agent.kill().await?;
    ensure!(busy.is_there(), "the mount was unmounted by force");
    busy.release();

    // During the removal, the report and what follows.
    for number in 0..20_000 {
        let dir = site.dir(&uid).join(format!("much/{}", number % 100));
        if number < 100 {
            fs::create_dir_all(&dir)?;
        }
        fs::write(dir.join(number.to_string()), "")?;
    }
    let much = site.dir(&uid).join("much");
    let count = || fs::read_dir(&much).map_or(0, Iterator::count);
    let mut left = Vec::new();
    for least in KILLED_AT {
        let agent = cluster.spawn_belayer(&plain(&site))?;
        eventually("the removal has begun", SOON, async || {
            ensure!(
                count() < least || !site.dir(&uid).exists(),
                "{} directories remain",
                count()
            );
            Ok(())
        })
        .await?;
        agent.kill().await?;
        left.push(count());
    }
    cluster.note(format!("directories left after each kill: {left:?} of 100"));
    let agent = halting(&site).await?;
    site.successor("web", &uid).await?;
    ensure!(!site.dir(&uid).exists(), "the old pod's files still exist");
    let status = site.record().await?.data["status"].clone();
    ensure!(wiped(&status) == "True", "{status}");
    agent.stop().await?;
    belayer.stop().await
}

fn plain(site: &Site) -> crate::harness::BelayerOptions {
    let roots = format!("nodeAgent:\n  roots: [{}]\n", site.root().display());
    site.agent_options().config(&roots)
}
