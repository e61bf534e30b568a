//! Which waiters sleep, and which are woken.
//!
//! All of this state is under the queue's lock, so no wake-up can be lost. After every operation
//! [`Waiters::settle`] restores two rules.
//!
//! 1. While a waiter sleeps, every ready key has a waiter that was woken and has not polled yet: one
//!    waiter per key, the longest sleeper first.
//! 2. While a waiter sleeps and a key is delayed, exactly one waiter (the timekeeper) has its timer
//!    set to the earliest due time, or a woken waiter is about to poll and become it.

use std::collections::BTreeMap;
use std::task::Waker;

use super::clock::Tick;

/// A waiter's place in the queue of waiters. It is kept over spurious wake-ups.
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
    /// Woken waiters that have not polled yet.
    woken: usize,
    timekeeper: Option<Timekeeper>,
    tickets: u64,
}

/// Wakers to call after the lock is released: a waker may run any code, including this queue's
/// methods.
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
    /// Whether no waiter sleeps.
    pub(super) fn none_asleep(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Restores the module's two rules. `ready` counts ready keys, `next_due` is the time of the
    /// first delayed key.
    pub(super) fn settle(&mut self, ready: usize, next_due: Option<Tick>, wakes: &mut Wakes) {
        while self.woken < ready && self.wake_one(wakes) {}
        let Some(due) = next_due else { return };
        match &mut self.timekeeper {
            Some(timekeeper) if due < timekeeper.set_to => {
                timekeeper.set_to = due;
                // If it does not sleep it was woken, and sets its timer when it polls.
                if let Some(waker) = self.asleep.get(&timekeeper.ticket) {
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

    /// A waiter has polled and found nothing: it sleeps. Returns its ticket and, if it is the
    /// timekeeper, the time of its timer.
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

    /// A waiter polls: it does not sleep, and its wake-up has arrived.
    pub(super) fn awake(&mut self, ticket: Ticket) {
        if self.asleep.remove(&ticket).is_none() {
            self.woken -= 1;
        }
    }

    /// Removes a waiter, which has polled.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if self.keeps_time(ticket) {
            self.timekeeper = None;
        }
    }

    fn keeps_time(&self, ticket: Ticket) -> bool {
        self.timekeeper
            .is_some_and(|timekeeper| timekeeper.ticket == ticket)
    }
}
