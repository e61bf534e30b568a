//! Random interleavings against a simple model.

mod line;

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::{Deadline, Effects, Ended, Observation, Pace, Phase, Slot};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::workqueue::Backoff;
use line::Model;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(8), Duration::from_millis(64));
const RESYNC: u64 = 40;
const PACE: Pace = Pace {
    resync: Some(Duration::from_millis(RESYNC)),
    draw: 1.0,
};

#[derive(Debug, Clone)]
enum Op {
    Created(u8),
    Updated(u8),
    /// Milliseconds from now; 0 means no deadline.
    Terminating(u8, u64),
    Kill(u8, u64),
    Deleted(u8),
    Begin,
    Complete(Ended),
    Advance(u64),
    /// A pass begun at the n-th of the times so far, counted from the last, that found this UID.
    Pass(usize, Option<u8>),
    Found(u8, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let uid = || 0..4_u8;
    let grace = || 0..60_u64;
    let ended = prop_oneof![
        2 => Just(Ended::Settled),
        1 => (0..30_u64).prop_map(|ms| Ended::Again { after: Duration::from_millis(ms) }),
        1 => Just(Ended::Terminal),
        4 => Just(Ended::Done),
        2 => Just(Ended::Failed(BACKOFF)),
    ];
    prop_oneof![
        3 => uid().prop_map(Op::Created),
        3 => uid().prop_map(Op::Updated),
        2 => (uid(), grace()).prop_map(|(uid, grace)| Op::Terminating(uid, grace)),
        1 => (uid(), grace()).prop_map(|(uid, grace)| Op::Kill(uid, grace)),
        2 => uid().prop_map(Op::Deleted),
        8 => Just(Op::Begin),
        8 => ended.prop_map(Op::Complete),
        3 => (0..50_u64).prop_map(Op::Advance),
        1 => (0..4_usize, prop::option::of(uid())).prop_map(|(age, uid)| Op::Pass(age, uid)),
        1 => (uid(), grace()).prop_map(|(uid, grace)| Op::Found(uid, grace)),
    ]
}

fn uid(name: u8) -> Uid {
    Uid::new(format!("u-{name}"))
}

fn at(epoch: Instant, ms: Option<u64>) -> Deadline {
    ms.map_or(Deadline::NONE, |ms| {
        Deadline::at(epoch + Duration::from_millis(ms))
    })
}

/// The table and the model.
struct Pair {
    slot: Slot<u32>,
    model: Model,
    epoch: Instant,
    times: Vec<LogicalTime>,
    values: u32,
}

impl Pair {
    fn new() -> Self {
        Self {
            slot: Slot::default(),
            model: Model::default(),
            epoch: Instant::now(),
            times: vec![LogicalTime::now()],
            values: 0,
        }
    }

    fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.model.now)
    }

    /// When the next run of the model is due; `None` means never.
    fn due(&self) -> Option<u64> {
        let first = self.model.line.first()?;
        first.due.filter(|_| first.flight.is_none())
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let heard = LogicalTime::now();
        self.times.push(heard);
        let due = self.due();
        self.values += 1;
        let value = self.values;
        let grace = |ms: u64| (ms > 0).then_some(self.model.now + ms);
        let mut expected = Effects::default();
        let happened = match *op {
            Op::Begin => {
                let step = self.model.begin(self.epoch);
                prop_assert_eq!(self.slot.begin(self.now()), step);
                return Ok(());
            }
            Op::Advance(ms) => {
                self.model.now += ms;
                return Ok(());
            }
            Op::Complete(ended) => {
                if !self.model.complete(ended) {
                    return Ok(());
                }
                self.slot.complete(ended, PACE, self.now())
            }
            Op::Pass(age, name) => {
                let as_of = self.times[self.times.len().saturating_sub(1 + age)];
                let listed = name.map(|name| (name, value));
                self.model.pass(as_of, listed, &mut expected);
                let name = name.map(uid);
                self.slot
                    .pass(as_of, name.as_ref().map(|name| (name, value)))
            }
            Op::Found(name, ms) => {
                let deadline = grace(ms);
                self.model.found(name, deadline, heard, &mut expected);
                self.slot.found(&uid(name), at(self.epoch, deadline), heard)
            }
            Op::Created(name)
            | Op::Updated(name)
            | Op::Terminating(name, _)
            | Op::Kill(name, _)
            | Op::Deleted(name) => {
                let deadline = match *op {
                    Op::Terminating(_, ms) | Op::Kill(_, ms) => grace(ms),
                    _ => None,
                };
                self.model
                    .observe(name, op, value, deadline, heard, &mut expected);
                let observation = match op {
                    Op::Created(_) => Observation::Created(value),
                    Op::Updated(_) => Observation::Updated(value),
                    Op::Deleted(_) => Observation::Deleted,
                    Op::Kill(..) => Observation::Kill {
                        deadline: at(self.epoch, deadline),
                    },
                    _ => Observation::Terminating {
                        snapshot: value,
                        deadline: at(self.epoch, deadline),
                    },
                };
                self.slot.observe(&uid(name), observation, heard)
            }
        };
        self.model.tidy(&mut expected);
        let sooner = match (due, self.due()) {
            (Some(before), Some(after)) => after < before,
            (before, after) => before.is_none() && after.is_some(),
        };
        prop_assert!(
            happened.wake || !sooner,
            "no worker is woken although work is due"
        );
        // A needless wake-up is allowed.
        expected.wake = happened.wake;
        prop_assert_eq!(happened, expected);
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let mut views: Vec<_> = self.slot.views().collect();
        views.sort_by_key(|view| view.uid.clone());
        let mut expected = self.model.views(self.epoch);
        expected.sort_by_key(|view| view.uid.clone());
        prop_assert_eq!(views, expected);
        prop_assert_eq!(
            self.slot.is_empty(),
            self.model.line.is_empty() && self.model.wall.is_empty()
        );
        let quiet = self.model.line.first().is_none_or(|first| {
            first.flight.is_none() && first.due.is_none_or(|due| due > self.model.now)
        });
        prop_assert_eq!(self.slot.is_quiet(self.now()), quiet);
        Ok(())
    }

    /// From here every run succeeds: all work that must end does, and the last observation of
    /// desired objects was used.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..40 {
            self.apply(&Op::Begin)?;
            self.apply(&Op::Complete(Ended::Done))?;
            self.apply(&Op::Advance(100))?;
        }
        for view in self.slot.views() {
            prop_assert!(matches!(view.phase, Phase::Sync | Phase::Finished));
        }
        let first = self.model.line.first();
        if let Some(view) = self.slot.views().find(|view| view.phase == Phase::Sync) {
            let last = first.and_then(|first| first.observations.last().copied());
            prop_assert_eq!(view.snapshot, last, "the last observation was not acted on");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn random_interleavings_behave_like_the_model(
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op)?;
            pair.compare()?;
        }
        pair.settle()?;
    }
}
