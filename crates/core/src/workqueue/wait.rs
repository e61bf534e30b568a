//! Who waits for work, and who is woken.
//!
//! All of it lives under the queue's one lock, so there is no wake-up protocol to get wrong: after
//! every operation [`Waiters::settle`] restores two rules.
//!
//! 1. While anybody sleeps, every ready key has a waiter that was woken and has not looked yet: one
//!    waiter per key, the longest sleeper first.
//! 2. While anybody sleeps and a key is delayed, exactly one waiter (the timekeeper) has its timer
//!    set to the earliest due time, or a woken waiter is about to look and become it.

use std::collections::BTreeMap;
use std::task::Waker;

use super::clock::Tick;

/// A waiter's place in the line. It is kept over spurious wake-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Debug, Clone, Copy)]
struct Timekeeper {
    ticket: Ticket,
    set_to: Tick,
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    asleep: BTreeMap<Ticket, Waker>,
    /// Woken, but they have not looked yet.
    woken: usize,
    timekeeper: Option<Timekeeper>,
    tickets: u64,
}

/// Wakers to call once the lock is free: a waker may run anything, this queue's methods included.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        match &self.first {
            None => self.first = Some(waker),
            Some(_) => self.rest.push(waker),
        }
    }

    pub(super) fn fire(self) {
        if let Some(waker) = self.first {
            waker.wake();
            self.rest.into_iter().for_each(Waker::wake);
        }
    }
}

impl Waiters {
    /// Nobody sleeps: there is nothing to settle.
    pub(super) fn nobody_asleep(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Restores the module's two rules. `ready` counts ready keys, `next_due` is the first delay.
    pub(super) fn settle(&mut self, ready: usize, next_due: Option<Tick>, wakes: &mut Wakes) {
        while self.woken < ready && self.wake_one(wakes) {}
        let Some(due) = next_due else { return };
        match &mut self.timekeeper {
            Some(keeper) if due < keeper.set_to => {
                keeper.set_to = due;
                // Not asleep means woken: it sets its timer anew when it looks.
                if let Some(waker) = self.asleep.get(&keeper.ticket) {
                    wakes.push(waker.clone());
                }
            }
            Some(_) => {}
            None if self.woken == 0 => {
                self.wake_one(wakes);
            }
            None => {}
        }
    }

    fn wake_one(&mut self, wakes: &mut Wakes) -> bool {
        let Some((_, waker)) = self.asleep.pop_first() else {
            return false;
        };
        self.woken += 1;
        wakes.push(waker);
        true
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        while self.wake_one(wakes) {}
    }

    /// The waiter looks and finds nothing: it sleeps (on). Returns its ticket and whether it has to
    /// keep the time.
    pub(super) fn sleep(
        &mut self,
        ticket: Option<Ticket>,
        waker: &Waker,
        next_due: Option<Tick>,
    ) -> (Ticket, Option<Tick>) {
        let ticket = ticket.unwrap_or_else(|| {
            self.tickets += 1;
            Ticket(self.tickets)
        });
        self.asleep.insert(ticket, waker.clone());
        if self.keeps_time(ticket) {
            self.timekeeper = None;
        }
        if self.timekeeper.is_none() {
            self.timekeeper = next_due.map(|set_to| Timekeeper { ticket, set_to });
        }
        (ticket, next_due.filter(|_| self.keeps_time(ticket)))
    }

    /// The waiter looks: it neither sleeps nor is it on its way any more.
    pub(super) fn look(&mut self, ticket: Ticket) {
        if self.asleep.remove(&ticket).is_none() {
            self.woken -= 1;
        }
    }

    /// The waiter, which has looked, goes away for good.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if self.keeps_time(ticket) {
            self.timekeeper = None;
        }
    }

    fn keeps_time(&self, ticket: Ticket) -> bool {
        self.timekeeper
            .is_some_and(|keeper| keeper.ticket == ticket)
    }
}
