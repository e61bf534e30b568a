//! What a storm of 429 costs (rule L2): the API server's own priority and fairness refuses every PATCH of a pod while
//! thousands of releases are due.
//!
//! A priority level without concurrency still lets one request in when it has none. So one request, whose body never ends,
//! occupies it during the storm.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioExecutor;
use kube::api::DeleteParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, client::ConfigExt as _, discovery::ApiResource};
use serde_json::json;

use super::drain::{self, NAMESPACE};
use super::raw;
use super::report::Limit;
use super::server::{self, Account, create};
use super::{Goal, Measured, Report, Testbed, Traffic};
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::kinds::{self, Objects};

const PODS: usize = 10_000;
/// How long PATCHes are refused, from the first one.
const STORM: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 30;
/// A PATCH of it changes nothing.
const NO_POD: &str = "/api/v1/namespaces/bench/pods/none";

const RAW: &str = "raw, 32 parallel, sent after the storm";
const BELAYER: &str = "Belayer";

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let pods = testbed.size.unwrap_or(PODS);
    let plane = testbed.api_server().await?;
    drain::set_up(plane.client()).await?;
    let account = Account::create(&plane, NAMESPACE).await?;
    let held = kinds::pods(plane.client(), NAMESPACE);

    let title = format!(
        "{pods} due releases, refused with 429 for {} s",
        STORM.as_secs()
    );
    let metrics = [
        ("recovered", "s"),
        ("PATCHes per pod", "count"),
        ("peak resident", "MB"),
    ];
    let mut report = Report::new("storm", title, &metrics);
    for round in 0..=testbed.rounds {
        let counts = round > 0;
        let releases = drain::prepare(plane.client(), pods, 10).await?;
        let recovered = raw::release_all(&account.client, &held, &releases, 32).await?;
        if counts {
            report.round(RAW, &[recovered.as_secs_f64(), 1.0, f64::NAN]);
        }

        drain::prepare(plane.client(), pods, 10).await?;
        let storm = Storm::begin(&plane, &account.client).await?;
        let before = Traffic::of(plane.client(), "pods").await?;
        let patches = async || {
            let since = Traffic::of(plane.client(), "pods").await?.since(&before);
            anyhow::Ok(since.requests("PATCH"))
        };
        let mut belayer = Measured::start(|| {
            let (program, arguments) = drain::belayer(&testbed, &account.kubeconfig);
            let log = plane.dir().join("storm.log");
            Process::start("belayer", &program, arguments, &log)
        })?;
        let begun = Instant::now();
        while patches().await? < 1.0 {
            belayer.process().check_running()?;
            ensure!(begun.elapsed() < DEADLINE, "no release was tried");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(STORM).await;
        let refused = patches().await?;
        storm.end(plane.client(), &account.client).await?;
        let since = Instant::now();
        raw::until_gone(&held).await.inspect_err(|_| {
            anstream::eprintln!("{}", belayer.process().log_end());
        })?;
        let recovered = since.elapsed();
        let each = patches().await? / pods as f64;
        let peak = belayer.cost()?.peak_resident;
        belayer.end().await?;
        if counts {
            report.round(BELAYER, &[recovered.as_secs_f64(), each, peak as f64 / 1e6]);
        }
        if round == testbed.rounds {
            report.note(format!(
                "{refused:.0} PATCHes were refused in the last round"
            ));
        }
    }
    report.goal(Goal {
        metric: "recovered",
        of: BELAYER.to_owned(),
        against: RAW.to_owned(),
        at_most: 2.0,
    });
    report.limit(Limit {
        metric: "PATCHes per pod",
        of: BELAYER.to_owned(),
        at_most: 3.0,
    });
    plane.stop().await?;
    Ok(report)
}

const LEVEL: &str = "PriorityLevelConfiguration";
const SCHEMA: &str = "FlowSchema";

/// The API server refuses all PATCHes of pods by the account.
struct Storm {
    /// The request that never ends.
    occupant: tokio::task::JoinHandle<Result<()>>,
}

impl Storm {
    /// Returns when they are refused.
    async fn begin(plane: &ControlPlane, account: &Client) -> Result<Self> {
        let client = plane.client();
        let none = json!({ "metadata": { "name": "storm" }, "spec": {
            "type": "Limited",
            "limited": { "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": { "type": "Reject" } },
        } });
        create(&flow_control(client, LEVEL), none).await?;
        let patches = json!({ "metadata": { "name": "storm" }, "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": { "name": "storm" },
            "rules": [{
                "subjects": [{ "kind": "ServiceAccount", "serviceAccount": { "namespace": NAMESPACE, "name": server::ACCOUNT } }],
                "resourceRules": [{ "verbs": ["patch"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"] }],
            }],
        } });
        let schema = create(&flow_control(client, SCHEMA), patches).await?;
        let uid = schema.metadata.uid.context("a FlowSchema without UID")?;
        let admin = Kubeconfig::read_from(plane.admin_path())?;
        let admin = Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await?;
        let token = plane
            .admin()
            .token
            .clone()
            .context("an admin without a token")?;
        // The occupant is refused, without an end, if it meets one of the requests that look whether it was accepted.
        for _ in 0..ATTEMPTS {
            let mut occupant = tokio::spawn(occupy(admin.clone(), token.clone(), uid.clone()));
            tokio::select! {
                ended = &mut occupant => ended??,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            if is_refused(account).await? {
                return Ok(Self { occupant });
            }
            occupant.abort();
        }
        bail!("the API server accepts PATCHes, although its FlowSchema refuses them")
    }

    /// Returns when they are accepted again.
    async fn end(self, client: &Client, account: &Client) -> Result<()> {
        ensure!(
            !self.occupant.is_finished(),
            "the storm has ended too early"
        );
        for kind in [SCHEMA, LEVEL] {
            let api = flow_control(client, kind);
            api.delete("storm", &DeleteParams::default()).await?;
        }
        self.occupant.abort();
        let begun = Instant::now();
        while is_refused(account).await? {
            ensure!(
                begun.elapsed() < DEADLINE,
                "the API server still refuses PATCHes"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// As the account, sends a PATCH whose body never ends to the priority level of this FlowSchema, once the API server knows it.
/// It gets no answer before the API server's own timeout of a minute.
async fn occupy(admin: Config, token: String, schema: String) -> Result<()> {
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .build(admin.rustls_https_connector()?);
    let url = format!(
        "{}{NO_POD}",
        admin.cluster_url.to_string().trim_end_matches('/')
    );
    let patch = |body| {
        http::Request::patch(&url)
            .header("Content-Type", "application/merge-patch+json")
            .header("Authorization", format!("Bearer {token}"))
            .header(
                "Impersonate-User",
                format!("system:serviceaccount:{NAMESPACE}:{}", server::ACCOUNT),
            )
            .body(body)
    };
    let begun = Instant::now();
    loop {
        let whole = Full::from("{}").boxed();
        let response = client.request(patch(whole)?).await?;
        let by = response.headers().get("X-Kubernetes-PF-FlowSchema-UID");
        if by.is_some_and(|by| by == schema.as_str()) {
            break;
        }
        ensure!(
            begun.elapsed() < DEADLINE,
            "the API server does not use its FlowSchema: {}",
            response.status()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
    let endless = StreamBody::new(first.chain(stream::pending()));
    let response = client.request(patch(BodyExt::boxed(endless))?).await?;
    bail!(
        "the request that occupies the priority level was answered: {}",
        response.status()
    )
}

/// Whether the API server refuses a PATCH of a pod, here of one that does not exist.
async fn is_refused(account: &Client) -> Result<bool> {
    let request = http::Request::patch(NO_POD)
        .header("Content-Type", "application/merge-patch+json")
        .body(b"{}".to_vec())?;
    match account.request_text(request).await {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        other => other
            .map(|_| false)
            .context("PATCH a pod that does not exist"),
    }
}

fn flow_control(client: &Client, kind: &str) -> Objects {
    let gvk = GroupVersionKind::gvk("flowcontrol.apiserver.k8s.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
}
