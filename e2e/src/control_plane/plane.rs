//! Starting and stopping: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::binaries::{Binaries, Program};
use super::certificates::Certificates;
use super::kubeconfig::Kubeconfig;
use super::ports::free_ports;
use super::process::Process;
use crate::kinds;

/// Everything on two busy cores is up well before.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// A port picked free may be taken before it is used; then all is started anew.
const START_ATTEMPTS: usize = 3;
const POLL: Duration = Duration::from_millis(100);

/// The controllers of kube-controller-manager that scenarios lean on. The rest would only cost time.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,\
    serviceaccount-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller,\
    taint-eviction-controller,pod-garbage-collector-controller,job-controller,\
    persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,\
    persistentvolume-binder-controller,statefulset-controller,\
    validatingadmissionpolicy-status-controller";

/// kube-controller-manager's own controller of claims, which is among them.
const CLAIM_CONTROLLER: &str = "persistentvolumeclaim-protection-controller";

/// Every request that may change something and every GET of Belayer's (and nobody else's requests)
/// leaves one line, once answered: what scenarios assert about what was *written* rests on it.
const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:belayer-system:belayer"]
- level: None
"#;

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hollow nodes, with kubelets that pretend to run containers. Zero where there is no kubemark.
    pub hollow_nodes: usize,
    /// The programs beside the API server and its store.
    pub beside: Beside,
}

/// The programs beside the API server and its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Controllers, scheduler, kubelets.
    All,
    /// None of them: what is measured shall not share the machine with others.
    None,
}

/// Whether kube-controller-manager's own controller of claims runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimController {
    /// It does, as usual.
    On,
    /// It does not: Belayer works in its place.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hollow_nodes: 1,
            beside: Beside::All,
        }
    }
}

impl Options {
    /// An API server and its store, for what is measured.
    #[must_use]
    pub fn api_server_alone() -> Self {
        Self {
            hollow_nodes: 0,
            beside: Beside::None,
        }
    }
}

/// A running control plane. Dropping it kills every program and removes its folder, unless
/// [`ControlPlane::keep_files`] was called.
pub struct ControlPlane {
    processes: Vec<Process>,
    manager: Option<Manager>,
    admin: Kubeconfig,
    admin_path: PathBuf,
    client: Client,
    audit_log: PathBuf,
    hollow_nodes: usize,
    has_controller_manager: bool,
    has_scheduler: bool,
    kubelet: Option<PathBuf>,
    // Last, so that the files outlive the programs that use them.
    dir: TempDir,
}

impl ControlPlane {
    /// Starts all programs and waits until the API server, the controllers and the nodes are ready.
    ///
    /// # Errors
    /// When a program ends early or is not ready in time: the error quotes its log, and the folder
    /// with all logs is kept and named.
    pub async fn start(binaries: &Binaries, options: &Options) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let error = match Starter::start(binaries, options).await {
                Ok(plane) => return Ok(plane),
                Err(error) => error,
            };
            let port_was_taken = format!("{error:#}").contains("address already in use");
            if !port_was_taken || attempt == START_ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The kubeconfig of an admin.
    #[must_use]
    pub fn admin(&self) -> &Kubeconfig {
        &self.admin
    }

    /// The same as a file, for kubectl.
    #[must_use]
    pub fn admin_path(&self) -> &Path {
        &self.admin_path
    }

    /// One JSON object per line: the requests of Belayer's ServiceAccount.
    #[must_use]
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// The folder with everything in it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// How many nodes with a kubelet there are.
    #[must_use]
    pub fn hollow_nodes(&self) -> usize {
        self.hollow_nodes
    }

    /// Whether garbage collector and namespace deletion work.
    #[must_use]
    pub fn has_controller_manager(&self) -> bool {
        self.has_controller_manager
    }

    /// Whether pods without a node are bound to one.
    #[must_use]
    pub fn has_scheduler(&self) -> bool {
        self.has_scheduler
    }

    /// Starts one more hollow kubelet, whose life is the caller's: to be ended and started again.
    ///
    /// # Errors
    /// When there is no such program or it cannot be started.
    pub fn start_extra_kubelet(&self, node: &str) -> Result<Process> {
        let program = self.kubelet.as_ref().context("there is no kubelet here")?;
        let kubeconfig = self.admin_path.display().to_string();
        let arguments = kubelet_arguments(self.dir(), node, &kubeconfig)?;
        let log = self.dir().join(format!("{node}.log"));
        Process::start(node, program, arguments, &log)
    }

    /// The programs that run, with their process ids.
    pub async fn programs(&self) -> Vec<(String, u32)> {
        let id = |process: &Process| process.pid().map(|pid| (process.name().to_owned(), pid));
        let mut programs: Vec<_> = self.processes.iter().filter_map(id).collect();
        if let Some(manager) = &self.manager {
            programs.extend(manager.running.lock().await.as_ref().and_then(id));
        }
        programs
    }

    /// The process id of a program, by its name.
    pub async fn pid_of(&self, program: &str) -> Option<u32> {
        let programs = self.programs().await;
        let found = programs.into_iter().find(|(name, _)| name == program);
        found.map(|(_, pid)| pid)
    }

    /// Starts kube-controller-manager anew with or without its own controller of claims; does
    /// nothing if that is so already.
    ///
    /// # Errors
    /// When there is no kube-controller-manager, or it cannot be stopped or started.
    pub async fn switch_claim_controller(&self, claims: ClaimController) -> Result<()> {
        let wanted: Vec<&str> = usual_controllers()
            .into_iter()
            .filter(|name| claims == ClaimController::On || *name != CLAIM_CONTROLLER)
            .collect();
        let manager = self.manager()?;
        manager.run(&wanted, &USUAL_LIMITS.map(String::from)).await
    }

    /// Starts kube-controller-manager with nothing but its own controller of claims, as fast as it
    /// goes.
    ///
    /// # Errors
    /// As [`ControlPlane::switch_claim_controller`].
    pub async fn start_claim_controller_alone(&self) -> Result<()> {
        let limits = ["--kube-api-qps=5000", "--kube-api-burst=5000"].map(String::from);
        self.manager()?.run(&[CLAIM_CONTROLLER], &limits).await
    }

    /// Stops kube-controller-manager.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn stop_controllers(&self) -> Result<()> {
        self.manager()?.stop().await
    }

    fn manager(&self) -> Result<&Manager> {
        self.manager
            .as_ref()
            .context("there is no kube-controller-manager here")
    }

    /// Leaves the folder behind when the control plane is stopped or dropped.
    pub fn keep_files(&mut self) {
        self.dir.disable_cleanup(true);
    }

    /// Stops every program, the last started first.
    ///
    /// # Errors
    /// When the system refuses to kill one.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(manager) = &self.manager {
            manager.stop().await?;
        }
        while let Some(mut process) = self.processes.pop() {
            process.kill().await?;
        }
        Ok(())
    }
}

/// The limits of kube-controller-manager where nothing is measured.
const USUAL_LIMITS: [&str; 2] = ["--kube-api-qps=500", "--kube-api-burst=1000"];

fn usual_controllers() -> Vec<&'static str> {
    CONTROLLERS.split(',').map(str::trim).collect()
}

/// kube-controller-manager, which can be started anew with other controllers.
struct Manager {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    /// What runs, and with which arguments it was started.
    running: Mutex<Option<Process>>,
    started_with: Mutex<Vec<String>>,
}

impl Manager {
    async fn run(&self, controllers: &[&str], limits: &[String]) -> Result<()> {
        let [port] = free_ports()?;
        let mut arguments = vec![format!("--controllers={}", controllers.join(","))];
        arguments.extend_from_slice(limits);
        let mut started_with = self.started_with.lock().await;
        if *started_with == arguments {
            return Ok(());
        }
        self.kill().await?;
        *started_with = arguments.clone();
        arguments.extend_from_slice(&self.arguments);
        arguments.push(format!("--secure-port={port}"));
        let process = Process::start(
            "kube-controller-manager",
            &self.program,
            arguments,
            &self.log,
        )?;
        *self.running.lock().await = Some(process);
        Ok(())
    }

    async fn stop(&self) -> Result<()> {
        self.started_with.lock().await.clear();
        self.kill().await
    }

    async fn kill(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}

/// A control plane that is coming up.
struct Starter<'a> {
    binaries: &'a Binaries,
    dir: TempDir,
    certificates: Certificates,
    server: String,
    processes: Vec<Process>,
    manager: Option<Manager>,
}

impl<'a> Starter<'a> {
    async fn start(binaries: &'a Binaries, options: &Options) -> Result<ControlPlane> {
        let dir = tempfile::Builder::new()
            .prefix("belayer-control-plane-")
            .tempdir()?;
        let certificates = Certificates::create(&dir.path().join("pki"))?;
        let mut starter = Self {
            binaries,
            dir,
            certificates,
            server: String::new(),
            processes: Vec::new(),
            manager: None,
        };
        match starter.bring_up(options).await {
            Ok((admin, client)) => Ok(starter.finish(admin, client, options)),
            Err(error) => {
                let kept = starter.dir.keep();
                Err(error.context(format!("the logs are in {}", kept.display())))
            }
        }
    }

    fn finish(self, admin: Kubeconfig, client: Client, options: &Options) -> ControlPlane {
        let all = options.beside == Beside::All;
        let has = |program| all && self.binaries.path(program).is_some();
        ControlPlane {
            admin,
            admin_path: self.dir.path().join("admin.kubeconfig"),
            client,
            audit_log: self.dir.path().join("audit.log"),
            hollow_nodes: if has(Program::HollowKubelet) {
                options.hollow_nodes
            } else {
                0
            },
            has_controller_manager: has(Program::ControllerManager),
            has_scheduler: has(Program::Scheduler),
            kubelet: self.binaries.path(Program::HollowKubelet),
            processes: self.processes,
            manager: self.manager,
            dir: self.dir,
        }
    }

    async fn bring_up(&mut self, options: &Options) -> Result<(Kubeconfig, Client)> {
        let users = Users::new(options.hollow_nodes);
        fs::write(self.dir.path().join("tokens.csv"), users.csv())?;
        fs::write(self.dir.path().join("audit-policy.yaml"), AUDIT_POLICY)?;

        let etcd = self.start_etcd()?;
        // For who wants it to forget: beside the kubeconfig.
        fs::write(self.dir.path().join("etcd.url"), &etcd)?;
        self.start_api_server(&etcd)?;
        let admin = self.kubeconfig("admin");
        admin.write(&self.dir.path().join("admin.kubeconfig"))?;
        let client = client(&self.dir.path().join("admin.kubeconfig")).await?;
        self.wait_for_api_server(&client).await?;

        if let Some(program) = self.binaries.path(Program::ControllerManager) {
            let manager = self.controller_manager(program)?;
            if options.beside == Beside::All {
                let limits = USUAL_LIMITS.map(String::from);
                manager.run(&usual_controllers(), &limits).await?;
            }
            self.manager = Some(manager);
        }
        if options.beside == Beside::None {
            return Ok((admin, client));
        }
        if let Some(program) = self.binaries.path(Program::Scheduler) {
            self.start_scheduler(&program)?;
        }
        if let Some(program) = self.binaries.path(Program::HollowKubelet) {
            for index in 0..options.hollow_nodes {
                self.start_hollow_kubelet(&program, index)?;
            }
            self.wait_for_nodes(&client, options.hollow_nodes).await?;
        }
        Ok((admin, client))
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
                // The data need not outlive the machine.
                "--unsafe-no-fsync".into(),
                "--quota-backend-bytes=8589934592".into(),
                "--log-level=warn".into(),
            ],
        )?;
        Ok(client)
    }

    fn start_api_server(&mut self, etcd: &str) -> Result<()> {
        let [port] = free_ports()?;
        self.server = format!("https://127.0.0.1:{port}");
        let signing_key = self.certificates.service_account_key.display();
        let public_key = self.certificates.service_account_public_key.display();
        self.spawn(
            &self.binaries.require(Program::ApiServer)?,
            "kube-apiserver",
            &[
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
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
                "--authorization-mode=RBAC".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
                // No Service is reachable here: its endpoints would be this machine's.
                "--endpoint-reconciler-type=none".into(),
                format!("--audit-policy-file={}", self.path("audit-policy.yaml")),
                format!("--audit-log-path={}", self.path("audit.log")),
            ],
        )
    }

    fn controller_manager(&self, program: PathBuf) -> Result<Manager> {
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
        Ok(Manager {
            program,
            arguments,
            log: self.dir.path().join("kube-controller-manager.log"),
            running: Mutex::default(),
            started_with: Mutex::default(),
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
            // Ready is said before the roles that let an admin in are written.
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

    /// Polls until `ready` says so; a program that ends meanwhile ends the wait.
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
                let logs: Vec<_> = self.processes.iter().map(Process::log_end).collect();
                bail!(
                    "waited {START_DEADLINE:?} until {what}: {last}\n{}",
                    logs.join("\n")
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn spawn(&mut self, program: &Path, name: &str, arguments: &[String]) -> Result<()> {
        let log = self.dir.path().join(format!("{name}.log"));
        self.processes
            .push(Process::start(name, program, arguments, &log)?);
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn kubeconfig(&self, user: &str) -> Kubeconfig {
        Kubeconfig {
            server: self.server.clone(),
            authority_pem: Some(self.certificates.authority_pem.clone()),
            token: Some(Users::token(user)),
        }
    }

    fn write_kubeconfig(&self, user: &str) -> Result<String> {
        let path = self.dir.path().join(format!("{user}.kubeconfig"));
        self.kubeconfig(user).write(&path)?;
        Ok(path.display().to_string())
    }
}

/// The users that the API server knows by token. All are of its masters' group: what is under test
/// is Belayer's rights, and Belayer comes as a ServiceAccount.
struct Users(Vec<String>);

impl Users {
    fn new(hollow_nodes: usize) -> Self {
        let mut names = ["admin", "kube-controller-manager", "kube-scheduler"]
            .map(String::from)
            .to_vec();
        names.extend((0..hollow_nodes).map(node_name));
        Self(names)
    }

    fn token(user: &str) -> String {
        format!("{user}-token")
    }

    fn csv(&self) -> String {
        let line = |user: &String| format!("{},{user},{user},system:masters\n", Self::token(user));
        self.0.iter().map(line).collect()
    }
}

fn kubelet_arguments(dir: &Path, name: &str, kubeconfig: &str) -> Result<[String; 8]> {
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
    ])
}

fn node_name(index: usize) -> String {
    format!("hollow-{index}")
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

/// A client for the kubeconfig at `path`, without the client's own retries: scenarios want to see
/// every answer.
pub(crate) async fn client(path: &Path) -> Result<Client> {
    let read = ClientConfig::read_from(path)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Client::try_from(config).context("make a client")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_user_of_its_own() {
        let csv = Users::new(2).csv();
        assert!(
            csv.contains("hollow-1-token,hollow-1,hollow-1,system:masters\n"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 5);
    }
}
