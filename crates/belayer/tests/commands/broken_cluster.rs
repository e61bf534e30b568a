//! The output of `belayer stuck` that the README shows.

use std::path::Path;

use crate::world::World;

const CLUSTER: &str = "../../e2e/fixtures/broken-cluster.yaml";
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
const BEGIN: &str = "<!-- stuck -->\n```text\n";
const END: &str = "```\n<!-- end stuck -->\n";

/// Without ages and with lines joined, which differ from run to run.
fn normal(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let number = word.trim_end_matches(['s', 'm', 'h', 'd']);
        let is_age = number != word && number.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_age = is_age && number.starts_with(|c: char| c.is_ascii_digit());
        if is_age { "<age>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// After a change of a text run this test with `UPDATE_SNAPSHOTS=1`.
#[tokio::test(flavor = "multi_thread")]
async fn the_readme_shows_what_stuck_prints() {
    let world = World::new().await;
    let cluster = Path::new(env!("CARGO_MANIFEST_DIR")).join(CLUSTER);
    world.sandbox.load(cluster).unwrap();
    let stuck = world.run(&["stuck"]).await;
    assert_eq!(stuck.code, 3, "{}", stuck.err);
    let readme = std::fs::read_to_string(README).unwrap();
    let (head, rest) = readme.split_once(BEGIN).unwrap();
    let (shown, tail) = rest.split_once(END).unwrap();
    if normal(shown) == normal(&stuck.out) {
        return;
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let page = format!("{head}{BEGIN}{}{END}{tail}", stuck.out);
        std::fs::write(README, page).unwrap();
        return;
    }
    panic!(
        "the README is not up to date: run UPDATE_SNAPSHOTS=1 cargo test --workspace --test commands\n{}",
        stuck.out
    );
}
