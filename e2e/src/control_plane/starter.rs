//! Starts the programs one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::future::try_join_all;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::binaries::Binaries;
use super::certificates::Certificates;
use super::kubeconfig::{Kubeconfig, client};
use super::manager::{Manager, USUAL_LIMITS, usual_controllers};
use super::network::{Network, SERVICE, node_address};
use super::node::{FOLDER, RealNode, RealNodes, guard, lock, write_images};
use super::options::{Options, OtherPrograms};
use super::place::Place;
use super::ports::free_ports;
use super::process::Process;
use super::program::Program;
use super::users::{Users, node_name};
use crate::guard::Guard;
use crate::kinds;
use crate::progress::Progress;

/// Timeout of the whole start, on two busy cores.
pub(super) const START_DEADLINE: Duration = Duration::from_secs(120);
pub(super) const POLL: Duration = Duration::from_millis(100);

/// The audit policy: one line for every answered mutating request and every GET of Belayer's
/// ServiceAccount only. Assertions about writes are based on it.
const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:belayer-system:belayer"]
- level: None
"#;

/// The started programs.
pub(super) struct Started {
    /// How long it took until everything was ready.
    pub(super) took: Duration,
    pub(super) nodes: Vec<RealNode>,
    pub(super) processes: Mutex<Vec<Process>>,
    pub(super) manager: Option<Manager>,
    pub(super) admin: Kubeconfig,
    pub(super) client: Client,
    pub(super) hollow_nodes: usize,
    pub(super) has_controller_manager: bool,
    pub(super) has_scheduler: bool,
    pub(super) kubelet: Option<PathBuf>,
    _network: Option<Network>,
    // After all programs.
    _guard: Guard,
    // Last, so that the files are removed after the programs that use them.
    pub(super) dir: TempDir,
}

/// A control plane during its start.
pub(super) struct Starter<'a> {
    binaries: &'a Binaries,
    certificates: Certificates,
    /// The API server's address, for this machine.
    server: String,
    /// The same for the programs of the cluster.
    inner_server: String,
    nodes: Vec<RealNode>,
    processes: Vec<Process>,
    manager: Option<Manager>,
    place: Place,
    network: Option<Network>,
    guard: Guard,
    dir: TempDir,
}

impl<'a> Starter<'a> {
    pub(super) async fn start(binaries: &'a Binaries, options: &Options) -> Result<Started> {
        let lock = options.real.as_ref().map(|_| lock()).transpose()?;
        let since = Instant::now();
        let dir = tempfile::Builder::new().prefix(FOLDER).tempdir()?;
        let guard = guard(dir.path(), lock)?;
        let certificates = Certificates::create(&dir.path().join("pki"))?;
        let mut starter = Self {
            binaries,
            certificates,
            server: String::new(),
            inner_server: String::new(),
            nodes: Vec::new(),
            processes: Vec::new(),
            manager: None,
            place: Place::default(),
            network: None,
            guard,
            dir,
        };
        match starter.bring_up(options).await {
            Ok((admin, client)) => {
                let took = since.elapsed();
                if options.real.is_some() {
                    Progress::say(&format!(
                        "the nodes are ready after {:.1} s",
                        took.as_secs_f64()
                    ));
                }
                Ok(starter.finish(admin, client, options, took))
            }
            Err(error) => {
                fs::write(starter.dir.path().join("keep"), "")?;
                let kept = starter.dir.keep();
                Err(error.context(format!("the logs are in {}", kept.display())))
            }
        }
    }

    fn finish(
        self,
        admin: Kubeconfig,
        client: Client,
        options: &Options,
        took: Duration,
    ) -> Started {
        let all = options.others == OtherPrograms::All;
        let has = |program| all && self.binaries.path(program).is_some();
        Started {
            took,
            admin,
            client,
            hollow_nodes: if has(Program::HollowKubelet) {
                options.hollow_nodes
            } else {
                0
            },
            has_controller_manager: has(Program::ControllerManager),
            has_scheduler: has(Program::Scheduler),
            kubelet: self.binaries.path(Program::HollowKubelet),
            nodes: self.nodes,
            processes: Mutex::new(self.processes),
            manager: self.manager,
            _network: self.network,
            _guard: self.guard,
            dir: self.dir,
        }
    }

    async fn bring_up(&mut self, options: &Options) -> Result<(Kubeconfig, Client)> {
        let real = options.real.as_ref();
        let users = Users::new(options.hollow_nodes, real.map_or(0, |real| real.count));
        fs::write(self.dir.path().join("tokens.csv"), users.csv())?;
        fs::write(self.dir.path().join("audit-policy.yaml"), AUDIT_POLICY)?;

        if let Some(real) = real {
            self.start_machines(real).await?;
        }
        let etcd = self.start_etcd()?;
        if real.is_none() {
            // For compaction: next to the kubeconfig.
            fs::write(self.dir.path().join("etcd.url"), &etcd)?;
        }
        self.start_api_server(&etcd, options.max_in_flight)?;
        let admin = self.kubeconfig("admin");
        admin.write(&self.dir.path().join("admin.kubeconfig"))?;
        let client = client(&self.dir.path().join("admin.kubeconfig")).await?;
        self.wait_for_api_server(&client).await?;

        if let Some(program) = self.binaries.path(Program::ControllerManager) {
            let manager = self.controller_manager(program, real.is_some())?;
            if options.others == OtherPrograms::All {
                let limits = USUAL_LIMITS.map(String::from);
                manager.run(&usual_controllers(), &limits).await?;
            }
            self.manager = Some(manager);
        }
        if options.others == OtherPrograms::None {
            return Ok((admin, client));
        }
        if let Some(program) = self.binaries.path(Program::Scheduler) {
            self.start_scheduler(&program)?;
        }
        let mut expected = 0;
        if let Some(program) = self.binaries.path(Program::HollowKubelet) {
            expected += options.hollow_nodes;
            for index in 0..options.hollow_nodes {
                self.start_hollow_kubelet(&program, index)?;
            }
        }
        if let Some(real) = real {
            self.start_kubelets(real).await?;
            expected += real.count;
        }
        self.wait_for_nodes(&client, expected).await?;
        Ok((admin, client))
    }

    /// Starts everything of the real nodes but their kubelets.
    async fn start_machines(&mut self, real: &RealNodes) -> Result<()> {
        let pause = real.binaries.path(Program::Pause);
        let waits = pause.display().to_string();
        let network = Network::create(self.dir.path(), &waits, real.count).await?;
        self.place = network.place()?;
        for index in 0..real.count {
            let logs = self.dir.path();
            let node = RealNode::start(self.place.clone(), &real.binaries, logs, index).await?;
            self.nodes.push(node);
        }
        self.network = Some(network);
        Ok(())
    }

    async fn start_kubelets(&mut self, real: &RealNodes) -> Result<()> {
        let pause = real.binaries.path(Program::Pause);
        let archives = write_images(self.dir.path(), &pause, &real.belayer)?;
        let imports = self.nodes.iter().map(|node| node.import(&archives));
        try_join_all(imports).await?;
        for archive in archives {
            fs::remove_file(archive)?;
        }
        for node in &self.nodes {
            self.write_kubeconfig(node.name())?;
            node.start_kubelet().await?;
        }
        Ok(())
    }

    fn start_etcd(&mut self) -> Result<String> {
        let [client, peer] = free_ports()?;
        let client = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let data = self.path("etcd");
        self.spawn(
            &self.binaries.require(Program::Etcd)?,
            "etcd",
            &[
                "--name=belayer".into(),
                format!("--data-dir={data}"),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=belayer={peer}"),
                // The data is temporary.
                "--unsafe-no-fsync".into(),
                "--quota-backend-bytes=8589934592".into(),
                "--log-level=warn".into(),
            ],
        )?;
        Ok(client)
    }

    fn start_api_server(&mut self, etcd: &str, max_in_flight: Option<u32>) -> Result<()> {
        let port = match &self.network {
            None => {
                let [port] = free_ports()?;
                self.server = format!("https://127.0.0.1:{port}");
                self.inner_server.clone_from(&self.server);
                port
            }
            // There is no kube-proxy, which would map the port of the Service.
            Some(network) => {
                let outer = network.relay((SERVICE, 443).into())?;
                self.server = format!("https://127.0.0.1:{outer}");
                self.inner_server = format!("https://{SERVICE}");
                443
            }
        };
        // Pods on real nodes reach it, and their accounts are checked.
        let mode = match &self.network {
            None => vec![
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                "--authorization-mode=RBAC".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
            ],
            Some(_) => vec![
                // A node's name cannot be resolved.
                "--kubelet-preferred-address-types=InternalIP".into(),
                "--bind-address=0.0.0.0".into(),
                format!("--advertise-address={}", node_address(0)),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
            ],
        };
        // Priority and fairness distributes the sum of both.
        let limits = max_in_flight.into_iter().flat_map(|most| {
            [
                format!("--max-requests-inflight={}", most - most / 2),
                format!("--max-mutating-requests-inflight={}", most / 2),
            ]
        });
        let signing_key = self.certificates.service_account_key.display();
        let public_key = self.certificates.service_account_public_key.display();
        let program = self.binaries.require(Program::ApiServer)?;
        let arguments: Vec<String> = mode
            .into_iter()
            .chain(limits)
            .chain([
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", self.path("pki")),
                format!("--tls-cert-file={}", self.certificates.server.display()),
                format!(
                    "--tls-private-key-file={}",
                    self.certificates.server_key.display()
                ),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={public_key}"),
                format!("--service-account-signing-key-file={signing_key}"),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                format!("--token-auth-file={}", self.path("tokens.csv")),
                // As with kubeadm and managed clusters: system DaemonSets need it.
                "--allow-privileged=true".into(),
                // No Service is reachable: its endpoints would be on this machine.
                "--endpoint-reconciler-type=none".into(),
                format!("--audit-policy-file={}", self.path("audit-policy.yaml")),
                format!("--audit-log-path={}", self.path("audit.log")),
            ])
            .collect();
        self.spawn(&program, "kube-apiserver", &arguments)
    }

    fn controller_manager(&self, program: PathBuf, workloads: bool) -> Result<Manager> {
        let kubeconfig = self.write_kubeconfig("kube-controller-manager")?;
        let arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            "--leader-elect=false".into(),
            format!(
                "--service-account-private-key-file={}",
                self.certificates.service_account_key.display()
            ),
            format!("--root-ca-file={}", self.certificates.authority.display()),
            format!("--cert-dir={}", self.path("kube-controller-manager-certs")),
            "--bind-address=127.0.0.1".into(),
        ];
        let log = self.dir.path().join("kube-controller-manager.log");
        let manager = Manager::new(self.place.clone(), program, arguments, log);
        Ok(if workloads {
            manager.with_workloads()
        } else {
            manager
        })
    }

    fn start_scheduler(&mut self, program: &Path) -> Result<()> {
        let [port] = free_ports()?;
        let kubeconfig = self.write_kubeconfig("kube-scheduler")?;
        self.spawn(
            program,
            "kube-scheduler",
            &[
                format!("--kubeconfig={kubeconfig}"),
                "--leader-elect=false".into(),
                "--authentication-skip-lookup".into(),
                format!("--cert-dir={}", self.path("kube-scheduler-certs")),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
            ],
        )
    }

    fn start_hollow_kubelet(&mut self, program: &Path, index: usize) -> Result<()> {
        let name = node_name(index);
        let kubeconfig = self.write_kubeconfig(&name)?;
        let arguments = kubelet_arguments(self.dir.path(), &name, &kubeconfig)?;
        self.spawn(program, &name, &arguments)
    }

    async fn wait_for_api_server(&mut self, client: &Client) -> Result<()> {
        let namespaces = kinds::namespaces(client);
        let one = ListParams::default().limit(1);
        self.until("the API server answers", async || {
            let ready = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(ready).await?;
            // It reports ready before the roles that authorise an admin exist.
            namespaces.list(&one).await?;
            Ok(true)
        })
        .await
    }

    async fn wait_for_nodes(&mut self, client: &Client, expected: usize) -> Result<()> {
        let nodes = kinds::nodes(client);
        self.until("the nodes are ready", async || {
            let listed = nodes.list(&ListParams::default()).await?;
            Ok(listed.iter().filter(|node| schedulable(node)).count() >= expected)
        })
        .await
    }

    /// Polls `ready` until it is true; fails if a program exits meanwhile.
    async fn until<F>(&mut self, what: &str, ready: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let started = Instant::now();
        loop {
            let last = match ready().await {
                Ok(true) => return Ok(()),
                Ok(false) => String::from("not yet"),
                Err(error) => format!("{error:#}"),
            };
            for process in &mut self.processes {
                process.check_running()?;
            }
            if started.elapsed() > START_DEADLINE {
                let mut logs: Vec<_> = self.processes.iter().map(Process::log_end).collect();
                for node in &self.nodes {
                    logs.push(node.log_end().await);
                }
                bail!(
                    "timed out after {START_DEADLINE:?} waiting until {what}: {last}\n{}",
                    logs.join("\n")
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn spawn(&mut self, program: &Path, name: &str, arguments: &[String]) -> Result<()> {
        let log = self.dir.path().join(format!("{name}.log"));
        self.processes
            .push(self.place.start(name, program, arguments, &log)?);
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// For this machine.
    fn kubeconfig(&self, user: &str) -> Kubeconfig {
        Kubeconfig {
            server: self.server.clone(),
            authority_pem: Some(self.certificates.authority_pem.clone()),
            token: Some(Users::token(user)),
        }
    }

    /// For a program of the cluster.
    fn write_kubeconfig(&self, user: &str) -> Result<String> {
        let path = self.dir.path().join(format!("{user}.kubeconfig"));
        let config = Kubeconfig {
            server: self.inner_server.clone(),
            ..self.kubeconfig(user)
        };
        config.write(&path)?;
        Ok(path.display().to_string())
    }
}

/// The arguments of a hollow kubelet.
pub(super) fn kubelet_arguments(dir: &Path, name: &str, kubeconfig: &str) -> Result<[String; 10]> {
    let [port, read_only_port] = free_ports()?;
    let certificates = dir.join(format!("{name}-certs"));
    Ok([
        "--morph=kubelet".into(),
        format!("--name={name}"),
        format!("--kubeconfig={kubeconfig}"),
        "--use-host-image-service=false".into(),
        format!("--cert-dir={}", certificates.display()),
        format!("--kubelet-port={port}"),
        format!("--kubelet-read-only-port={read_only_port}"),
        "--max-pods=110".into(),
        // Its defaults would start about one pod per second.
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
    ])
}

fn schedulable(node: &DynamicObject) -> bool {
    let conditions = node.data["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready
        && node.data["spec"]["taints"]
            .as_array()
            .is_none_or(Vec::is_empty)
}
