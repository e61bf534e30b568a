//! The pods of the nodes: admission, running, status writes and removal.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::admit::{check_fit, has_host_ports};
use super::super::decide::{PodStep, Progress as PodProgress, Reported, check_room, decide};
use super::super::lifecycle::{Now, RestartPolicy, Runtime};
use super::super::plan::{PodPlan, RunPlan};
use super::super::status::{self, Place};
use super::super::volumes::Mount;
use super::state::{Host, Hosts, Key, Link, Pod, Uid};
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::simulated::events::warn;
use crate::simulated::quantity::Amount;
use crate::simulated::{object, pods};

impl Hosts {
    pub(super) fn process_pod(&mut self, uid: &Uid, now: Now) -> Result<(), ApiError> {
        let Some(pod) = self.pods.get_mut(uid) else {
            return Ok(());
        };
        let Some(host) = self
            .hosts
            .get_mut(&pod.node)
            .filter(|host| host.link == Link::Up)
        else {
            return Ok(());
        };
        if let PodProgress::Accepted { runtime, .. } = &mut pod.progress {
            if runtime.waits_for_volumes() {
                match self.pvcs.mount(uid, &pod.object) {
                    Mount::Ready => runtime.mounted(now),
                    Mount::Waits { volume, why } => {
                        if pod.unmounted != why {
                            report_unmounted(&self.cluster, host, &pod.object, &volume, &why);
                            pod.unmounted = why;
                        }
                    }
                }
            }
            runtime.advance(now);
            if runtime.has_ended() {
                host.used = host.used - std::mem::take(&mut pod.charged);
            }
        }
        let recheck = std::mem::take(&mut pod.unchecked) && pod.is_alive();
        let step = if recheck {
            PodStep::Admit
        } else {
            decide(&pod.object, &pod.progress)
        };
        match step {
            PodStep::Nothing => {
                if let PodProgress::Accepted { runtime, .. } = &pod.progress
                    && let Some(when) = runtime.next_timer()
                {
                    self.agenda.add_at(Key::Pod(Arc::clone(uid)), when);
                }
                return Ok(());
            }
            PodStep::Admit => self.admit(uid, now)?,
            PodStep::ReportLost => {
                let lost = status::lost(&pod.object);
                pods::patch_status(&self.cluster, &host.actor, &pod.object, &lost)?;
                return Ok(());
            }
            PodStep::GiveUp => {
                let mut runtime = accept(pod, host, RunPlan::default(), now);
                runtime.stop(Duration::ZERO, now);
                pod.progress = PodProgress::Accepted {
                    runtime,
                    reported: Reported::Nothing,
                };
            }
            PodStep::Stop(grace) => {
                if let PodProgress::Accepted { runtime, .. } = &mut pod.progress {
                    runtime.stop(grace, now);
                }
            }
            PodStep::Report => report(&self.cluster, host, pod, now)?,
            PodStep::Remove => {
                pods::remove(&self.cluster, &host.actor, &pod.object)?;
                pod.progress = PodProgress::Settled;
            }
        }
        self.agenda.add(Key::Pod(Arc::clone(uid)));
        Ok(())
    }

    /// Accepts or rejects the pod; after a restart of the kubelet, checks a running pod again.
    fn admit(&mut self, uid: &Uid, now: Now) -> Result<(), ApiError> {
        let neighbours = self.neighbours(uid);
        let Some(pod) = self.pods.get_mut(uid) else {
            return Ok(());
        };
        let Some(host) = self.hosts.get_mut(&pod.node) else {
            return Ok(());
        };
        let need = Amount::requested_by(&pod.object);
        let runs = matches!(pod.progress, PodProgress::Accepted { .. });
        let plan = pod
            .plan
            .get_or_insert_with(|| self.planner.plan(&host.spec.name, &pod.object))
            .clone();
        let rejection = match &plan {
            PodPlan::Reject(rejection) if !runs => Some(rejection.clone()),
            _ => {
                let others = neighbours.iter().map(|other| &**other);
                // Until a kubelet has seen its own Node object, it uses the one that it is about to register.
                let node = match &host.object {
                    Some(node) => Arc::clone(node),
                    None => Arc::new(host.spec.object(&host.address, "")),
                };
                let misfit = check_fit(&pod.object, &node, others);
                misfit.or_else(|| check_room(&need, &host.used, &host.spec.capacity()))
            }
        };
        if let Some(rejection) = rejection {
            let status = status::rejected(&pod.object, &rejection, now.wall);
            if let Err(error) = pods::patch_status(&self.cluster, &host.actor, &pod.object, &status)
            {
                pod.unchecked = runs;
                return Err(error);
            }
            let texts = (rejection.reason.as_str(), rejection.detail.as_str());
            warn(&self.cluster, &host.actor, "kubelet", &pod.object, texts);
            pod.progress = PodProgress::New;
            return Ok(());
        }
        pod.charged = need;
        host.used += need;
        if let PodPlan::Run(plan) = plan
            && !runs
        {
            let mut runtime = accept(pod, host, plan, now);
            if self.pvcs.mount(uid, &pod.object) != Mount::Ready {
                runtime.wait_for_volumes();
            }
            pod.progress = PodProgress::Accepted {
                runtime,
                reported: Reported::Nothing,
            };
        }
        Ok(())
    }

    /// The other pods that run on the pod's node, if the pod has host ports.
    fn neighbours(&self, uid: &Uid) -> Vec<Arc<Value>> {
        let wants = |pod: &&Pod| has_host_ports(&pod.object);
        let Some(pod) = self.pods.get(uid).filter(wants) else {
            return Vec::new();
        };
        let there = self.by_node.get(&pod.node).into_iter().flatten();
        there
            .filter(|other| *other != uid)
            .filter_map(|other| self.pods.get(other).filter(|other| other.is_alive()))
            .map(|other| Arc::clone(&other.object))
            .collect()
    }

    pub(super) fn observe_pod(&mut self, object: &Arc<Value>) {
        let Some(node) = object::text(object, "/spec/nodeName") else {
            return;
        };
        let uid: Uid = object::uid(object).into();
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.object = Arc::clone(object);
        } else {
            let pod = Pod {
                object: Arc::clone(object),
                node: node.to_owned(),
                plan: None,
                progress: PodProgress::New,
                address: String::new(),
                charged: Amount::default(),
                unchecked: false,
                unmounted: String::new(),
            };
            self.pods.insert(Arc::clone(&uid), pod);
            self.by_node
                .entry(node.to_owned())
                .or_default()
                .insert(Arc::clone(&uid));
        }
        self.agenda.add(Key::Pod(uid));
    }

    pub(super) fn remove_pod(&mut self, object: &Value) {
        let uid: Uid = object::uid(object).into();
        let Some(pod) = self.pods.remove(&uid) else {
            return;
        };
        self.pvcs.remove(&uid);
        if let Some(host) = self.hosts.get_mut(&pod.node) {
            host.used = host.used - pod.charged;
        }
        if let Some(uids) = self.by_node.get_mut(&pod.node) {
            uids.remove(&uid);
            if uids.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        self.agenda.succeeded(&Key::Pod(uid));
    }
}

/// Writes an Event with the reason why the pod's containers do not start.
fn report_unmounted(cluster: &Cluster, host: &Host, pod: &Value, volume: &str, why: &str) {
    let message = format!(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], \
         failed to process volumes=[{volume}]: {why}"
    );
    warn(
        cluster,
        &host.actor,
        "kubelet",
        pod,
        ("FailedMount", &message),
    );
}

fn accept(pod: &mut Pod, host: &mut Host, plan: RunPlan, now: Now) -> Runtime {
    let policy = match object::text(&pod.object, "/spec/restartPolicy") {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    };
    pod.address = host.next_pod_address();
    Runtime::accept(plan, policy, now)
}

fn report(cluster: &Cluster, host: &Host, pod: &mut Pod, now: Now) -> Result<(), ApiError> {
    let PodProgress::Accepted { runtime, .. } = &pod.progress else {
        return Ok(());
    };
    let place = Place {
        host_ip: &host.address,
        pod_ip: &pod.address,
    };
    let mut status = status::accepted(&pod.object, runtime, &place, now.wall);
    if object::is_ended(&pod.object)
        && let Some(status) = status.as_object_mut()
    {
        // Another controller has set a final phase: it is never changed back.
        status.remove("phase");
    }
    let about = Reported::about(runtime);
    pods::patch_status(cluster, &host.actor, &pod.object, &status)?;
    if let PodProgress::Accepted { reported, .. } = &mut pod.progress {
        *reported = about;
    }
    Ok(())
}
