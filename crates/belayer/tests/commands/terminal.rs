//! What is printed on a terminal of 80 columns, which the program `script` of util-linux provides.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::world::{TOOL, World};

/// Runs the binary on a terminal where `input` is typed: its exit code, and what the terminal shows.
async fn on_terminal(world: &World, arguments: &str, input: &'static str) -> (i32, String) {
    let belayer = env!("CARGO_BIN_EXE_belayer");
    let line = format!("stty cols 80; exec {belayer} {arguments}");
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env("KUBECONFIG", world.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let ran = move || {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(ran).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // A carriage return overwrites what is on the line: the progress bar.
    let lines = text.lines().map(|line| {
        line.trim_end_matches('\r')
            .rsplit('\r')
            .next()
            .unwrap_or_default()
    });
    (
        output.status.code().unwrap(),
        lines.collect::<Vec<_>>().join("\n"),
    )
}

/// What is shown, without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        shown + end.map_or("", |end| &part[end + 1..])
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_is_coloured_and_fits() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let (code, text) = on_terminal(&world, "stuck", "").await;
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("[1] \u{1b}["), "{text}");
    let plain = plain(&text);
    assert!(plain.contains("\n[1] controller gone: "), "{plain}");
    crate::world::fits_80_columns(&plain);
}

/// Longer ones would be broken in the middle of a word.
#[rstest]
#[case("run --controllers=one-controller-with-a-long-name --set podFinalizer.workers=4")]
#[case("status --config /a/path/that/does/not/exist/and/is/rather/long/belayer.yaml")]
#[case("explain pod/a-pod-with-quite-a-long-name-that-does-not-exist-in-this-cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_wrapped_at_words(#[case] arguments: &str) {
    let world = World::new().await;
    let (code, text) = on_terminal(&world, arguments, "").await;
    assert!([1, 2].contains(&code), "{code}: {text}");
    let plain = plain(&text);
    assert!(plain.contains("error: "), "{plain}");
    crate::world::fits_80_columns(&plain);
}

#[rstest]
#[case::no("drain", "n\n", 2)]
#[case::the_alias("release-all", "\n", 2)]
#[case::yes("drain", "y\n", 0)]
#[tokio::test(flavor = "multi_thread")]
async fn drain_asks_on_a_terminal(
    #[case] command: &str,
    #[case] answer: &'static str,
    #[case] code: i32,
) {
    let world = World::new().await;
    let (ended, text) = on_terminal(&world, command, answer).await;
    let plain = plain(&text);
    assert_eq!(ended, code, "{plain}");
    assert!(plain.contains("Continue? [y/N]"), "{plain}");
    assert_eq!(plain.contains("nothing was changed"), code == 2, "{plain}");
    if code == 2 {
        let writes = world.sandbox.recorder().writes_by(TOOL);
        assert!(writes.is_empty(), "{writes:?}");
    }
}

/// Another configuration selects other objects, whose results are lost if their holds are removed.
#[rstest]
#[case::default("drain --unselected", 2, true)]
#[case::dry_run("drain --unselected --dry-run", 0, true)]
#[case::given("drain --unselected --config CONFIG", 2, false)]
#[case::dry_run_given("drain --unselected --dry-run --config CONFIG", 0, false)]
#[case::everything("drain", 2, false)]
#[tokio::test(flavor = "multi_thread")]
async fn drain_names_the_default_configuration_if_it_decides(
    #[case] arguments: &str,
    #[case] code: i32,
    #[case] is_named: bool,
) {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("belayer.yaml");
    std::fs::write(&file, "apiVersion: config.belayer.dev/v1alpha1\n").unwrap();
    let arguments = arguments.replace("CONFIG", file.to_str().unwrap());
    let (ended, text) = on_terminal(&world, &arguments, "n\n").await;
    assert_eq!(ended, code, "{text}");
    let plain = plain(&text);
    let words: Vec<&str> = plain.split_whitespace().collect();
    let says = "Decided by the default configuration. If Belayer runs with a configuration file, give it: --config FILE";
    assert_eq!(words.join(" ").contains(says), is_named, "{plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_does_not_ask_with_yes() {
    let world = World::new().await;
    let (code, text) = on_terminal(&world, "drain --yes", "").await;
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("Continue?"), "{text}");
}

/// Output that cannot be written is an error; a closed pipe is not, as in `belayer stuck | head`.
#[rstest]
#[case("stuck")]
#[case("stuck -ojson")]
#[case("explain namespace/default")]
#[case("status -oyaml")]
#[case("check")]
#[case("drain --dry-run")]
#[case("config")]
#[case("completions bash")]
#[case("__complete stuck -")]
#[case("man")]
#[case("crds")]
#[case("version")]
#[case("--help")]
#[tokio::test(flavor = "multi_thread")]
async fn output_that_cannot_be_written_is_an_error(#[case] arguments: &str) {
    let world = World::new().await;
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = world.command(&arguments);
    command.stdout(full);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let says = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{says}");
    assert!(
        says.contains("cannot write to standard output: No space left"),
        "{says}"
    );
    assert!(!says.contains("panicked"), "{says}");

    let mut command = world.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let closed = move || {
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        child.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(closed).await.unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(
        !says.contains("cannot write") && !says.contains("panicked"),
        "{says}"
    );
    assert!(
        output
            .status
            .code()
            .is_some_and(|code| code != 1 && code < 100),
        "{output:?}"
    );
}

/// As in `belayer stuck --watch | head -1`: nothing more can be printed, although nothing changes.
#[rstest]
#[case("stuck --watch")]
#[case("explain cm/a --watch")]
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_its_reader_closes_the_pipe(#[case] arguments: &str) {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut command = world.command(&arguments);
    command.stdout(Stdio::piped());
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_u8().await.unwrap();
    drop(stdout);
    let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
    let ended = ended.expect("it goes on").unwrap();
    assert_eq!(ended.code(), Some(0));
}
