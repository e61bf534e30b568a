//! The Deployments of Belayer in the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use belayer_core::http::Request;
use belayer_holds::permissions::Permission;

use super::permissions::{Authorizer, Ruling, Subject};
use super::report::{About, Finding};
use crate::details::{Container, WorkloadObject};
use crate::reader::{Page, Reader, explain};

/// The label of Belayer's Deployments.
const LABEL: &str = "app.kubernetes.io/name=belayer";

/// Time limit of the read of Belayer's Deployments.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Maximum number of Deployments that are named and may not be Belayer.
const NAMED: usize = 10;

/// Another Belayer in this cluster: a Deployment with Belayer's label whose account may watch all pods. Every Belayer
/// needs that, wherever it writes, and no Role in a namespace grants it. Whoever may write Deployments in one namespace can
/// set the label.
pub(crate) async fn installations(
    reader: &Reader,
    authorizer: &dyn Authorizer,
    own: &str,
) -> Vec<Finding> {
    let request = Request::get("/apis/apps/v1/deployments").query("labelSelector", LABEL);
    let list: Value = match reader.json(&request).await {
        Ok(list) => list,
        Err(error) => {
            return vec![Finding::unknown(
                About::Installation,
                "whether another Belayer is installed",
                format!("deployments: {}", explain(&error)),
            )];
        }
    };
    let permission = Permission::new("", "pods", "watch", "");
    let mut rulings: BTreeMap<(&str, &str), Ruling> = BTreeMap::new();
    let (mut found, mut doubtful) = (Vec::new(), Vec::new());
    for deployment in list["items"].as_array().into_iter().flatten() {
        let text = |key: &str| deployment["metadata"][key].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        if namespace == own {
            continue;
        }
        let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
        let account = account.as_str().unwrap_or("default");
        let subject = Subject::service_account(namespace, account);
        let ruling = match rulings.get(&(namespace, account)) {
            Some(ruling) => ruling.clone(),
            None => authorizer.ask(&permission, &subject, own).await,
        };
        rulings.insert((namespace, account), ruling.clone());
        let note = |why| {
            let what = format!("deployment {namespace}/{name} has the label {LABEL}");
            Finding::note(About::Installation, what, why)
        };
        match ruling {
            Ruling::Granted => found.push(
                Finding::missing(About::Installation,
                    format!("deployment {namespace}/{name} is another Belayer"),
                    "two independent installations add and release the same holds with different configurations",
                )
                .fix("remove one of them; --own-namespace selects the installation that this command checks"),
            ),
            Ruling::Refused => doubtful.push(note(format!(
                "it is not another Belayer that works: its account {account} may not watch all pods"
            ))),
            Ruling::Unknown(why) => doubtful.push(note(format!(
                "it may be another Belayer; whether its account {account} may watch all pods is unknown: {why}"
            ))),
        }
    }
    found.extend(doubtful.into_iter().take(NAMED));
    found
}

/// The first Deployment of Belayer in `namespace` that runs with a configuration file, if they can be read within 5 s.
///
/// ```
/// # async fn example(reader: &belayer_inspect::reader::Reader) {
/// use belayer_inspect::preflight::with_configuration_file;
///
/// // Whoever reads the default configuration would not see what that Belayer holds.
/// if let Some(name) = with_configuration_file(reader, "belayer-system").await {
///     println!("the Deployment {name} has its configuration in a file");
/// }
/// # }
/// ```
pub async fn with_configuration_file(reader: &Reader, namespace: &str) -> Option<String> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let request = Request::get(path).query("labelSelector", LABEL);
    let read = reader.json::<Page<WorkloadObject<Container>>>(&request);
    let list = tokio::time::timeout(ANSWER_WITHIN, read).await.ok()?.ok()?;
    let mut all = list.items.into_iter().flatten();
    let found = all.find(|one| {
        let mut containers = one.spec.template.spec.containers.iter();
        containers.any(Container::has_configuration_file)
    });
    Some(found?.metadata.name)
}

impl Container {
    fn has_configuration_file(&self) -> bool {
        self.words()
            .any(|word| word == "--config" || word.starts_with("--config="))
            || self.env.iter().any(|one| one.name == "BELAYER_CONFIG")
    }
}
