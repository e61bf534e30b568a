//! Finds the cluster to connect to, and the credentials.

use std::path::{Path, PathBuf};

use kube::client::{AuthError, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use belayer_controller::config::yaml;

use crate::exit::Failure;
use crate::message::with_causes;

/// Environment of the process that can name a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The files of `$KUBECONFIG`, in order; the first value of a setting takes precedence.
    pub kubeconfig: Vec<PathBuf>,
    /// `~/.kube/config`, if there is a home directory.
    pub home: Option<PathBuf>,
    /// Whether this is a pod with a service account.
    pub in_cluster: bool,
    /// `$POD_NAMESPACE`.
    pub pod_namespace: Option<String>,
    /// The variable that names a proxy, which applies to the clusters of files. `NO_PROXY` is not read.
    pub proxy: Option<&'static str>,
}

impl Sources {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let kubeconfig = std::env::var_os("KUBECONFIG").unwrap_or_default();
        Self {
            kubeconfig: std::env::split_paths(&kubeconfig)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            home: std::env::home_dir().map(|home| home.join(".kube/config")),
            in_cluster: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            pod_namespace: std::env::var("POD_NAMESPACE")
                .ok()
                .filter(|name| !name.is_empty()),
            proxy: ["HTTPS_PROXY", "https_proxy"]
                .into_iter()
                .find(|name| std::env::var(name).is_ok_and(|proxy| !proxy.is_empty())),
        }
    }
}

/// Why no cluster can be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// Nothing names a cluster.
    #[error("no cluster configured: pass --kubeconfig, set KUBECONFIG, or run in a pod")]
    Nowhere,
    /// A file cannot be read, or none of a list exists.
    #[error("cannot read {files}: {reason}")]
    Unreadable {
        /// The file, or the list.
        files: String,
        /// Error of the operating system.
        reason: std::io::Error,
    },
    /// A file is not a kubeconfig.
    #[error("{place}: {message}")]
    Malformed {
        /// The file, with the line if known.
        place: String,
        /// Cause.
        message: String,
    },
    /// The requested context does not exist.
    #[error("{files}: unknown context {context:?} (contexts: {known})")]
    UnknownContext {
        /// The files that were read.
        files: String,
        /// The context.
        context: String,
        /// The existing contexts.
        known: String,
    },
    /// No context is requested and none is current.
    #[error(
        "{files}: no current context: pass --context, or set one with kubectl config use-context"
    )]
    NoContext {
        /// The files that were read.
        files: String,
    },
    /// The service account files of the pod are missing or invalid.
    #[error(
        "this pod has no usable service account: {0}; pass --kubeconfig to use another cluster"
    )]
    InCluster(String),
    /// A proxy is configured.
    #[error("cannot use a proxy: {0}")]
    Proxy(String),
    /// A setting of the file is invalid: a certificate, an address.
    #[error("{files}: {message}")]
    Unusable {
        /// The files that were read, or the service account.
        files: String,
        /// Cause.
        message: String,
    },
}

/// Finds the cluster: the file of the flag, `$KUBECONFIG`, the cluster that the process runs in,
/// `~/.kube/config`; the first that exists. A context is looked up in files only.
///
/// # Errors
/// If there is none, or it cannot be used.
pub async fn load(
    file: Option<&Path>,
    context: Option<&str>,
    sources: &Sources,
) -> Result<Config, KubeconfigError> {
    let (config, files) = match files(file, context, sources) {
        Some(files) => from_files(&files, context, sources.proxy).await?,
        None if sources.in_cluster => {
            let config = Config::incluster()
                .map_err(|error| KubeconfigError::InCluster(with_causes(&error)))?;
            (config, "the service account".to_owned())
        }
        None => return Err(KubeconfigError::Nowhere),
    };
    let config = without_retries(config);
    usable(&config, files)?;
    Ok(config)
}

/// Disables kube's retries of requests on 429, 503 and 504: the workqueue backs off instead.
fn without_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
}

/// The files to read; `None` to use the pod's service account.
fn files(file: Option<&Path>, context: Option<&str>, sources: &Sources) -> Option<Vec<PathBuf>> {
    if let Some(file) = file {
        return Some(vec![file.to_owned()]);
    }
    if !sources.kubeconfig.is_empty() {
        return Some(sources.kubeconfig.clone());
    }
    if sources.in_cluster && context.is_none() {
        return None;
    }
    sources
        .home
        .clone()
        .filter(|home| context.is_some() || home.exists())
        .map(|home| vec![home])
}

/// The names of the contexts in the files that [`load`] reads. A file that cannot be read has none.
pub fn contexts(file: Option<&Path>, sources: &Sources) -> Vec<String> {
    let files = files(file, None, sources).unwrap_or_default();
    let read = files.iter().filter_map(|file| read(file).ok());
    let contexts = read.flat_map(|kubeconfig| kubeconfig.contexts);
    contexts.map(|context| context.name).collect()
}

async fn from_files(
    files: &[PathBuf],
    context: Option<&str>,
    proxy: Option<&'static str>,
) -> Result<(Config, String), KubeconfigError> {
    let mut found = Vec::new();
    let mut missing = None;
    for file in files {
        match read(file) {
            // As in kubectl: files of $KUBECONFIG that do not exist are skipped.
            Err(KubeconfigError::Unreadable { reason, .. })
                if reason.kind() == std::io::ErrorKind::NotFound =>
            {
                missing = Some(reason);
            }
            read => found.push((file, read?)),
        }
    }
    if let Some(reason) = missing.filter(|_| found.is_empty()) {
        let files = listed(files);
        return Err(KubeconfigError::Unreadable { files, reason });
    }
    let named = listed(found.iter().map(|(file, _)| *file));
    let unusable = |error: &dyn std::error::Error| KubeconfigError::Unusable {
        files: named.clone(),
        message: with_causes(error),
    };
    let mut merged = Kubeconfig::default();
    for (_, mut next) in found {
        // kubectl writes an empty name for none, which must not take precedence over that of a later file.
        next.current_context.take_if(|name| name.is_empty());
        merged = merged.merge(next).map_err(|error| unusable(&error))?;
    }
    let Some(context) = context.or(merged.current_context.as_deref()) else {
        return Err(KubeconfigError::NoContext { files: named });
    };
    if !merged.contexts.iter().any(|known| known.name == context) {
        let known: Vec<_> = merged
            .contexts
            .iter()
            .map(|known| known.name.as_str())
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let context = context.to_owned();
        return Err(KubeconfigError::UnknownContext {
            files: named,
            context,
            known,
        });
    }
    without_proxy(&merged, context, &named, proxy)?;
    if let Some(user) = missing_user(&merged, context) {
        let message =
            format!("the context {context:?} names the user {user:?}, which does not exist");
        return Err(KubeconfigError::Unusable {
            files: named,
            message,
        });
    }
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(merged, &options)
        .await
        .map_err(|error| unusable(&error))?;
    Ok((config, named))
}

/// The user that this context names, if it does not exist: kube would connect without credentials.
fn missing_user<'a>(merged: &'a Kubeconfig, context: &str) -> Option<&'a str> {
    let mut contexts = merged.contexts.iter();
    let context = contexts.find(|known| known.name == context)?;
    let user = context.context.as_ref()?.user.as_deref()?;
    let exists = merged.auth_infos.iter().any(|known| known.name == user);
    (!exists && !user.is_empty()).then_some(user)
}

/// Checks that kube would use no proxy for this context: Belayer is built without. As in kube, the file takes precedence over
/// the `variable`.
fn without_proxy(
    merged: &Kubeconfig,
    context: &str,
    files: &str,
    variable: Option<&str>,
) -> Result<(), KubeconfigError> {
    let contexts = merged.contexts.iter();
    let mut contexts = contexts.filter(|known| known.name == context);
    let cluster = contexts
        .find_map(|known| known.context.as_ref())
        .map(|known| &known.cluster);
    let mut clusters = merged.clusters.iter();
    let url = clusters
        .find(|known| Some(&known.name) == cluster)
        .and_then(|known| known.cluster.as_ref()?.proxy_url.as_ref());
    let by = match (url.filter(|url| !url.is_empty()), variable) {
        (Some(_), _) => format!("remove `proxy-url` of the cluster from {files}"),
        (None, Some(variable)) => format!("{variable} is set; unset it"),
        (None, None) => return Ok(()),
    };
    Err(KubeconfigError::Proxy(by))
}

/// The names of files, for messages.
fn listed<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> String {
    let names = files.into_iter().map(|file| file.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

fn read(file: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let unreadable = |file: &Path, reason| KubeconfigError::Unreadable {
        files: file.display().to_string(),
        reason,
    };
    let bytes = std::fs::read(file).map_err(|reason| unreadable(file, reason))?;
    // UTF-16 that ends within a character makes kube 5.0 panic.
    if matches!(bytes.as_slice(), [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) && bytes.len() % 2 == 1 {
        return Err(KubeconfigError::Malformed {
            place: file.display().to_string(),
            message: "invalid kubeconfig: the file is truncated".to_owned(),
        });
    }
    Kubeconfig::read_from(file).map_err(|error| match error {
        kube::config::KubeconfigError::ReadConfig(reason, file) => unreadable(&file, reason),
        kube::config::KubeconfigError::Parse(error) => {
            let problem = yaml::describe(&error);
            let line = problem
                .line
                .map(|line| format!(":{line}"))
                .unwrap_or_default();
            KubeconfigError::Malformed {
                place: format!("{}{line}", file.display()),
                message: format!("invalid kubeconfig: {}", problem.message),
            }
        }
        other => KubeconfigError::Malformed {
            place: file.display().to_string(),
            message: with_causes(&other),
        },
    })
}

/// Checks that a client can be built. Does not run a credential plugin.
fn usable(config: &Config, files: String) -> Result<(), KubeconfigError> {
    if !matches!(config.cluster_url.scheme_str(), Some("http" | "https")) {
        let url = config.cluster_url.to_string();
        let message = format!("invalid URL {url:?} of the server (example: https://10.0.0.1:6443)");
        return Err(KubeconfigError::Unusable { files, message });
    }
    if config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some() {
        return Ok(());
    }
    match ClientBuilder::try_from(config.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(KubeconfigError::Unusable {
            files,
            message: no_client(&error, ""),
        }),
    }
}

/// Builds the client of a configuration that [`load`] found. It runs the credential plugin, if there is one.
///
/// # Errors
///
/// If there are no usable credentials.
pub(crate) fn connect(config: Config) -> Result<Client, Failure> {
    let exec = config.auth_info.exec.as_ref();
    let plugin = exec.and_then(|exec| exec.command.clone());
    belayer_core::client::connect(config, belayer_holds::names::USER_AGENT).map_err(|error| {
        let message = no_client(&error, &plugin.unwrap_or_default());
        Failure::configuration(anyhow::anyhow!(message))
    })
}

/// Why there is no client. kube's messages about credentials do not name the plugin, or show its environment.
fn no_client(error: &kube::Error, plugin: &str) -> String {
    let kube::Error::Auth(auth) = error else {
        return with_causes(error);
    };
    match auth {
        AuthError::AuthExecStart(error) => {
            format!("cannot run the credential plugin {plugin:?} of the kubeconfig: {error}")
        }
        AuthError::AuthExecRun { out, .. } => {
            let says = yaml::one_line(&String::from_utf8_lossy(&out.stderr));
            let says = if says.is_empty() {
                says
            } else {
                format!(": {says}")
            };
            let status = out.status;
            format!("the credential plugin {plugin:?} of the kubeconfig failed: {status}{says}")
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("cannot read the token file {}: {error}", path.display())
        }
        auth => with_causes(auth),
    }
}

#[cfg(test)]
mod tests;
