#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(test),
    allow(dead_code, reason = "only tests plant faults and look for cycles")
)]

mod drain;
mod kit;
mod pods;
mod pvcs;
mod record;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser;

use drain::Draining;
use kit::{Exploration, explore};
use pods::Pods;
use pvcs::Pvcs;
use record::Recreation;

/// Explore every state of small models around Belayer's decisions
///
/// Prints a row of a table for each model. The exit code is 1 if a property is violated.
#[derive(Debug, Parser)]
#[command(name = "belayer-models", bin_name = "cargo xtask models", version)]
struct Models {
    /// The large bounds, which take minutes and gigabytes of memory
    #[arg(long)]
    large: bool,

    /// Only models whose names contain one of these
    names: Vec<String>,

    /// How many threads; by default one per processor
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// A model and its bounds, as text.
type Case = (
    &'static str,
    &'static str,
    Box<dyn Fn(usize) -> Exploration>,
);

fn case<M: kit::Explored + Clone>(name: &'static str, bounds: &'static str, model: M) -> Case {
    let run = move |threads| explore(model.clone(), threads, None);
    (name, bounds, Box::new(run))
}

/// The bounds that the tests use.
fn small() -> Vec<Case> {
    let pods = Pods {
        names: 1,
        replicas: 1,
        workflows: 2,
        retries: 1,
        crashes: 0,
        policy: true,
        fault: None,
    };
    let two_replicas = Pods {
        replicas: 2,
        workflows: 1,
        retries: 0,
        policy: false,
        ..pods
    };
    let pvcs = Pvcs {
        pods: 2,
        replicas: 1,
        pvcs: 2,
        created: 2,
        crashes: 1,
        fault: None,
    };
    let two_of_pvcs = Pvcs {
        pods: 1,
        replicas: 2,
        created: 1,
        crashes: 0,
        ..pvcs
    };
    let record = Recreation {
        replicas: 1,
        retries: 1,
        deletions: 1,
        others: 1,
        wipe: true,
        crashes: 1,
        fault: None,
    };
    let two_leaders = Recreation {
        replicas: 2,
        deletions: 0,
        others: 0,
        wipe: false,
        crashes: 0,
        ..record
    };
    let drain = Draining {
        pods: 2,
        replicas: 2,
        created: 1,
        protected: false,
        fault: None,
    };
    vec![
        case(
            "pods",
            "1 pod name, 2 workflows, 1 replica, 1 retry, policy",
            pods,
        ),
        case(
            "pods-two-leaders",
            "1 pod name, 1 workflow, 2 replicas",
            two_replicas,
        ),
        case("claims", "2 pods, 2 PVCs, 1 replica, 1 crash", pvcs),
        case(
            "claims-two-leaders",
            "1 pod, 2 PVCs, 2 replicas",
            two_of_pvcs,
        ),
        case("record", "1 retry, 1 replica, 1 crash, wipe, user", record),
        case("record-two-leaders", "1 retry, 2 replicas", two_leaders),
        case("drain", "2 pods, 1 PVC, 2 replicas, 1 new object", drain),
    ]
}

/// The bounds that take minutes.
fn large() -> Vec<Case> {
    let pods = Pods {
        names: 2,
        replicas: 1,
        workflows: 2,
        retries: 0,
        crashes: 0,
        policy: false,
        fault: None,
    };
    let two_replicas = Pods {
        names: 1,
        replicas: 2,
        workflows: 2,
        retries: 0,
        crashes: 0,
        policy: false,
        fault: None,
    };
    let pvcs = Pvcs {
        pods: 2,
        replicas: 2,
        pvcs: 2,
        created: 2,
        crashes: 0,
        fault: None,
    };
    let record = Recreation {
        replicas: 2,
        retries: 1,
        deletions: 1,
        others: 0,
        wipe: false,
        crashes: 0,
        fault: None,
    };
    let crashing = Recreation {
        retries: 2,
        deletions: 0,
        crashes: 1,
        ..record
    };
    let drain = Draining {
        pods: 2,
        replicas: 2,
        created: 3,
        protected: false,
        fault: None,
    };
    vec![
        case("pods", "2 pod names, 2 workflows, 1 replica", pods),
        case(
            "pods-two-leaders",
            "1 pod name, 2 workflows, 2 replicas",
            two_replicas,
        ),
        case("claims-two-leaders", "2 pods, 2 PVCs, 2 replicas", pvcs),
        case("record-user", "1 retry, 2 replicas, user", record),
        case("record-crash", "2 retries, 2 replicas, 1 crash", crashing),
        case("drain", "2 pods, 1 PVC, 2 replicas, 3 new objects", drain),
    ]
}

fn main() -> ExitCode {
    let models = Models::parse();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = models.threads.unwrap_or(processors).max(1);
    let mut cases = small();
    if models.large {
        cases.extend(large());
    }
    if !models.names.is_empty() {
        cases.retain(|(name, ..)| models.names.iter().any(|part| name.contains(part)));
    }
    anstream::println!("| model | bounds | states | steps | depth | seconds |");
    anstream::println!("| --- | --- | --- | --- | --- | --- |");
    let mut is_good = true;
    for (name, bounds, run) in cases {
        let Exploration {
            states,
            steps,
            depth,
            seconds,
            violations,
        } = run(threads);
        anstream::println!("| {name} | {bounds} | {states} | {steps} | {depth} | {seconds:.0} |");
        for (property, path) in violations {
            is_good = false;
            anstream::println!("\n{name} violates {property} after:");
            for action in path {
                anstream::println!("  {action}");
            }
        }
    }
    ExitCode::from(u8::from(!is_good))
}
