//! The state of the queue and every operation on it: plain code under one lock, with the time as a
//! parameter.

mod end;
pub(super) mod operation;
mod running;

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::backoff::Backoff;
use super::clock::{Tick, nanos};
use super::delays::Delays;
use super::durations::Durations;
use super::list::List;
use super::metrics::QueueSnapshot;
use super::priority::{Ageing, Priority, PriorityChoice};
use super::table::{Found, KeyHash, Place, Table};
use super::wait::{Ticket, Waiters, Wakes};
use operation::Operation;
use running::{Rerun, Running};

/// Whether keys are accepted and handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No key is accepted; ready keys are still handed out.
    Draining,
    /// No key is accepted or handed out.
    ShutDown,
}

/// When a key is to be worked on.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Now,
    At(Tick),
}

/// How the work on a key ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Completion {
    /// Without success or failure: failures stay as they are.
    Done,
    /// With success: failures are reset.
    Succeeded,
    /// With success: failures are reset, and the key is added again for this time.
    Again(When),
    /// With a failure. `draw` (0 to 1) selects the delay.
    Failed { backoff: Backoff, draw: f64 },
}

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) index: u32,
    pub(super) priority: Priority,
    pub(super) since: Tick,
    pub(super) started: Tick,
    pub(super) failures: u32,
}

/// The result of one poll of a waiter.
#[derive(Debug)]
pub(super) enum Polled<K> {
    Taken(Taken<K>),
    /// Nothing is ready. The timekeeper must poll again at `alarm`.
    Nothing {
        alarm: Option<Tick>,
    },
    Closed,
}

/// What the end of work returns.
#[derive(Debug)]
pub(super) struct Finished<K> {
    /// Keys of entries that are not needed any more, to be dropped outside of the lock.
    pub(super) dropped: Vec<K>,
    /// The backoff drawn by [`Completion::Failed`].
    pub(super) delay: Duration,
}

#[derive(Debug)]
pub(super) struct State<K> {
    pub(super) table: Table<K>,
    /// Operations from the inbox, while they are applied.
    pub(super) pending: VecDeque<Operation<K>>,
    /// Whether the inbox is watched.
    pub(super) watched: bool,
    /// Keys to hand out, by priority.
    ready: [List; 3],
    /// Keys being processed that are to run again at once, by priority.
    reruns: [usize; 3],
    /// Keys being processed.
    running: Running,
    delays: Delays,
    /// Entries that were not needed when they were put here; some are listed twice, some are needed
    /// again. They are removed in batches.
    unneeded: Vec<u32>,
    priorities: PriorityChoice,
    waiters: Waiters,
    pub(super) phase: Phase,
    adds: u64,
    retries: u64,
    /// Not reported yet; `None` if metrics are off.
    durations: Option<Durations>,
}

impl<K> State<K> {
    pub(super) fn new(ageing: Ageing, durations: Option<Durations>) -> Self {
        Self {
            table: Table::new(),
            pending: VecDeque::new(),
            watched: false,
            ready: [List::EMPTY; 3],
            reruns: [0; 3],
            running: Running::default(),
            delays: Delays::default(),
            unneeded: Vec::new(),
            priorities: PriorityChoice::new(ageing),
            waiters: Waiters::default(),
            phase: Phase::Open,
            adds: 0,
            retries: 0,
            durations,
        }
    }

    /// Adds a key, or merges it with its entry: the higher priority, the earlier time. Returns a
    /// key to drop outside of the lock.
    pub(super) fn add(
        &mut self,
        hash: KeyHash,
        key: K,
        priority: Priority,
        when: When,
        now: Tick,
    ) -> Option<K>
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return Some(key);
        }
        self.release_due(now);
        match self.table.find_or_insert(hash, key, priority) {
            Found::New(index) => {
                self.enqueue(index, priority, when, now);
                None
            }
            Found::Known(index, key) => {
                self.merge(index, priority, when, now);
                Some(key)
            }
        }
    }

    /// Counts a failure of a key and adds it with backoff. Returns the delay and a key to drop
    /// outside of the lock.
    pub(super) fn retry(
        &mut self,
        hash: KeyHash,
        key: K,
        priority: Priority,
        (backoff, draw): (Backoff, f64),
        now: Tick,
    ) -> (Duration, Option<K>)
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return (Duration::ZERO, Some(key));
        }
        self.release_due(now);
        let (index, spare) = match self.table.find_or_insert(hash, key, priority) {
            Found::New(index) => (index, None),
            Found::Known(index, key) => (index, Some(key)),
        };
        let delay = self.fail(index, backoff, draw, now);
        self.merge(index, priority, When::At(now.after(delay)), now);
        (delay, spare)
    }

    /// Counts a failure and draws the delay.
    fn fail(&mut self, index: u32, backoff: Backoff, draw: f64, now: Tick) -> Duration {
        let entry = self.table.entry_mut(index);
        let previous = (entry.failures > 0).then(|| Duration::from_nanos(entry.ceiling));
        let ceiling = match previous {
            // The key was added in between.
            Some(same) if now < entry.not_before => backoff.bounded(same),
            previous => backoff.ceiling_after(previous),
        };
        entry.failures = entry.failures.saturating_add(1);
        entry.ceiling = nanos(ceiling);
        entry.not_before = now.after(backoff.floor());
        self.retries += 1;
        backoff.delay(ceiling, draw)
    }

    /// Returns keys to drop outside of the lock.
    pub(super) fn forget(&mut self, hash: KeyHash, key: &K) -> Vec<K>
    where
        K: Eq,
    {
        let Some(index) = self.table.find(hash, key) else {
            return Vec::new();
        };
        self.table.entry_mut(index).failures = 0;
        self.drop_unneeded(index)
    }

    /// Takes a waiting key out. Returns keys to drop outside of the lock.
    pub(super) fn remove(&mut self, hash: KeyHash, key: &K) -> Vec<K>
    where
        K: Eq,
    {
        let Some(index) = self.table.find(hash, key) else {
            return Vec::new();
        };
        let entry = self.table.entry_mut(index);
        let priority = entry.priority;
        match entry.place {
            Place::Ready { .. } => {
                self.ready[priority.index()].remove(&mut self.table.entries, index);
            }
            Place::Delayed { position } => {
                self.delays.remove(&mut self.table.entries, position);
            }
            Place::Idle | Place::Processing { .. } => return self.forget(hash, key),
        }
        let entry = self.table.entry_mut(index);
        entry.place = Place::Idle;
        entry.failures = 0;
        self.drop_unneeded(index)
    }

    pub(super) fn failures(&self, hash: KeyHash, key: &K) -> u32
    where
        K: Eq,
    {
        self.table
            .find(hash, key)
            .map_or(0, |index| self.table.entry(index).failures)
    }

    fn merge(&mut self, index: u32, priority: Priority, when: When, now: Tick) {
        let entry = self.table.entry_mut(index);
        match entry.place {
            Place::Idle => self.enqueue(index, priority, when, now),
            Place::Ready { .. } => {
                if priority < entry.priority {
                    let old = std::mem::replace(&mut entry.priority, priority);
                    self.ready[old.index()].remove(&mut self.table.entries, index);
                    self.ready[priority.index()].push_back(&mut self.table.entries, index);
                }
            }
            Place::Delayed { position } => {
                let priority = entry.priority.highest(priority);
                entry.priority = priority;
                let earlier = match when {
                    When::Now => true,
                    When::At(due) => due < self.delays.due(position),
                };
                if earlier {
                    self.delays.remove(&mut self.table.entries, position);
                    self.enqueue(index, priority, when, now);
                }
            }
            Place::Processing { run } => {
                if let Some(rerun) = self.running.rerun(run) {
                    let merged = rerun.merge(priority, when, now);
                    let before = std::mem::replace(rerun, merged);
                    self.count_rerun(before, merged);
                }
            }
        }
    }

    fn count_rerun(&mut self, old: Rerun, new: Rerun) {
        match old {
            Rerun::Ready { priority, .. } => self.reruns[priority.index()] -= 1,
            Rerun::No | Rerun::Delayed { .. } if matches!(new, Rerun::Ready { .. }) => {
                self.adds += 1;
            }
            Rerun::No | Rerun::Delayed { .. } => {}
        }
        if let Rerun::Ready { priority, .. } = new {
            self.reruns[priority.index()] += 1;
        }
    }

    /// Puts an entry that is in no list into the right one.
    fn enqueue(&mut self, index: u32, priority: Priority, when: When, now: Tick) {
        match when {
            When::At(due) if due > now => {
                self.table.entry_mut(index).priority = priority;
                self.delays.push(&mut self.table.entries, index, due);
            }
            When::At(due) => self.enqueue_ready(index, priority, due),
            When::Now => self.enqueue_ready(index, priority, now),
        }
    }

    fn enqueue_ready(&mut self, index: u32, priority: Priority, since: Tick) {
        self.adds += 1;
        self.push_ready(index, priority, since);
    }

    fn push_ready(&mut self, index: u32, priority: Priority, since: Tick) {
        let entry = self.table.entry_mut(index);
        entry.priority = priority;
        entry.place = Place::Ready { since };
        self.ready[priority.index()].push_back(&mut self.table.entries, index);
    }

    /// Moves the keys that are due to the ready lists, in the order of their times.
    fn release_due(&mut self, now: Tick) {
        while let Some((index, due)) = self.delays.pop_due(&mut self.table.entries, now) {
            let priority = self.table.entry(index).priority;
            self.enqueue_ready(index, priority, due);
        }
    }

    /// A waiter polls for a key, and sleeps if there is none.
    pub(super) fn poll(
        &mut self,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
        now: Tick,
    ) -> Polled<K>
    where
        K: Clone,
    {
        if let Some(ticket) = *ticket {
            self.waiters.awake(ticket);
        }
        let polled = match self.take(now) {
            Some(taken) => Polled::Taken(taken),
            None if self.closed() => Polled::Closed,
            None => {
                let due = self.delays.next_due();
                let (new, alarm) = self.waiters.sleep(*ticket, waker, due);
                *ticket = Some(new);
                return Polled::Nothing { alarm };
            }
        };
        if let Some(ticket) = ticket.take() {
            self.waiters.leave(ticket);
        }
        polled
    }

    /// A waiter was dropped.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        self.waiters.awake(ticket);
        self.waiters.leave(ticket);
    }

    /// Hands out the next key.
    pub(super) fn take(&mut self, now: Tick) -> Option<Taken<K>>
    where
        K: Clone,
    {
        if self.phase == Phase::ShutDown {
            return None;
        }
        self.release_due(now);
        let since = |priority: Priority| {
            let head = self.ready[priority.index()].front()?;
            match self.table.entry(head).place {
                Place::Ready { since } => Some((head, since)),
                _ => None,
            }
        };
        let (priority, (index, since)) = self.priorities.choose(since, now)?;
        // Cloned before any change: a clone may panic.
        let key = self.table.entry(index).key.clone()?;
        self.ready[priority.index()].remove(&mut self.table.entries, index);
        let run = self.running.begin(now);
        let entry = self.table.entry_mut(index);
        entry.place = Place::Processing { run };
        let failures = entry.failures;
        if let Some(durations) = &mut self.durations {
            durations.waited.push(now.since(since));
        }
        Some(Taken {
            key,
            index,
            priority,
            since,
            started: now,
            failures,
        })
    }

    /// Whether no key will be handed out any more.
    pub(super) fn closed(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => self.ready_len() == 0 && self.running.len() == 0,
            Phase::ShutDown => true,
        }
    }

    /// Whether no key is being processed.
    pub(super) fn idle(&self) -> bool {
        self.running.len() == 0
    }

    /// Wakes the waiters after the last operations. Called before the lock is released.
    pub(super) fn settle(&mut self, wakes: &mut Wakes) {
        if self.waiters.none_asleep() {
            return;
        }
        if self.closed() {
            self.waiters.wake_all(wakes);
        } else {
            self.waiters
                .settle(self.ready_len(), self.delays.next_due(), wakes);
        }
    }

    /// Whether a waiter waits for the effect of an operation: a key, or the end.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.none_asleep() || self.phase != Phase::Open
    }

    /// Takes the durations if a batch is complete.
    pub(super) fn batch_of_durations(&mut self) -> Option<Durations> {
        self.durations.as_mut().and_then(Durations::take_batch)
    }

    /// Takes all durations.
    pub(super) fn take_durations(&mut self) -> Option<Durations> {
        self.durations.as_mut().map(Durations::take)
    }

    fn ready_len(&self) -> usize {
        self.ready.iter().map(List::len).sum()
    }

    pub(super) fn snapshot(&self, now: Tick) -> QueueSnapshot {
        let (unfinished, longest) = self.running.ages(now);
        QueueSnapshot {
            depth: [0, 1, 2]
                .map(|priority: usize| self.ready[priority].len() + self.reruns[priority]),
            delayed: self.delays.len(),
            processing: self.running.len(),
            known: self.table.len() - self.still_unneeded().len(),
            adds: self.adds,
            retries: self.retries,
            unfinished,
            longest,
        }
    }
}
