//! Three candidates and a server, with everything that can go wrong between them: at no moment may
//! two of them write, and once nothing goes wrong any more, one of them does.

use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::super::machine::Local;
use super::super::*;

const CANDIDATES: usize = 3;
const TROUBLE: u64 = 90_000;
const END: u64 = 180_000;

/// The Lease, as the server has it.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

enum Reply {
    Lease(Option<Lease>),
    Wrote(Record, Version),
    Conflict,
}

impl Server {
    fn answer(&mut self, ask: &Ask) -> Reply {
        let record = match ask {
            Ask::Look => return Reply::Lease(self.lease.clone()),
            Ask::Create(_) if self.lease.is_some() => return Reply::Conflict,
            Ask::Create(record) => record,
            Ask::Write(record, over) => {
                if self.lease.as_ref().map(|lease| &lease.version) != Some(over) {
                    return Reply::Conflict;
                }
                record
            }
            Ask::Wait(_) | Ask::GiveUp { .. } => unreachable!("not sent"),
        };
        self.version += 1;
        let version = Version {
            uid: "u".into(),
            resource_version: self.version.to_string(),
        };
        self.lease = Some(Lease {
            version: version.clone(),
            record: record.clone(),
        });
        Reply::Wrote(record.clone(), version)
    }
}

enum Doing {
    Pausing {
        until: u64,
    },
    /// On the way to the server.
    Asking {
        ask: Ask,
        sent: Local,
        arrives: u64,
        lost: Lost,
    },
    /// On the way back; `None` is lost.
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

/// One process: its machine, its clocks, and what it is doing.
struct Process {
    candidate: Candidate,
    number: u64,
    /// Local time and wall time each have a beginning of their own.
    local: u64,
    wall: i64,
    doing: Doing,
    frozen_until: u64,
}

impl Process {
    fn new(number: u64, chance: &mut StdRng) -> Self {
        Self {
            candidate: Candidate::new(format!("c{number}"), Timing::default()),
            number,
            local: chance.random_range(0..1_000_000),
            wall: chance.random_range(-600_000..600_000),
            doing: Doing::Pausing {
                until: chance.random_range(0..3_000),
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

    fn step(&mut self, time: u64, server: &mut Server, chance: &mut StdRng) {
        if time < self.frozen_until {
            // What is on its way arrives at the server all the same.
            self.arrive(time, server, chance);
            return;
        }
        let trouble = time < TROUBLE;
        if trouble && chance.random_ratio(1, 2_000) {
            self.frozen_until = time + chance.random_range(0..40_000);
            return;
        }
        if trouble && chance.random_ratio(1, 1_000) {
            self.wall += chance.random_range(-600_000..600_000);
        }
        if let Doing::Pausing { until } = self.doing
            && until <= time
        {
            let ask = self.candidate.begin(self.now(time), self.wall(time));
            self.ask(ask, time, chance);
        }
        self.arrive(time, server, chance);
        self.hear(time, chance);
    }

    fn ask(&mut self, ask: Ask, time: u64, chance: &mut StdRng) {
        let trouble = time < TROUBLE;
        self.doing = match ask {
            Ask::Wait(_) => self.pause(time, chance),
            Ask::GiveUp { .. } => {
                // The process ends, and another is started.
                let number = self.number + 10;
                *self = Self::new(number, chance);
                Doing::Pausing { until: time + 500 }
            }
            ask => Doing::Asking {
                ask,
                sent: self.now(time),
                arrives: time + delay(trouble, chance),
                lost: match chance.random_range(0..20) {
                    0 if trouble => Lost::Request,
                    1 | 2 if trouble => Lost::Answer,
                    _ => Lost::Nothing,
                },
            },
        };
    }

    fn pause(&self, time: u64, chance: &mut StdRng) -> Doing {
        let pause = self.candidate.pause(self.now(time), chance.random());
        Doing::Pausing {
            until: time + u64::try_from(pause.as_millis()).unwrap(),
        }
    }

    fn arrive(&mut self, time: u64, server: &mut Server, chance: &mut StdRng) {
        let Doing::Asking {
            ask,
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
        let reply = (*lost != Lost::Request).then(|| server.answer(ask));
        let heard = (*lost == Lost::Nothing).then_some(reply).flatten();
        self.doing = Doing::Waiting {
            arrives: match heard {
                // A request that gets no answer is given up.
                None => time + 5_000,
                Some(_) => time + delay(time < TROUBLE, chance),
            },
            reply: heard,
            sent: *sent,
        };
    }

    fn hear(&mut self, time: u64, chance: &mut StdRng) {
        let Doing::Waiting {
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
                self.doing = self.pause(time, chance);
            }
            Some(Reply::Conflict) => {
                self.candidate.failed();
                self.ask(Ask::Look, time, chance);
            }
            Some(Reply::Wrote(record, version)) => {
                self.candidate.wrote(record, Some(version), sent);
                self.doing = self.pause(time, chance);
            }
            Some(Reply::Lease(lease)) => {
                let ask = self.candidate.seen(lease, now, wall);
                self.ask(ask, time, chance);
            }
        }
    }
}

/// Up to three seconds each way while there is trouble.
fn delay(trouble: bool, chance: &mut StdRng) -> u64 {
    if trouble && chance.random_ratio(1, 5) {
        chance.random_range(0..3_000)
    } else {
        chance.random_range(1..20)
    }
}

#[test]
fn two_never_write_at_once_and_one_does_in_the_end() {
    let mut handovers = 0;
    for seed in 0..60 {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut server = Server::default();
        let mut processes: Vec<Process> = (0..CANDIDATES as u64)
            .map(|number| Process::new(number, &mut chance))
            .collect();
        for time in (0..END).step_by(10) {
            for process in &mut processes {
                process.step(time, &mut server, &mut chance);
            }
            let writing: Vec<_> = processes
                .iter()
                .filter(|process| process.writes(time))
                .map(|process| process.candidate.identity())
                .collect();
            assert!(
                writing.len() <= 1,
                "seed {seed}, {time} ms: {writing:?} write at once"
            );
        }
        assert!(
            processes.iter().any(|process| process.writes(END)),
            "seed {seed}: nobody leads in the end"
        );
        handovers += server.lease.unwrap().record.transitions;
    }
    // Else nothing was tried.
    assert!(handovers > 60, "{handovers} changes of hands in all");
}
