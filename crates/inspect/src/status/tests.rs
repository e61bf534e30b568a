use belayer_core::executor::Bounds;
use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};
use rstest::rstest;

use super::*;
use crate::reader::Reader;
use crate::text::{Detail, Plain, Style};

/// A query about objects of this namespace, or of all, that nothing holds.
pub(super) fn query(namespace: Option<&str>) -> Query {
    Query {
        own_namespace: "belayer-system".to_owned(),
        lease: None,
        namespace: namespace.map(str::to_owned),
        holds: Vec::new(),
        config: None,
        client: "test",
        objects: 10,
    }
}

fn oldest(name: &str, age: i64) -> Option<Oldest> {
    Some(Oldest {
        resource: "pods".into(),
        namespace: "shop".into(),
        name: name.into(),
        deletion_timestamp: Timestamp::UNIX_EPOCH,
        age_seconds: age,
    })
}

fn status() -> Status {
    let waiting = Numbers {
        held: 1200,
        waiting: 12,
        denied: 1,
        oldest: oldest("build-1", 840),
    };
    Status {
        api_version: API_VERSION,
        kind: "Status",
        versions: Versions {
            server: Some("v1.36.3".into()),
            client: "0.1.0",
        },
        namespace: None,
        installation: Installation {
            namespace: "belayer-system".into(),
            leader: Some(Leader {
                identity: "belayer-7d9c_1".into(),
                renewed: None,
                renewed_seconds_ago: Some(2),
                lapsed: false,
            }),
            other_leases: Vec::new(),
            unread_leases: Vec::new(),
            pods: Some(vec![
                Replica {
                    name: "belayer-7d9c".into(),
                    version: "0.1.0".into(),
                    ready: true,
                    leads: true,
                },
                Replica {
                    name: "belayer-8a".into(),
                    version: "0.1.0".into(),
                    ready: false,
                    leads: false,
                },
            ]),
        },
        components: vec![
            Component {
                component: "pod-finalizer",
                holds: vec!["belayer.dev/pod-status"],
                numbers: waiting.clone(),
                complete: true,
                own: None,
            },
            Component {
                component: "pvc-protection",
                holds: vec!["belayer.dev/pvc-protection"],
                numbers: Numbers {
                    held: 3,
                    ..Numbers::default()
                },
                complete: true,
                own: None,
            },
        ],
        namespaces: vec![Place {
            namespace: "shop".into(),
            component: "pod-finalizer",
            numbers: waiting,
        }],
        closed_namespaces: Vec::new(),
        warnings: vec!["pod-finalizer may not release 1".into()],
        unknown: vec!["the leader: not allowed".into()],
        notes: vec!["further information".into()],
        asked: true,
    }
}

#[test]
fn the_text_is_a_table_that_fits() {
    let expected = "\
Belayer holds 1203 objects on Kubernetes v1.36.3; 12 deletions wait for it.
Version 0.1.0 in belayer-system: 1 of 2 pods ready; belayer-7d9c_1 is the
  leader, renewed 2s ago.

CONTROLLER       HELD   WAITING   DENIED   OLDEST
pod-finalizer    1200   12        1        14m shop/pods/build-1
pvc-protection   3      0         0        -

NAMESPACE   CONTROLLER      HELD   WAITING   DENIED   OLDEST
shop        pod-finalizer   1200   12        1        14m shop/pods/build-1

Warning: pod-finalizer may not release 1

Unknown: the leader: not allowed

Note: further information
";
    assert_eq!(text(&status(), Style::default(), &Plain), expected);
}

/// T2: pod-recreation has a Deployment of its own.
#[test]
fn t2_every_lease_is_in_the_text() {
    let mut status = status();
    let leader = status.installation.leader.clone();
    let other = |leader| OtherLease {
        lease: "belayer-system/belayer-pod-recreation".into(),
        leader,
    };
    status.installation.other_leases = vec![other(leader)];
    let led = text(&status, Style::default(), &Plain).replace("\n  ", " ");
    let says = "belayer-7d9c_1 holds lease belayer-system/belayer-pod-recreation, renewed 2s ago.";
    assert!(led.contains(says), "{led}");
    status.installation.leader = None;
    status.installation.other_leases = vec![other(None)];
    assert!(!status.installation.is_led());
    let led = text(&status, Style::default(), &Plain).replace("\n  ", " ");
    let says = "no leader; no replica holds lease belayer-system/belayer-pod-recreation.";
    assert!(led.contains(says), "{led}");
}

#[test]
fn wide_names_the_holds() {
    let style = Style {
        detail: Detail::Wide,
        ..Style::default()
    };
    assert!(text(&status(), style, &Plain).contains("belayer.dev/pvc-protection\n"));
}

#[test]
fn a_failed_list_is_not_reported_as_zero() {
    let mut status = status();
    for component in &mut status.components {
        component.numbers = Numbers::default();
        component.complete = false;
    }
    let text = text(&status, Style::default(), &Plain);
    assert!(
        text.starts_with("Belayer holds at least 0 objects"),
        "{text}"
    );
    assert!(!text.contains("no deletion waits"), "{text}");
}

/// A user with the ClusterRole view may not read Leases: any replica may have one.
#[rstest]
#[case::unread(true)]
#[case::read(false)]
#[tokio::test]
async fn a_lease_that_cannot_be_read_may_have_a_leader(#[case] denied: bool) {
    let sandbox = Sandbox::builder().build();
    sandbox
        .load_yaml(
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, finalizers: [belayer.dev/pod-status]}, \
             spec: {containers: [{name: m, image: m}]}}",
        )
        .unwrap();
    let gets = Fault::on(Match::verb(Verb::Get).resource("leases"));
    let fault = denied.then(|| {
        sandbox
            .faults()
            .inject(gets.answer(Answer::forbidden("no")))
    });
    let reader = Reader::new(sandbox.client(), Bounds::default());
    let query = Query {
        lease: Some("belayer-system/belayer".to_owned()),
        holds: vec![Hold {
            component: "pod-finalizer",
            finalizers: vec!["belayer.dev/pod-status"],
            kind: Resource::pods(),
        }],
        ..query(None)
    };
    let found = super::status(&reader, &query, || Timestamp::UNIX_EPOCH).await;
    let found = found.unwrap();
    drop(fault);
    let text = text(&found, Style::default(), &Plain).replace("\n  ", " ");
    let names_drain = found.warnings.join("").contains("belayer drain");
    assert_eq!(names_drain, !denied, "{text}");
    assert_eq!(found.needs_attention(), !denied, "{text}");
    assert_eq!(
        text.contains("It is unknown whether it runs: no pod"),
        denied,
        "{text}"
    );
    assert_eq!(text.contains("the leader is unknown"), denied, "{text}");
    assert_eq!(text.contains("It does not run"), !denied, "{text}");
    assert_eq!(text.contains("no Lease is held"), !denied, "{text}");
    let unread = found.installation.unread_leases;
    assert_eq!(
        unread.contains(&"belayer-system/belayer".to_owned()),
        denied
    );
}

#[test]
fn a4_kept_holds_are_counted_in_the_cluster_if_belayer_did_not_answer() {
    let mut status = status();
    assert!(!status.needs_count("pod-finalizer"), "Belayer answered");
    status.asked = false;
    assert!(status.needs_count("pod-finalizer"));
    status.components[0].numbers.held = 0;
    assert!(!status.needs_count("pod-finalizer"), "it holds nothing");
    status.components[0].numbers.held = 1;
    status.installation.leader = None;
    status.installation.pods = Some(Vec::new());
    assert!(!status.needs_count("pod-finalizer"), "it does not run");
}

#[test]
fn a4_each_answer_is_a_warning_or_unknown() {
    let mut query = query(None);
    let after = |kept: Kept, query: &Query| {
        let mut status = Status {
            warnings: Vec::new(),
            unknown: Vec::new(),
            ..status()
        };
        status.note_kept("pod-finalizer", kept, query);
        (status.warnings.join(""), status.unknown.join(""))
    };
    let none = (String::new(), String::new());
    assert_eq!(after(Kept::Counted(0), &query), none);
    for (config, command) in [
        (None, "`belayer drain --unselected --config FILE`"),
        (Some("/b c"), "`belayer drain --unselected --config '/b c'`"),
    ] {
        query.config = config.map(str::to_owned);
        let (warning, unknown) = after(Kept::Counted(106), &query);
        assert!(
            warning.starts_with("pod-finalizer keeps 106 unselected objects held"),
            "{warning}"
        );
        assert!(warning.contains(command), "{warning}");
        assert_eq!(unknown, "");
    }
    let (warning, unknown) = after(Kept::Reported("no profile selects 106".into()), &query);
    assert!(warning.ends_with("no profile selects 106"), "{warning}");
    assert_eq!(unknown, "");
    let (warning, unknown) = after(Kept::Unknown("not allowed".into()), &query);
    assert_eq!(warning, "");
    assert_eq!(
        unknown,
        "whether pod-finalizer keeps unselected objects held: not allowed"
    );
}

#[test]
fn the_version_comes_from_the_image() {
    for (image, version) in [
        ("belayer/belayer:0.1.0", "0.1.0"),
        ("localhost:5000/belayer/belayer", "latest"),
        ("localhost:5000/belayer:1.2@sha256:abc", "1.2"),
        ("belayer@sha256:0123456789abcdef", "sha256:0123456789ab"),
    ] {
        assert_eq!(installation::tag(image), version);
    }
}

/// Without the gate it is not known whether Belayer drains, nor which other Leases there are.
#[rstest]
#[case::forbidden(Answer::forbidden("no"), "not allowed")]
#[case::failed(Answer::internal_error(), "answers 500: ")]
#[tokio::test]
async fn a_gate_that_cannot_be_read_is_unknown(#[case] answer: Answer, #[case] why: &str) {
    let sandbox = Sandbox::builder().build();
    sandbox.load_yaml(belayer_holds::gate::CRD).unwrap();
    let gets = Fault::on(Match::verb(Verb::Get).resource("gates"));
    let _no = sandbox.faults().inject(gets.answer(answer));
    let unknown = unknown(&sandbox).await;
    let says = "whether holds may be added, and which other Leases there are: gate belayer-system/belayer-gate: ";
    assert!(unknown.starts_with(&format!("{says}{why}")), "{unknown}");
}

#[rstest]
#[case::no_gate(belayer_holds::gate::CRD)]
#[case::not_installed("")]
#[tokio::test]
async fn a_gate_that_does_not_exist_is_not_unknown(#[case] installed: &str) {
    let sandbox = Sandbox::builder().build();
    sandbox.load_yaml(installed).unwrap();
    assert_eq!(unknown(&sandbox).await, "");
}

async fn unknown(sandbox: &Sandbox) -> String {
    let reader = Reader::new(sandbox.client(), Bounds::default());
    let found = super::status(&reader, &query(None), || Timestamp::UNIX_EPOCH).await;
    found.unwrap().unknown.join("; ")
}

/// In an outage, all Events of one reason may be larger than one answer may be.
#[tokio::test]
async fn events_are_read_in_pages() {
    let sandbox = Sandbox::builder().build();
    for name in ["a", "b"] {
        let event = serde_json::json!({ "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": name, "namespace": "default" }, "reason": "ReleaseDenied",
            "source": { "component": "belayer" },
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": name } });
        sandbox.load_yaml(&event.to_string()).unwrap();
    }
    let large = " ".repeat(belayer_core::http::DEFAULT_BODY_LIMIT + 1);
    let large = Answer::raw(200, "application/json", large);
    let first = Fault::on(Match::verb(Verb::List).resource("events"));
    sandbox.faults().inject(first.times(1).answer(large));
    let reader = Reader::new(sandbox.client(), Bounds::default());
    let found = events::events(&reader, None, "ReleaseDenied").await;
    assert_eq!(found.unwrap().len(), 2);
}
