//! `belayer status`.

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{TOOL, World, gates};

const OWN: &str = "belayer-system";

pub(crate) fn pod(world: &World, namespace: &str, name: &str, metadata: Value) -> String {
    let mut object = json!({
        "metadata": metadata,
        "spec": { "containers": [{ "name": "main", "image": "registry.example/belayer/belayer:0.1.0" }] },
    });
    object["metadata"]["name"] = json!(name);
    world.create(&Gvr::PODS, Some(namespace), object);
    let found = world
        .sandbox
        .cluster()
        .get(&Gvr::PODS, Some(namespace), name)
        .unwrap();
    found["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(crate) fn delete(world: &World, namespace: &str, name: &str) {
    let actor = belayer_sandbox::Actor::new("test");
    let cluster = world.sandbox.cluster();
    cluster
        .delete(
            &actor,
            &Gvr::PODS,
            Some(namespace),
            name,
            &Default::default(),
        )
        .unwrap();
}

/// The status line, the headers and the beginning of the body of an answer.
pub(crate) async fn get(address: &str, path: &str, host: &str, until: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let read = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&answer).contains(until) {
            let read = stream.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            answer.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8(answer).unwrap()
    };
    let limit = std::time::Duration::from_secs(60);
    let answer = tokio::time::timeout(limit, read).await;
    answer.unwrap_or_else(|_| panic!("no answer for {path}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_held_objects_to_this_host_only() {
    use std::io::BufRead as _;
    let world = World::new().await;
    namespace(&world, "ci");
    let held = json!({ "finalizers": ["belayer.dev/pod-status"] });
    pod(&world, "ci", "waits", held.clone());
    pod(&world, "ci", "runs", held);
    delete(&world, "ci", "waits");
    recreation(&world, "ci", "rejected");
    let mut command = world.command(&["status", "--serve", "127.0.0.1:0"]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = child.stderr.take().unwrap();
    std::io::BufReader::new(stderr)
        .read_line(&mut line)
        .unwrap();
    let address = line.split("http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap().to_owned();

    let page = get(&address, "/", &address, "</html>").await;
    assert!(
        page.contains("content-security-policy: default-src 'none'"),
        "{page}"
    );
    let body = get(&address, "/status.json", "localhost", "\"events\":").await;
    let body = body.split("\r\n\r\n").nth(1).unwrap();
    let (waits, runs) = (
        body.find("\"waits\"").unwrap(),
        body.find("\"runs\"").unwrap(),
    );
    assert!(waits < runs, "{body}");
    let shown = body.split("\"recreations\":").nth(1).unwrap();
    for says in [
        r#""podName":"rejected","maxRetries":3"#,
        r#""phase":"Waiting","attempts":1,"nodeName":"node-1","reason":"OutOfcpu""#,
    ] {
        assert!(shown.contains(says), "{says}: {shown}");
    }
    let stream = get(&address, "/status.events", &address, "data: {").await;
    assert!(stream.contains("text/event-stream"), "{stream}");
    for (path, host) in [
        ("/", "evil.example.com"),
        ("/status.json", "127.0.0.1.example.com"),
    ] {
        let answer = get(&address, path, host, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    world.wrote_nothing();
}

/// The kind of the records, and one as pod-recreation writes it.
fn recreation(world: &World, namespace: &str, pod: &str) {
    use belayer_pod_recreation::api::{self, Phase, Policy, Spec, Status};
    let uid = "60e00000-0000-4000-8000-000000000000";
    let record = json!({
        "apiVersion": api::resource().api_version(), "kind": api::KIND,
        "metadata": { "name": api::record_name(pod, uid), "namespace": namespace },
        "spec": Spec {
            pod_name: pod.to_owned(),
            first_uid: uid.to_owned(),
            policy: Policy::default(),
            pod: json!({}),
        },
        "status": Status {
            phase: Some(Phase::Waiting),
            attempts: 1,
            node_name: Some("node-1".to_owned()),
            reason: Some("OutOfcpu".to_owned()),
            ..Status::default()
        },
    });
    let crd = belayer_pod_recreation::crd::YAML;
    for text in [crd, &record.to_string()] {
        world.sandbox.load_yaml(text).unwrap();
    }
}

pub(crate) fn namespace(world: &World, name: &str) {
    world.create(
        &Gvr::NAMESPACES,
        None,
        json!({ "metadata": { "name": name } }),
    );
}

/// Two replicas, one of them ready, and the Lease of the ready one.
fn installed(world: &World) {
    namespace(world, OWN);
    for name in ["belayer-a", "belayer-b"] {
        let labels = json!({ "labels": { "app.kubernetes.io/name": "belayer" } });
        pod(world, OWN, name, labels);
    }
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    world
        .sandbox
        .cluster()
        .patch(
            &belayer_sandbox::Actor::new("test"),
            &Gvr::PODS,
            Some(OWN),
            "belayer-a",
            belayer_sandbox::Patch::Merge(ready),
            belayer_sandbox::Subresource::Status,
            &Default::default(),
        )
        .unwrap();
    lease(world, "belayer", "belayer-a_0");
}

/// A Lease that was renewed just now.
pub(crate) fn lease(world: &World, name: &str, holder: &str) {
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    let now = jiff::Timestamp::now();
    world.create(
        &leases,
        Some(OWN),
        json!({
            "metadata": { "name": name },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 3600,
                "renewTime": format!("{now:.6}"),
            },
        }),
    );
}

/// A pod whose workflow is being deleted: the release of its hold is denied, and the pod itself is not deleted yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_release_counts_before_the_object_is_deleted() {
    let world = World::new().await;
    installed(&world);
    namespace(&world, "shop");
    let held = json!({ "finalizers": ["belayer.dev/pod-status"] });
    let uid = pod(&world, "shop", "build-1", held);
    denied(&world, "belayer", &uid);
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let line = answer.out.lines().find(|line| line.starts_with("shop "));
    let numbers: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(numbers, ["shop", "pod-finalizer", "1", "0", "1", "-"]);
}

fn denied(world: &World, component: &str, uid: &str) {
    world.create(
        &Gvr::EVENTS,
        Some("shop"),
        json!({
            "metadata": { "name": format!("{component}.1") },
            "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "build-1", "uid": uid },
            "reason": "ReleaseDenied", "type": "Warning", "message": "no",
            "source": { "component": component },
        }),
    );
}

/// Two held pods, one deleted and its release denied; one that is not held.
fn held(world: &World) {
    namespace(world, "shop");
    let held = json!({ "finalizers": ["belayer.dev/pod-status"] });
    let uid = pod(world, "shop", "build-1", held.clone());
    let other = pod(world, "shop", "build-2", held);
    // Only Events of Belayer count.
    denied(world, "another", &other);
    pod(world, "shop", "plain", json!({}));
    delete(world, "shop", "build-1");
    denied(world, "belayer", &uid);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_held_waiting_and_denied_objects_and_the_leader() {
    let world = World::new().await;
    installed(&world);
    held(&world);
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let age = regular(&answer.out);
    let expected = "\
Belayer holds 2 objects on Kubernetes v1.36.3+belayer-sandbox; 1 deletion
  waits for it.
Version 0.1.0 in belayer-system: 1 of 2 pods ready; belayer-a_0 is the leader,
  renewed <age> ago.

CONTROLLER           HELD   WAITING   DENIED   OLDEST
pod-finalizer        2      1         1        <age> shop/pods/build-1
workflow-finalizer   0      0         0        -
pod-recreation       0      0         0        -
pvc-protection       0      0         0        -

NAMESPACE   CONTROLLER      HELD   WAITING   DENIED   OLDEST
shop        pod-finalizer   2      1         1        <age> shop/pods/build-1

Warning: pod-finalizer is not allowed to release 1 object: see the Event
  ReleaseDenied on each; `belayer check --service-account` lists missing
  permissions

Unknown: whether pod-finalizer keeps unselected objects held: could not query
  a pod of Belayer; with --config FILE, status counts the unselected objects
  itself

Note: could not read the metrics of pod belayer-a through the API server's
  proxy: not served
";
    assert_eq!(age, expected);
}

/// Removes ages from the text.
fn regular(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end();
        let is_age = bare
            .strip_suffix('s')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
        if is_age {
            word.replace(bare, "<age>")
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_has_its_documented_form() {
    let world = World::new().await;
    installed(&world);
    held(&world);
    let answer = world.run(&["status", "-ojson"]).await;
    let status = answer.json();
    assert_eq!(status["apiVersion"], "inspect.belayer.dev/v1alpha1");
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["installation"]["leader"]["identity"], "belayer-a_0");
    assert_eq!(status["installation"]["pods"][0]["leads"], true);
    let pods = &status["components"][0];
    assert_eq!(pods["component"], "pod-finalizer");
    assert_eq!((&pods["held"], &pods["waiting"]), (&json!(2), &json!(1)));
    assert_eq!(pods["denied"], 1);
    assert_eq!(pods["oldest"]["name"], "build-1");
    assert_eq!(status["namespaces"][0]["namespace"], "shop");
    let yaml = world.run(&["status", "-oyaml"]).await;
    let read: Value = serde_saphyr::from_str(&yaml.out).unwrap();
    assert_eq!(read["components"][0]["held"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_cluster_needs_no_action() {
    let world = World::new().await;
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(
        answer
            .out
            .starts_with("No object has a finalizer of Belayer (Kubernetes v"),
        "{}",
        answer.out
    );
    assert!(
        answer
            .out
            .contains("It does not run: no pod in belayer-system"),
        "{}",
        answer.out
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_without_a_running_belayer_need_action() {
    let world = World::new().await;
    held(&world);
    let answer = world.run(&["status", "-n", "shop"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    assert!(
        answer
            .out
            .contains("Warning: 2 objects are held and no pod in belayer-system is ready"),
        "{}",
        answer.out
    );
    let answer = world.run(&["status", "-n", "default"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_may_not_be_listed_is_reported() {
    let world = World::new().await;
    let lists = |resource: &str| Match::verb(Verb::List).resource(resource).client(TOOL);
    let no = Fault::on(lists("persistentvolumeclaims")).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 4, "{}{}", answer.out, answer.err);
    assert!(
        answer.out.starts_with("Belayer holds at least 0 objects"),
        "{}",
        answer.out
    );
    assert!(
        answer
            .out
            .contains("Unknown: what pvc-protection holds: persistentvolumeclaims: not allowed"),
        "{}",
        answer.out
    );
}

/// A Lease that was renewed this long ago, with a duration of 15 s.
fn renewed(world: &World, seconds_ago: i64) {
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds_ago);
    let patch = json!({ "spec": { "renewTime": format!("{at:.6}"), "leaseDurationSeconds": 15 } });
    let cluster = world.sandbox.cluster();
    cluster
        .patch(
            &belayer_sandbox::Actor::new("test"),
            &leases,
            Some(OWN),
            "belayer",
            belayer_sandbox::Patch::Merge(patch),
            belayer_sandbox::Subresource::None,
            &Default::default(),
        )
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_has_no_leader() {
    let world = World::new().await;
    installed(&world);
    held(&world);
    // By a clock that is 20 s ahead, a renewal of just now is older than the duration of the Lease.
    renewed(&world, 20);
    let status = world.run(&["status", "-ojson"]).await.json();
    assert_eq!(status["installation"]["leader"]["lapsed"], false);
    renewed(&world, 600);
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let text = answer.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "no leader, the last one was belayer-a_0",
        "Warning: no leader: belayer-a_0 has not renewed lease belayer-system/belayer in time",
    ] {
        assert!(text.contains(says), "{}", answer.out);
    }
    let status = world.run(&["status", "-ojson"]).await.json();
    assert_eq!(status["installation"]["leader"]["lapsed"], true);
    assert_eq!(status["installation"]["pods"][0]["leads"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_that_waits_longest_comes_first() {
    let world = World::new().await;
    let kept = json!({ "finalizers": ["belayer.dev/pod-status"] });
    for name in ["a-waits-not", "b-later", "c-first"] {
        namespace(&world, name);
        pod(&world, name, "p", kept.clone());
    }
    delete(&world, "c-first", "p");
    // Deletion timestamps are whole seconds.
    let seconds = || jiff::Timestamp::now().as_second();
    let first = seconds();
    while seconds() < first + 2 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    delete(&world, "b-later", "p");
    let status = world.run(&["status", "-ojson"]).await.json();
    let names: Vec<&str> = status["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["namespace"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["c-first", "b-later", "a-waits-not"]);
    assert_eq!(status["components"][0]["oldest"]["namespace"], "c-first");
    assert_eq!(status["components"][0]["waiting"], 2);
}

/// T2: pod-recreation has a Deployment of its own, with another Lease, which the gate names.
#[tokio::test(flavor = "multi_thread")]
async fn t2_the_leader_of_every_deployment_is_shown() {
    let world = World::new().await;
    installed(&world);
    held(&world);
    let pods = json!({ "labels": { "app.kubernetes.io/name": "belayer-pod-recreation" } });
    pod(&world, OWN, "belayer-pod-recreation-x", pods);
    let other = "belayer-pod-recreation";
    lease(&world, other, "belayer-pod-recreation-x_7");
    world.gate(
        OWN,
        &json!({
            "mode": "normal", "hold": "on", "lease.hold": format!("{OWN}/belayer"),
            "holdRecreations": "on", "lease.holdRecreations": format!("{OWN}/{other}"),
        }),
    );
    let status = world.run(&["status", "-ojson"]).await.json();
    let installation = &status["installation"];
    assert_eq!(installation["leader"]["identity"], "belayer-a_0");
    let others = installation["otherLeases"].as_array().unwrap();
    assert_eq!(others.len(), 1, "{installation}");
    assert_eq!(others[0]["lease"], format!("{OWN}/{other}"));
    assert_eq!(
        others[0]["leader"]["identity"],
        "belayer-pod-recreation-x_7"
    );
    let leading = installation["pods"].as_array().unwrap().iter();
    let leading: Vec<_> = leading.filter(|pod| pod["leads"] == true).collect();
    assert_eq!(leading.len(), 2, "{installation}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_gate_is_reported() {
    let world = World::new().await;
    installed(&world);
    world.gate(OWN, &json!({ "mode": "draining" }));
    let says = "gate belayer-system/belayer-gate: mode is draining";
    let answer = world.run(&["status"]).await;
    assert!(answer.out.contains(says), "{}", answer.out);
    let cluster = world.sandbox.cluster();
    let patch = belayer_sandbox::Patch::Merge(json!({ "data": { "mode": "normal" } }));
    cluster
        .patch(
            &belayer_sandbox::Actor::new("test"),
            &gates(),
            Some(OWN),
            "belayer-gate",
            patch,
            belayer_sandbox::Subresource::None,
            &Default::default(),
        )
        .unwrap();
    let answer = world.run(&["status"]).await;
    assert!(!answer.out.contains("draining"), "{}", answer.out);
}

/// T4: the gate of the whole cluster is closed, so the text must not claim that other namespaces are not affected.
#[tokio::test(flavor = "multi_thread")]
async fn t4_a_backlog_that_closed_the_whole_cluster_is_reported() {
    let world = World::new().await;
    installed(&world);
    let closed =
        json!({ "hold": "off", "backlog": "closed", "closed.shop": "backlog", "mode": "normal" });
    world.gate(OWN, &closed);
    for arguments in [&["status", "-ojson"][..], &["status", "-ojson", "-n", OWN]] {
        let status = world.run(arguments).await.json();
        let warnings = status["warnings"].to_string();
        assert!(
            warnings.contains("no hold is added to any pod"),
            "{arguments:?}: {warnings}"
        );
        assert!(!warnings.contains("not affected"), "{warnings}");
    }
    let warnings = world.run(&["status", "-ojson"]).await.json()["warnings"].to_string();
    assert!(warnings.contains("namespace shop"), "{warnings}");
}

/// A namespace that does not exist is an error, and the result for one namespace does not claim to cover all.
#[rstest]
#[case::status("status")]
#[case::stuck("stuck")]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_namespace_is_an_error(#[case] command: &str) {
    let world = World::new().await;
    held(&world);
    let answer = world.run(&[command, "-n", "shpo"]).await;
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.out.is_empty(), "{}", answer.out);
    assert!(
        answer.err.contains("namespace shpo does not exist"),
        "{}",
        answer.err
    );
    let names = Match::verb(Verb::Get).resource("namespaces").client(TOOL);
    let no = Fault::on(names).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let answer = world.run(&[command, "-n", "shpo"]).await;
    assert_ne!(
        answer.code, 1,
        "it may be there: {}{}",
        answer.out, answer.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counts_of_one_namespace_name_it() {
    let world = World::new().await;
    held(&world);
    let answer = world.run(&["status", "-n", "default"]).await;
    let says = "No object in namespace default has a finalizer of Belayer (Kubernetes v";
    assert!(answer.has(says), "{}", answer.out);
    let status = world
        .run(&["status", "-n", "default", "-ojson"])
        .await
        .json();
    assert_eq!(status["namespace"], "default");
}

#[rstest]
#[case(&["explain", "pod/a", "-n", ""])]
#[case(&["explain", "pod/a", "-n", "a/b"])]
#[case(&["stuck", "-n", "A"])]
#[case(&["status", "-n", "-"])]
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_namespace_name_is_wrong_usage(#[case] arguments: &[&str]) {
    let world = World::new().await;
    let answer = world.run(arguments).await;
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
    assert!(
        answer.err.contains("invalid namespace name"),
        "{}",
        answer.err
    );
}

/// Enough held pods to look like a mistake if no profile selects them.
fn many_held(world: &World) {
    namespace(world, "shop");
    let labels = json!({ "workflows.argoproj.io/workflow": "build" });
    for index in 0..30 {
        let held = json!({ "finalizers": ["belayer.dev/pod-status"], "labels": labels });
        pod(world, "shop", &format!("build-{index}"), held);
    }
}

fn config(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("belayer.yaml");
    std::fs::write(
        &file,
        format!("apiVersion: config.belayer.dev/v1alpha1\n{text}"),
    )
    .unwrap();
    let file = file.to_str().unwrap().to_owned();
    (dir, file)
}

/// A4: no pod of Belayer reports its counts, because it runs outside of the cluster or its metrics may not be
/// read.
#[rstest]
#[case::no_pod_of_it_selected("profiles: [{builtIn: argo, namespaces: {include: [nowhere]}}]", 3)]
#[case::all_are_selected("profiles: [{builtIn: argo}]", 0)]
#[tokio::test(flavor = "multi_thread")]
async fn a4_kept_holds_are_counted_by_the_configuration(#[case] profiles: &str, #[case] code: i32) {
    let world = World::new().await;
    installed(&world);
    many_held(&world);
    let (_dir, file) = config(&format!("podFinalizer:\n  {profiles}\n"));
    let answer = world.run(&["status", "--config", &file]).await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    let says = "Warning: pod-finalizer keeps 30 unselected objects held";
    assert_eq!(answer.out.contains(says), code == 3, "{}", answer.out);
    let command = format!("`belayer drain --unselected --config {file}`");
    assert_eq!(answer.has(&command), code == 3, "{}", answer.out);
}

/// Objects with the finalizer of this controller.
fn held_by(world: &World, component: &str) {
    if component == "pod-finalizer" {
        return many_held(world);
    }
    namespace(world, "shop");
    let path = format!(
        "{}/../../e2e/manifests/workflow-crd.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let crd = serde_saphyr::from_str(&text).unwrap();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd);
    let workflows = Gvr::new("argoproj.io", "v1alpha1", "workflows");
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "name": "build", "finalizers": ["belayer.dev/workflow-cleanup"] }, "spec": {},
    });
    world.create(&workflows, Some("shop"), workflow);
}

/// The Event of workflow-finalizer is about the cluster-scoped Namespace, so it is in the namespace `default`.
#[rstest]
#[case::of_pods("pod-finalizer", OWN, json!({ "kind": "Gate", "namespace": OWN, "name": "belayer-gate" }))]
#[case::of_workflows("workflow-finalizer", "default", json!({ "kind": "Namespace", "name": OWN }))]
#[tokio::test(flavor = "multi_thread")]
async fn a4_without_the_configuration_an_event_reports_kept_holds(
    #[case] component: &str,
    #[case] place: &str,
    #[case] object: Value,
) {
    let world = World::new().await;
    installed(&world);
    held_by(&world, component);
    let event = |name: &str, object: &Value| {
        let mut object = object.clone();
        object["uid"] = json!("u");
        world.create(
            &Gvr::EVENTS,
            Some(place),
            json!({
                "metadata": { "name": name }, "involvedObject": object,
                "reason": "MassReleaseHeldBack", "type": "Warning", "message": format!("30 of 30, {name}"),
                "source": { "component": "belayer" },
            }),
        );
    };
    // Of another installation of Belayer.
    let mut other = object.clone();
    other["name"] = json!("another");
    event("another.1", &other);
    let answer = world.run(&["status"]).await;
    assert_eq!(answer.code, 4, "{}{}", answer.out, answer.err);
    let says = format!("Unknown: whether {component} keeps unselected objects held");
    assert!(answer.has(&says), "{}", answer.out);
    event("belayer.1", &object);
    let answer = world.run(&["status", "-n", "shop"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let says = format!(
        "{component} keeps unselected objects held, according to an Event MassReleaseHeldBack of the last hour: 30 of 30, belayer.1"
    );
    assert!(answer.has(&says), "{}", answer.out);
}

/// With a wrong token nothing can be read: a status of zeros would be misleading.
#[rstest]
#[case(&["status"])]
#[case(&["status", "-n", "shop"])]
#[case(&["check"])]
#[case(&["stuck"])]
#[case(&["explain", "pod/a"])]
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_the_server_does_not_accept_are_an_error(#[case] arguments: &[&str]) {
    let world = World::new().await;
    world.refuse_credentials();
    let answer = world.run(arguments).await;
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.out.is_empty(), "{}", answer.out);
    let says = "does not accept the credentials";
    assert!(answer.err.contains(says), "{}", answer.err);
}
