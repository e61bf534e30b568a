use belayer_core::damage::{Edit, damaged};
use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use super::*;

const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c, cluster: {server: http://127.0.0.1:6443}}
- {name: d, cluster: {server: 'http://127.0.0.1:7443'}}
users:
- {name: u, user: {token: t}}
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: d, user: u}}
- {name: broken, context: {cluster: nowhere, user: u}}
";

fn write(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn the_current_or_the_requested_context_is_used() {
    let dir = TempDir::new().unwrap();
    let file = write(&dir, "config", GOOD);
    let sources = Sources::default();
    let config = load(Some(&file), None, &sources).await.unwrap();
    assert_eq!(config.cluster_url, "http://127.0.0.1:6443");
    assert!(!config.default_retry, "the queue backs off, not the client");
    let config = load(Some(&file), Some("two"), &sources).await.unwrap();
    assert_eq!(config.cluster_url, "http://127.0.0.1:7443");
}

#[rstest]
#[case::a_flag(Some("flag"), None, &["env"], true, Some(vec!["flag"]))]
#[case::the_variable(None, None, &["env", "more"], true, Some(vec!["env", "more"]))]
#[case::the_pod(None, None, &[], true, None)]
#[case::a_context_excludes_the_service_account(None, Some("x"), &[], true, Some(vec!["/nowhere/config"]))]
#[case::a_home_without_the_file(None, None, &[], false, None)]
fn the_first_existing_source_is_used(
    #[case] flag: Option<&str>,
    #[case] context: Option<&str>,
    #[case] variable: &[&str],
    #[case] in_cluster: bool,
    #[case] expected: Option<Vec<&str>>,
) {
    let sources = Sources {
        kubeconfig: variable.iter().map(PathBuf::from).collect(),
        home: Some(PathBuf::from("/nowhere/config")),
        in_cluster,
        ..Sources::default()
    };
    let expected = expected.map(|files| files.into_iter().map(PathBuf::from).collect());
    assert_eq!(files(flag.map(Path::new), context, &sources), expected);
}

#[tokio::test]
async fn several_files_are_merged_and_the_first_takes_precedence() {
    let dir = TempDir::new().unwrap();
    let first = write(
        &dir,
        "first",
        "apiVersion: v1\nkind: Config\ncurrent-context: two\n",
    );
    let second = write(&dir, "second", GOOD);
    let sources = Sources {
        kubeconfig: vec![first, second],
        ..Sources::default()
    };
    let config = load(None, None, &sources).await.unwrap();
    assert_eq!(config.cluster_url, "http://127.0.0.1:7443");
}

/// As in kubectl: an empty context is none.
#[tokio::test]
async fn an_empty_current_context_does_not_take_precedence() {
    let dir = TempDir::new().unwrap();
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: \"\"\n";
    let first = write(&dir, "first", text);
    let second = write(&dir, "second", GOOD);
    let sources = Sources {
        kubeconfig: vec![first, second],
        ..Sources::default()
    };
    let config = load(None, None, &sources).await.unwrap();
    assert_eq!(config.cluster_url, "http://127.0.0.1:6443");
}

#[tokio::test]
async fn a_missing_file_of_the_list_is_skipped() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    let sources = Sources {
        kubeconfig: vec![missing.clone(), write(&dir, "config", GOOD)],
        ..Sources::default()
    };
    let config = load(None, None, &sources).await.unwrap();
    assert_eq!(config.cluster_url, "http://127.0.0.1:6443");
    // The flag names one file, which has to exist.
    let error = load(Some(&missing), None, &sources).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}

#[tokio::test]
async fn a_list_of_missing_files_is_an_error_that_names_them() {
    let sources = Sources {
        kubeconfig: vec!["/nowhere/a".into(), "/nowhere/b".into()],
        ..Sources::default()
    };
    let error = load(None, None, &sources).await.unwrap_err().to_string();
    let says = "cannot read /nowhere/a, /nowhere/b: ";
    assert!(error.starts_with(says), "{error}");
}

#[rstest]
#[case::unknown_context(
    GOOD,
    Some("three"),
    "unknown context \"three\" (contexts: one, two, broken)"
)]
#[case::a_context_without_its_cluster(GOOD, Some("broken"), "nowhere")]
#[case::no_current_context(
    "apiVersion: v1\nkind: Config\n",
    None,
    "no current context: pass --context"
)]
#[case::an_empty_file("", None, "no current context")]
#[case::bad_yaml("clusters: [\n", None, "invalid kubeconfig: ")]
#[case::another_type("clusters: 1\n", None, "config:1: invalid kubeconfig: ")]
#[case::a_text("hello\n", None, "invalid kubeconfig: ")]
#[case::no_server(
    "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {}}]\nusers: [{name: a, user: {}}]\n",
    None,
    "cluster url is missing"
)]
#[case::a_server_that_is_no_url(
    "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: 'not-a-url'}}]\nusers: [{name: a, user: {}}]\n",
    None,
    "(example: https://10.0.0.1:6443)"
)]
#[case::an_invalid_certificate(
    "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: 'https://a', certificate-authority-data: '####'}}]\nusers: [{name: a, user: {}}]\n",
    None,
    "certificate"
)]
#[case::a_missing_certificate_file(
    "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: 'https://a', certificate-authority: /nowhere/ca.crt}}]\nusers: [{name: a, user: {}}]\n",
    None,
    "/nowhere/ca.crt"
)]
#[tokio::test]
async fn an_unusable_configuration_is_a_one_line_error(
    #[case] text: &str,
    #[case] context: Option<&str>,
    #[case] says: &str,
) {
    let dir = TempDir::new().unwrap();
    let file = write(&dir, "config", text);
    let error = load(Some(&file), context, &Sources::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(says), "{error}");
    assert!(error.contains(&file.display().to_string()), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

/// As in kube, the file takes precedence over the variable. Only the cluster of the context counts.
#[rstest]
#[case::the_file("two", None, Some("remove `proxy-url` of the cluster from "))]
#[case::the_file_before_the_variable(
    "two",
    Some("HTTPS_PROXY"),
    Some("remove `proxy-url` of the cluster from ")
)]
#[case::the_variable("one", Some("HTTPS_PROXY"), Some("HTTPS_PROXY is set; unset it"))]
#[case::none("one", None, None)]
#[tokio::test]
async fn a_proxy_is_an_error_that_names_its_source(
    #[case] context: &str,
    #[case] proxy: Option<&'static str>,
    #[case] says: Option<&str>,
) {
    let dir = TempDir::new().unwrap();
    let other = "{server: 'http://127.0.0.1:7443'";
    let text = GOOD.replace(other, &format!("{other}, proxy-url: 'http://127.0.0.1:1'"));
    let file = write(&dir, "config", &text);
    let sources = Sources {
        proxy,
        ..Sources::default()
    };
    let error = load(Some(&file), Some(context), &sources).await.err();
    let error = error.map(|error| error.to_string());
    match (error, says) {
        (None, None) => {}
        (Some(error), Some(says)) => {
            let says = format!("cannot use a proxy: {says}");
            assert!(error.starts_with(&says), "{error}");
        }
        (error, _) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let error = load(
        Some(Path::new("/nowhere/kubeconfig")),
        None,
        &Sources::default(),
    )
    .await
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("cannot read /nowhere/kubeconfig: "),
        "{error}"
    );
}

#[tokio::test]
async fn no_cluster_at_all_is_an_error() {
    let error = load(None, None, &Sources::default()).await.unwrap_err();
    assert!(matches!(error, KubeconfigError::Nowhere), "{error}");
}

#[rstest]
#[case::cut_off_little_endian(b"\xff\xfe\x00")]
#[case::cut_off_big_endian(b"\xfe\xff\x00")]
#[case::half_a_surrogate(b"\xff\xfe\x00\xd8")]
#[case::a_byte_order_mark_alone(b"\xef\xbb\xbf")]
#[case::no_text(b"\x80\x81")]
#[tokio::test]
async fn invalid_text_is_an_error_without_panic(#[case] bytes: &[u8]) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("config");
    std::fs::write(&file, bytes).unwrap();
    let error = load(Some(&file), None, &Sources::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
}

/// A kubeconfig of each way to authenticate.
const MANY_USERS: &str = "
- {name: t, user: {tokenFile: /nowhere/token}}
- {name: b, user: {username: a, password: b}}
- {name: c, user: {client-certificate-data: LS0tLS1CRUdJTg==, client-key-data: LS0tLS1CRUdJTg==}}
- {name: e, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/plugin, args: [a]}}}
";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A file that is nearly right is read, or the error is one line. No credential plugin is run.
    #[test]
    fn fuzz_a_damaged_kubeconfig_is_read_or_refused(
        edits in prop::collection::vec(any::<Edit>(), 1..8),
        user in prop::sample::select(vec!["u", "t", "b", "c", "e"]),
    ) {
        let text = GOOD
            .replace("contexts:\n", &format!("{}contexts:\n", MANY_USERS.trim_start()))
            .replace("cluster: c, user: u", &format!("cluster: c, user: {user}"));
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, damaged(text.as_bytes(), &edits)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if let Err(error) = runtime.block_on(load(Some(&file), None, &Sources::default())) {
            let error = error.to_string();
            prop_assert_eq!(error.lines().count(), 1, "{:?}", error);
        }
    }
}
