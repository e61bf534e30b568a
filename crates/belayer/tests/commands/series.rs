//! What `run` and `node-agent` serve on `/metrics`.

use std::collections::BTreeSet;

use belayer_metrics::exposition::parse;
use belayer_metrics::{ALL, WORKER_PANICS};
use rstest::rstest;

use crate::status::get;
use crate::watch::Watching;
use crate::world::World;

/// Alerts and dashboards name the labels of the table: a series with others is never in their sums.
#[rstest]
#[case::controllers(&["run", "--leader-elect=false", "--debug-bind-address=0"])]
#[cfg_attr(feature = "node-agent", case::a_node_agent(&["node-agent", "--node-name=n1"]))]
#[tokio::test(flavor = "multi_thread")]
async fn the_labels_of_each_series_are_those_of_the_table(#[case] arguments: &[&str]) {
    let world = World::new().await;
    let mut command = world.command(arguments);
    command.arg("--metrics-bind-address=127.0.0.1:0");
    // A node on which nothing runs.
    let node = tempfile::tempdir().unwrap();
    if arguments[0] == "node-agent" {
        for place in ["proc", "sys/fs/cgroup", "wiped"] {
            std::fs::create_dir_all(node.path().join(place)).unwrap();
        }
        let root = node.path().join("wiped");
        command.arg("--host-root").arg(node.path());
        command.arg("--root").arg(root);
    }
    let running = Watching::start(command);
    let address = running.listens("metrics-bind-address").await;
    let answer = get(&address, "/metrics", &address, "\r\n0\r\n").await;
    let text = answer.split_once("\r\n\r\n").unwrap().1;
    let families = parse(text).unwrap();
    assert!(families.contains_key(WORKER_PANICS), "{text}");
    for (name, family) in families {
        let metric = ALL.iter().find(|metric| metric.name == name).unwrap();
        let declared: BTreeSet<_> = metric.labels.iter().map(|label| label.name).collect();
        for sample in family.samples {
            let labels = sample.labels.keys().map(String::as_str);
            let labels: BTreeSet<_> = labels.filter(|label| *label != "le").collect();
            assert_eq!(labels, declared, "{}", sample.name);
        }
    }
}
