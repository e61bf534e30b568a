//! `stuck --watch` and `explain --watch`.

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use serde_json::json;

use crate::world::{TOOL, World};

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_after_changes_and_ends_after_the_deletion() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let mut command = world.command(&["explain", "cm/a", "--watch"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The first explanation is printed: what comes now is a change.
    eventually("more requests", || world.requests() > 5).await;
    let none = belayer_sandbox::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    patch(&world, &none);
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("controller gone"), "{text}");
    assert!(
        text.ends_with("configmaps default/a is deleted.\n"),
        "{text}"
    );
    world.wrote_nothing();
}

/// The server fails for a while, then the object is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn explain_waits_for_a_server_that_is_unavailable() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let mut watching = Watching::start(world.command(&["explain", "cm/a", "--watch"]));
    watching.prints("is stuck in Terminating").await;
    let reads = Match::verb(Verb::Get).resource("configmaps").client(TOOL);
    let down = Fault::on(reads).answer(Answer::service_unavailable());
    let down = world.sandbox.faults().inject(down);
    eventually("a failed read", || down.hits() > 1).await;
    down.remove();
    let none = belayer_sandbox::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    patch(&world, &none);
    watching.prints("configmaps default/a is deleted.").await;
    assert_eq!(watching.ends().await, 0);
    let reported = watching.errors.lock().unwrap().clone();
    assert_eq!(reported.matches("; trying again").count(), 1, "{reported}");
}

/// No later read can succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_credentials_are_not_accepted() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let mut watching = Watching::start(world.command(&["explain", "cm/a", "--watch"]));
    watching.prints("is stuck in Terminating").await;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized",
        "message": "Unauthorized",
    });
    let no = Fault::on(Match::any().client(TOOL));
    let no = no.answer(Answer::raw(401, "application/json", status.to_string()));
    let _no = world.sandbox.faults().inject(no);
    assert_eq!(watching.ends().await, 1);
    let reported = watching.errors.lock().unwrap().clone();
    let says = "does not accept the credentials";
    assert!(reported.contains(says), "{reported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_kind_is_deleted() {
    let world = World::new().await;
    let widgets = world.widgets();
    let widget = json!({ "apiVersion": "stuck.example.com/v1", "kind": "Widget", "metadata": { "name": "a" } });
    world.create(&widgets, Some("default"), widget);
    let mut watching = Watching::start(world.command(&["explain", "widgets/a", "--watch"]));
    watching.prints("is not being deleted").await;
    world.delete(&widgets, Some("default"), "a");
    let definition = "widgets.stuck.example.com";
    world.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
    assert_eq!(watching.ends().await, 0);
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "no {what}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// A command that runs until it is ended, and what it has printed.
struct Watching {
    child: std::process::Child,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
    errors: std::sync::Arc<std::sync::Mutex<String>>,
}

/// What is read from a pipe.
fn read(mut pipe: impl std::io::Read + Send + 'static) -> std::sync::Arc<std::sync::Mutex<String>> {
    let all = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let into = std::sync::Arc::clone(&all);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]);
            into.lock().unwrap().push_str(&text);
        }
    });
    all
}

impl Watching {
    fn start(mut command: std::process::Command) -> Self {
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let printed = read(child.stdout.take().unwrap());
        let errors = read(child.stderr.take().unwrap());
        Self {
            child,
            printed,
            errors,
        }
    }

    /// Its exit code.
    async fn ends(&mut self) -> i32 {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(std::time::Instant::now() < deadline, "it goes on");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    async fn prints(&self, what: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !self.printed.lock().unwrap().contains(what) {
            let printed = self.printed.lock().unwrap().clone();
            assert!(std::time::Instant::now() < deadline, "no {what}: {printed}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_watches() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let watching = Watching::start(world.command(&["stuck", "-o", "name", "--watch"]));
    watching.prints("configmaps/a -n default\n").await;
    world.stuck_config_map("b", "strimzi.io/topic-operator", json!({}));
    watching
        .prints("\nconfigmaps/a -n default\nconfigmaps/b -n default\n")
        .await;
    world.wrote_nothing();
}

fn patch(world: &World, patch: &belayer_sandbox::Patch) {
    use belayer_sandbox::{Actor, Gvr, Subresource, WriteOptions};
    world
        .sandbox
        .cluster()
        .patch(
            &Actor::new("test"),
            &Gvr::CONFIGMAPS,
            Some("default"),
            "a",
            patch.clone(),
            Subresource::None,
            &WriteOptions::default(),
        )
        .unwrap();
}
