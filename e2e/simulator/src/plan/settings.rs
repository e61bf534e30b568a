//! The configuration of Belayer that a seed decides.

use std::time::Duration;

use belayer_checker::Settings;
use belayer_demo::setup::{Growth, OnWipeTimeout, Policy, Tuning};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::objects::{ARGOS, REPORTS};

pub(super) fn tuning(rng: &mut StdRng) -> Tuning {
    Tuning {
        policy: Policy {
            backoff_seconds: *[1, 1, 20].choose(rng).unwrap_or(&1),
            ..Policy::default()
        },
        profiles: Settings {
            node_lost_delay: Duration::from_secs(*[0, 20].choose(rng).unwrap_or(&0)),
            ..Settings::default()
        },
        ..Tuning::default()
    }
}

pub(super) fn more_settings(tuning: Tuning, rng: &mut StdRng) -> Tuning {
    let thresholds = [tuning.backlog_threshold, tuning.backlog_threshold, 1, 2];
    Tuning {
        profiles: Settings {
            captures: rng.random_bool(0.3),
            ..tuning.profiles
        },
        backlog_threshold: *thresholds.choose(rng).unwrap_or(&1),
        ..tuning
    }
}

pub(super) fn profiles(before: Settings, rng: &mut StdRng) -> Settings {
    Settings {
        holds_deleted: rng.random_bool(0.3),
        release_after: rng.random_bool(0.15).then_some(Duration::from_secs(20)),
        cleans_up: rng.random_bool(0.3),
        adopts: rng.random_bool(0.2).then_some(ARGOS),
        recorded_app: rng.random_bool(0.3).then_some(REPORTS),
        ..before
    }
}

pub(super) fn policy(before: Policy, rng: &mut StdRng) -> Policy {
    let growth = Growth {
        factor: *[1.0, 3.0].choose(rng).unwrap_or(&1.0),
        max_seconds: 60,
        jitter: *[0.0, 0.5].choose(rng).unwrap_or(&0.0),
    };
    Policy {
        max_retries: *[0, 1, 3, 3, 3].choose(rng).unwrap_or(&3),
        backoff: rng.random_bool(0.3).then_some(growth),
        wipe_timeout_seconds: *[10, 120].choose(rng).unwrap_or(&120),
        on_wipe_timeout: if rng.random_bool(0.3) {
            OnWipeTimeout::Fail
        } else {
            OnWipeTimeout::Proceed
        },
        avoid_rejected_node: rng.random_bool(0.3),
        ..before
    }
}
