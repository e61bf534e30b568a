//! The fixtures of stuck objects, which the scenarios use too, on the embedded API server. On a real one run
//! `cargo xtask e2e --provider local stuck`.

use std::path::PathBuf;
use std::time::Duration;

use belayer_e2e::harness::{Keep, RunOptions, Setting, Which, run};
use belayer_e2e::providers::Sandbox;
use belayer_e2e::scenarios;

#[tokio::test(flavor = "multi_thread")]
async fn every_fixture_prints_the_expected_text() {
    let options = RunOptions {
        names: vec!["stuck-".to_owned()],
        which: Which::Usual,
        keep: Keep::Nothing,
        setting: Setting {
            belayer: PathBuf::from(env!("CARGO_BIN_EXE_belayer")),
            quiet: Duration::from_secs(1),
            large: 1,
        },
    };
    let summary = run(&Sandbox, scenarios::all(), &options).await.unwrap();
    assert_eq!((summary.failed, summary.skipped), (0, 0), "{summary}");
    assert!(summary.passed >= 16, "{summary}");
}
