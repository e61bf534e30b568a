//! All simulated nodes, their pods, and the loop over both.

mod nodes;
mod pods;
mod state;

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::plan::Planner;
use super::volumes::Pvcs;
use super::{Command, KubeletConfig, Kubelets};
use crate::address::Gvr;
use crate::cluster::Cluster;
use crate::simulated::agenda::Agenda;
use crate::simulated::driver::{Change, Controller, Interest, Progress};
pub(crate) use state::Hosts;
use state::{Key, Link, Registration};

impl Hosts {
    pub(crate) fn new(cluster: Cluster, config: KubeletConfig) -> (Self, Kubelets) {
        let (sender, commands) = mpsc::unbounded_channel();
        let KubeletConfig {
            nodes,
            default_plan,
            rejections,
            script,
            seed,
            unreachable_after,
        } = config;
        let hosts = Self {
            cluster,
            planner: Planner {
                default: default_plan,
                chance: rejections,
                script,
                seed,
            },
            unreachable_after,
            hosts: BTreeMap::new(),
            pods: BTreeMap::new(),
            by_node: BTreeMap::new(),
            pvcs: Pvcs::default(),
            agenda: Agenda::default(),
            commands,
            inbox: nodes.into_iter().map(Command::Add).collect(),
        };
        (hosts, Kubelets { commands: sender })
    }

    fn run_commands(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            self.inbox.push_back(command);
        }
        while let Some(command) = self.inbox.pop_front() {
            let name = match command {
                Command::Add(spec) => self.add(spec),
                Command::Vanish(name) => {
                    if let Some(host) = self.hosts.get_mut(&name)
                        && host.link == Link::Up
                    {
                        host.link = Link::Silent { since: now };
                    }
                    name
                }
                Command::ComeBack(name) => {
                    if let Some(host) = self.hosts.get_mut(&name) {
                        host.link = Link::Up;
                        if host.object.is_none() {
                            host.registration = Registration::Wanted;
                        }
                    }
                    name
                }
                Command::Destroy(name) => {
                    self.destroy(&name, now);
                    name
                }
                Command::Restart(name) => {
                    self.restart(&name);
                    name
                }
            };
            self.process_all_of(&name);
            self.agenda.add(Key::Node(name));
        }
    }
}

impl Controller for Hosts {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::NODES, Gvr::PODS, Gvr::PERSISTENTVOLUMECLAIMS])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, _: Instant) {
        match change {
            change if *gvr == Gvr::NODES => self.observe_node(change),
            change if *gvr == Gvr::PERSISTENTVOLUMECLAIMS => {
                for uid in self.pvcs.observe(change) {
                    self.agenda.add(Key::Pod(uid));
                }
            }
            Change::Upserted(object) => self.observe_pod(object),
            Change::Removed(object) => self.remove_pod(object),
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        self.run_commands(now);
        let Some(key) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        let done = match &key {
            Key::Node(name) => self.process_node(name, now),
            Key::Pod(uid) => self.process_pod(uid, self.now(now)),
        };
        match done {
            Ok(()) => self.agenda.succeeded(&key),
            // Gone, or replaced by another object of the same name: the log has an event for it.
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, ?key, "a kubelet will retry");
                self.agenda.retry(key, now);
            }
        }
        Progress::Worked
    }

    async fn called(&mut self) {
        match self.commands.recv().await {
            Some(command) => self.inbox.push_back(command),
            None => std::future::pending().await,
        }
    }
}
