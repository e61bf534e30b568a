//! Three candidates and a server, with everything that can go wrong between them: two never write
//! at the same time, and once nothing goes wrong any more, one of them does.

use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::super::machine::Local;
use super::super::*;

const CANDIDATES: usize = 3;
const TROUBLE: u64 = 90_000;
const END: u64 = 180_000;

/// The Lease on the server.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
    /// Every version, for watches.
    history: Vec<Lease>,
}

enum Reply {
    Lease(Option<Lease>),
    Wrote(Record, Version),
    Conflict,
}

impl Server {
    fn answer(&mut self, action: &Action) -> Reply {
        let record = match action {
            Action::Read => return Reply::Lease(self.lease.clone()),
            Action::Create(_) if self.lease.is_some() => return Reply::Conflict,
            Action::Create(record) => record,
            Action::Write(record, over) => {
                if self.lease.as_ref().map(|lease| &lease.version) != Some(over) {
                    return Reply::Conflict;
                }
                record
            }
            Action::Wait(_) | Action::GiveUp { .. } => unreachable!("not sent"),
        };
        self.version += 1;
        let version = Version {
            uid: "u".into(),
            resource_version: self.version.to_string(),
        };
        let lease = Lease {
            version: version.clone(),
            record: record.clone(),
        };
        self.history.push(lease.clone());
        self.lease = Some(lease);
        Reply::Wrote(record.clone(), version)
    }
}

enum Activity {
    Pausing {
        until: u64,
    },
    /// The request is on its way to the server.
    Asking {
        action: Action,
        sent: Local,
        arrives: u64,
        lost: Lost,
    },
    /// The response is on its way back; `None` if it is lost.
    Waiting {
        reply: Option<Reply>,
        sent: Local,
        arrives: u64,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Lost {
    Nothing,
    Request,
    Answer,
}

/// One process: its state machine, its clocks, and its current step.
struct Process {
    candidate: Candidate,
    number: u64,
    /// Local time and wall-clock time have a start of their own.
    local: u64,
    wall: i64,
    doing: Activity,
    frozen_until: u64,
}

impl Process {
    fn new(number: u64, rng: &mut StdRng) -> Self {
        Self {
            candidate: Candidate::new(format!("c{number}"), Timing::default()),
            number,
            local: rng.random_range(0..1_000_000),
            wall: rng.random_range(-600_000..600_000),
            doing: Activity::Pausing {
                until: rng.random_range(0..3_000),
            },
            frozen_until: 0,
        }
    }

    fn now(&self, time: u64) -> Local {
        Duration::from_millis(self.local + time)
    }

    fn wall(&self, time: u64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + time.cast_signed() + self.wall).unwrap()
    }

    fn writes(&self, time: u64) -> bool {
        matches!(
            self.candidate.status(self.now(time)),
            LeaseStatus::Leading { .. }
        )
    }

    fn step(&mut self, time: u64, server: &mut Server, rng: &mut StdRng) {
        if time < self.frozen_until {
            // A request under way still arrives at the server.
            self.arrive(time, server, rng);
            return;
        }
        let trouble = time < TROUBLE;
        if trouble && rng.random_ratio(1, 2_000) {
            self.frozen_until = time + rng.random_range(0..40_000);
            return;
        }
        if trouble && rng.random_ratio(1, 1_000) {
            self.wall += rng.random_range(-600_000..600_000);
        }
        if let Activity::Pausing { until } = self.doing
            && until <= time
        {
            let action = self.candidate.begin(self.now(time), self.wall(time));
            self.action(action, time, rng);
        }
        self.arrive(time, server, rng);
        self.hear(time, rng);
        self.watch(time, server, rng);
    }

    /// A standby in a pause sees an event of its watch: of the last version, or a delayed one.
    fn watch(&mut self, time: u64, server: &Server, rng: &mut StdRng) {
        let now = self.now(time);
        let paused = matches!(self.doing, Activity::Pausing { .. });
        if paused
            && self.candidate.status(now) == LeaseStatus::Standby
            && rng.random_ratio(1, 20)
            && let Some(lease) = server.history.iter().nth_back(rng.random_range(0..4))
        {
            self.candidate.watched(lease.clone(), now);
        }
    }

    fn action(&mut self, action: Action, time: u64, rng: &mut StdRng) {
        let trouble = time < TROUBLE;
        self.doing = match action {
            Action::Wait(_) => self.pause(time, rng),
            Action::GiveUp { .. } => {
                // The process ends, and another one starts.
                let number = self.number + 10;
                *self = Self::new(number, rng);
                Activity::Pausing { until: time + 500 }
            }
            action => Activity::Asking {
                action,
                sent: self.now(time),
                arrives: time + delay(trouble, rng),
                lost: match rng.random_range(0..20) {
                    0 if trouble => Lost::Request,
                    1 | 2 if trouble => Lost::Answer,
                    _ => Lost::Nothing,
                },
            },
        };
    }

    fn pause(&self, time: u64, rng: &mut StdRng) -> Activity {
        let pause = self.candidate.pause(self.now(time), rng.random());
        Activity::Pausing {
            until: time + u64::try_from(pause.as_millis()).unwrap(),
        }
    }

    fn arrive(&mut self, time: u64, server: &mut Server, rng: &mut StdRng) {
        let Activity::Asking {
            action,
            sent,
            arrives,
            lost,
        } = &self.doing
        else {
            return;
        };
        if time < *arrives {
            return;
        }
        let reply = (*lost != Lost::Request).then(|| server.answer(action));
        let heard = (*lost == Lost::Nothing).then_some(reply).flatten();
        self.doing = Activity::Waiting {
            arrives: match heard {
                // A request without a response times out.
                None => time + 5_000,
                Some(_) => time + delay(time < TROUBLE, rng),
            },
            reply: heard,
            sent: *sent,
        };
    }

    fn hear(&mut self, time: u64, rng: &mut StdRng) {
        let Activity::Waiting {
            reply,
            sent,
            arrives,
        } = &mut self.doing
        else {
            return;
        };
        if time < *arrives {
            return;
        }
        let (reply, sent) = (reply.take(), *sent);
        let (now, wall) = (self.now(time), self.wall(time));
        match reply {
            None => {
                self.candidate.failed();
                self.doing = self.pause(time, rng);
            }
            Some(Reply::Conflict) => {
                self.candidate.failed();
                self.action(Action::Read, time, rng);
            }
            Some(Reply::Wrote(record, version)) => {
                self.candidate.wrote(record, Some(version), sent);
                self.doing = self.pause(time, rng);
            }
            Some(Reply::Lease(lease)) => {
                let action = self.candidate.seen(lease, now, wall);
                self.action(action, time, rng);
            }
        }
    }
}

/// Up to three seconds each way while there is trouble.
fn delay(trouble: bool, rng: &mut StdRng) -> u64 {
    if trouble && rng.random_ratio(1, 5) {
        rng.random_range(0..3_000)
    } else {
        rng.random_range(1..20)
    }
}

#[test]
fn two_replicas_never_write_at_once_and_one_leads_in_the_end() {
    let mut handovers = 0;
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut server = Server::default();
        let mut processes: Vec<Process> = (0..CANDIDATES as u64)
            .map(|number| Process::new(number, &mut rng))
            .collect();
        for time in (0..END).step_by(10) {
            for process in &mut processes {
                process.step(time, &mut server, &mut rng);
            }
            let writing: Vec<_> = processes
                .iter()
                .filter(|process| process.writes(time))
                .map(|process| process.candidate.identity())
                .collect();
            assert!(
                writing.len() <= 1,
                "seed {seed}, {time} ms: {writing:?} write at the same time"
            );
        }
        assert!(
            processes.iter().any(|process| process.writes(END)),
            "seed {seed}: no leader in the end"
        );
        handovers += server.lease.unwrap().record.transitions;
    }
    // Otherwise the test would not have tested a change of leaders.
    assert!(handovers > 60, "{handovers} changes of leaders in all");
}
