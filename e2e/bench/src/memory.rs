//! The memory of a million slim pods, and whether it grows linearly.

use anyhow::{Context as _, Result, ensure};
use belayer_subject::memory::Weight;
use tokio::process::Command;

use super::report::Limit;
use super::{Goal, Report, Testbed};

const OBJECTS: usize = 1_000_000;

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let most = testbed.size.unwrap_or(OBJECTS);
    let title = format!("Slim pods with their index entries, up to {most}");
    let metrics = [
        ("allocated per pod", "bytes"),
        ("resident per pod", "bytes"),
        ("allocations per pod", "count"),
        ("peak of a relist", "× resident"),
    ];
    let mut report = Report::new("memory", title, &metrics);
    let name = |objects: usize| format!("{objects} pods");
    let sizes = [most / 10, most * 3 / 10, most];
    for _ in 0..testbed.rounds {
        for objects in sizes {
            let weight = weigh(&testbed, objects).await?;
            let each = |count: usize| count as f64 / objects as f64;
            let figures = [
                each(weight.allocated),
                weight.resident as f64 / objects as f64,
                each(weight.allocations),
                weight.relist_peak as f64 / weight.resident as f64,
            ];
            report.round(&name(objects), &figures);
        }
    }
    let [least, _, most] = sizes.map(name);
    report.limit(Limit {
        metric: "allocated per pod",
        of: most.clone(),
        at_most: 500.0,
    });
    report.limit(Limit {
        metric: "resident per pod",
        of: most.clone(),
        at_most: 400.0,
    });
    report.limit(Limit {
        metric: "peak of a relist",
        of: most.clone(),
        at_most: 1.15,
    });
    report.goal(Goal {
        metric: "allocated per pod",
        of: most,
        against: least,
        at_most: 1.05,
    });
    report.note(
        "every pod has a controller shared with nine others and a finalizer of Belayer, and one in \
         five uses a PVC; the indexes are those of all components",
    );
    Ok(report)
}

async fn weigh(testbed: &Testbed, objects: usize) -> Result<Weight> {
    let output = Command::new(&testbed.subject)
        .args(["memory", "--objects", &objects.to_string()])
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("parse the printed weight")
}
