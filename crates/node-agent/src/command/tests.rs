use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rstest::rstest;

use super::*;
use crate::layout::Layout;

const UID: &str = "0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

fn pod() -> Pod {
    Pod {
        key: ObjectKey::new("shop", "web-{podUID}; rm -rf /"),
        uid: PodUid::parse(UID).unwrap(),
    }
}

fn places() -> Vec<Place> {
    let layout = Layout::new(["/ws", "/cache"], [""; 0]).unwrap();
    layout.places(&pod().uid).collect()
}

fn shell(script: &str, seconds: u64) -> Command {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Command::new("hook", argv, seconds).unwrap()
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}

async fn run(command: &Command) -> Result<(), RunError> {
    let never = CancellationToken::new();
    command.run(&pod(), &places(), far(), &never).await
}

fn script(dir: &Path, text: &str) -> String {
    let path = dir.join("hook");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn arguments_and_environment_name_the_pod_without_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let program = script(
        dir.path(),
        &format!(
            "{{ for a in \"$@\"; do echo \"$a\"; done; env | grep ^POD_ | sort; env | grep -c HOME; }} > {}; true",
            out.display()
        ),
    );
    let argv = vec![
        program,
        "--uid={podUID}".into(),
        "{podNamespace}/{podName}".into(),
        "{\"json\": {}}".into(),
    ];
    let command = Command::new("hook", argv, 30).unwrap();
    command.check().unwrap();
    run(&command).await.unwrap();
    let expected = format!(
        "--uid={UID}\nshop/web-{{podUID}}; rm -rf /\n{{\"json\": {{}}}}\n\
         POD_NAME=web-{{podUID}}; rm -rf /\nPOD_NAMESPACE=shop\nPOD_PATHS=/ws/{UID}:/cache/{UID}\n\
         POD_UID={UID}\n0\n"
    );
    assert_eq!(fs::read_to_string(out).unwrap(), expected);
}

#[tokio::test]
async fn a_failure_shows_the_end_of_the_output() {
    let error = run(&shell(
        "yes x | head -c 100000; echo >&2 the end; exit 3",
        30,
    ))
    .await
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("hook failed: exit status: 3: "),
        "{error}"
    );
    assert!(error.ends_with("x the end"), "{error}");
    assert!(error.len() < 600, "{error}");
}

#[tokio::test]
async fn a_program_that_times_out_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $! > {0}; echo $$ >> {0}; wait; wait",
        pids.display()
    );
    let error = run(&shell(&script, 2)).await.unwrap_err();
    assert!(matches!(error, RunError::Timeout { .. }), "{error}");
    let text = fs::read_to_string(&pids).unwrap();
    assert_eq!(text.lines().count(), 2);
    all_ended(&text).await;
}

#[tokio::test]
async fn background_processes_of_a_program_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!("sleep 1000 & echo $! > {}", pids.display());
    run(&shell(&script, 60)).await.unwrap();
    all_ended(&fs::read_to_string(&pids).unwrap()).await;
}

/// The agent is the first process of its container: what a program leaves behind becomes its child, and would stay a zombie.
#[tokio::test]
async fn a_program_leaves_no_zombies() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let left = || -> Vec<String> {
        let text = fs::read_to_string(&pids).unwrap();
        let exists = |pid: &&str| Path::new("/proc").join(pid).exists();
        text.lines().filter(exists).map(str::to_owned).collect()
    };
    let background = format!("sleep 1000 & echo $! > {}", pids.display());
    run(&shell(&background, 60)).await.unwrap();
    assert!(left().is_empty(), "{:?}", left());
    // The agent stops waiting for it.
    fs::remove_file(&pids).unwrap();
    let hangs = shell(&format!("{background}; wait"), 60);
    tokio::select! {
        ended = run(&hangs) => panic!("{ended:?}"),
        () = async { while !fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        } } => {}
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", left());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_cancelled_program_gets_sigterm_first() {
    let dir = tempfile::tempdir().unwrap();
    let (begun, ended) = (dir.path().join("begun"), dir.path().join("ended"));
    let script = format!(
        "trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.1; done",
        ended.display(),
        begun.display()
    );
    let (command, cancel) = (shell(&script, 600), CancellationToken::new());
    let token = cancel.clone();
    let running = tokio::spawn(async move { command.run(&pod(), &places(), far(), &token).await });
    while !begun.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    assert!(ended.exists(), "no SIGTERM");
}

#[tokio::test]
async fn a_missing_program_is_reported() {
    let command = Command::new("hook", vec!["/nowhere/hook".into()], 5).unwrap();
    let text = command.check().unwrap_err().to_string();
    assert!(
        text.contains("/nowhere/hook") && text.contains("No such file"),
        "{text}"
    );
    let error = run(&command).await.unwrap_err();
    assert!(matches!(error, RunError::Start { .. }), "{error}");
    let directory = Command::new("hook", vec!["/usr".into()], 5).unwrap();
    assert!(directory.check().is_err());
}

#[rstest]
#[case::nothing(&[], 5, "needs a program")]
#[case::relative(&["hook"], 5, "absolute path")]
#[case::a_placeholder_in_the_program(&["/opt/{podName}"], 5, "absolute path")]
#[case::an_unknown_placeholder(&["/bin/x", "{podIP}"], 5, "the placeholders are {podUID}")]
#[case::no_time(&["/bin/x"], 0, "from 1 to 3600")]
fn invalid_commands_are_rejected(#[case] argv: &[&str], #[case] seconds: u64, #[case] says: &str) {
    let argv = argv.iter().map(|text| (*text).to_owned()).collect();
    let error = Command::new("hook", argv, seconds).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

/// Waits until none of these processes is alive; a zombie is not.
async fn all_ended(pids: &str) {
    let alive = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        !stat.is_empty() && !state.starts_with('Z')
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while pids.lines().any(alive) {
        assert!(Instant::now() < deadline, "still alive: {pids}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
