//! `stuck --watch` and `explain --watch`.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use belayer_sandbox::{Actor, Answer, Fault, Gvr, Match, Patch, Subresource, Verb, WriteOptions};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::{TOOL, World};

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_after_changes_and_ends_after_the_deletion() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let mut command = world.command(&["explain", "cm/a", "--watch"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    // The first explanation is printed: what comes now is a change.
    eventually("more requests", || world.requests() > 5).await;
    release(&world);
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

/// What is printed remains a stream of documents, also at the end.
#[rstest]
#[case("json")]
#[case("yaml")]
#[tokio::test(flavor = "multi_thread")]
async fn data_of_a_watch_is_a_stream_of_documents(#[case] format: &str) {
    let world = World::new().await;
    let map = json!({"metadata": {"name": "a", "finalizers": ["strimzi.io/topic-operator"]}});
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    let arguments = ["explain", "cm/a", "--watch", "-o", format];
    let mut watching = Watching::start(world.command(&arguments));
    watching.prints("Explanation").await;
    world.delete(&Gvr::CONFIGMAPS, Some("default"), "a");
    watching.prints("controller-gone").await;
    release(&world);
    watching.reports("configmaps default/a is deleted.").await;
    assert_eq!(watching.ends().await, 0);
    let printed = watching.printed.lock().unwrap().clone();
    let documents: Vec<Value> = match format {
        "json" => serde_json::Deserializer::from_str(&printed)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap(),
        _ => {
            let documents = printed.split("---\n");
            let read = documents.map(|document| serde_saphyr::from_str(document).unwrap());
            read.collect()
        }
    };
    assert_eq!(documents.len(), 2, "{printed}");
    for document in documents {
        assert_eq!(document["kind"], "Explanation", "{printed}");
    }
}

/// The server fails for a while, then the object is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn explain_waits_for_a_server_that_is_unavailable() {
    let (world, mut watching) = explained().await;
    let reads = Match::verb(Verb::Get).resource("configmaps").client(TOOL);
    let down = Fault::on(reads).answer(Answer::service_unavailable());
    let down = world.sandbox.faults().inject(down);
    eventually("a failed read", || down.hits() > 1).await;
    down.remove();
    release(&world);
    watching.prints("configmaps default/a is deleted.").await;
    assert_eq!(watching.ends().await, 0);
    let reported = watching.errors.lock().unwrap().clone();
    assert_eq!(reported.matches("; trying again").count(), 1, "{reported}");
}

/// No later read can succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_credentials_are_not_accepted() {
    let (world, mut watching) = explained().await;
    world.refuse_credentials();
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

/// The object of this name is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_object_is_deleted_and_created_again() {
    let (world, mut watching) = explained().await;
    let reads = Match::verb(Verb::Get).resource("configmaps").client(TOOL);
    let down = Fault::on(reads).answer(Answer::service_unavailable());
    let down = world.sandbox.faults().inject(down);
    eventually("a failed read", || down.hits() > 1).await;
    release(&world);
    let map = json!({"metadata": {"name": "a"}});
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    down.remove();
    let says = "configmaps default/a is deleted; another object of this name exists.";
    watching.prints(says).await;
    assert_eq!(watching.ends().await, 0);
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

/// A command that has explained a stuck ConfigMap, and goes on.
async fn explained() -> (World, Watching) {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let watching = Watching::start(world.command(&["explain", "cm/a", "--watch"]));
    watching.prints("is stuck in Terminating").await;
    (world, watching)
}

/// Removes the finalizer of the stuck ConfigMap.
fn release(world: &World) {
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let (actor, options) = (Actor::new("test"), WriteOptions::default());
    let cluster = world.sandbox.cluster();
    cluster
        .patch(
            &actor,
            &Gvr::CONFIGMAPS,
            Some("default"),
            "a",
            none,
            Subresource::None,
            &options,
        )
        .unwrap();
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "no {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A command that runs until it is ended, and what it has printed.
pub(crate) struct Watching {
    child: Child,
    printed: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
}

/// What is read from a pipe.
fn read(mut pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let all = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&all);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]);
            into.lock().unwrap().push_str(&text);
        }
    });
    all
}

impl Watching {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
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

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Waits until it has reported this on standard error.
    pub(crate) async fn reports(&self, what: &str) {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        eventually(what, || words(&self.errors.lock().unwrap()).contains(what)).await;
    }

    /// The address that it has bound for this flag.
    pub(crate) async fn listens(&self, flag: &str) -> String {
        let what = format!("listening for {flag}");
        self.reports(&what).await;
        let errors = self.errors.lock().unwrap();
        let line = errors.lines().find(|line| line.contains(&what)).unwrap();
        let address = line.split("address=").nth(1).unwrap();
        address.split_whitespace().next().unwrap().to_owned()
    }

    /// Its exit code.
    pub(crate) async fn ends(&mut self) -> i32 {
        let mut code = None;
        eventually("end of the command", || {
            code = self
                .child
                .try_wait()
                .unwrap()
                .and_then(|status| status.code());
            code.is_some()
        })
        .await;
        code.unwrap()
    }

    async fn prints(&self, what: &str) {
        eventually(what, || self.printed.lock().unwrap().contains(what)).await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
