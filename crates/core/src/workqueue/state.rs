//! What the queue knows, and every operation on it: plain code under one lock, with the time passed
//! in.

mod end;

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::backoff::Backoff;
use super::clock::{Tick, nanos};
use super::delays::Delays;
use super::durations::Durations;
use super::list::List;
use super::metrics::Snapshot;
use super::operation::Operation;
use super::priority::{Ageing, Priority, PriorityChoice};
use super::running::{Rerun, Running};
use super::table::{Found, KeyHash, Place, Table};
use super::wait::{Ticket, Waiters, Wakes};

/// Whether work is accepted and handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Nothing is accepted; what was ready is still handed out.
    Draining,
    /// Nothing is accepted or handed out.
    ShutDown,
}

/// When a key shall be worked on.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Now,
    At(Tick),
}

/// How the work on a key ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// No word about success: failures stay as they are.
    Done,
    /// Failures are forgotten.
    Succeeded,
    /// Failures are forgotten, and the key comes back at this time.
    Again(When),
    /// One more failure. `draw` (0 to 1) picks the delay.
    Failed { backoff: Backoff, draw: f64 },
}

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) index: u32,
    pub(super) band: Priority,
    pub(super) since: Tick,
    pub(super) started: Tick,
    pub(super) failures: u32,
}

/// What a waiter finds.
#[derive(Debug)]
pub(super) enum Look<K> {
    Taken(Taken<K>),
    /// Nothing is ready. The waiter that keeps the time has to look again at `alarm`.
    Nothing {
        alarm: Option<Tick>,
    },
    Closed,
}

/// What the end of work leaves behind.
#[derive(Debug)]
pub(super) struct Finished<K> {
    /// Keys of entries that are not needed any more, to be dropped outside the lock.
    pub(super) dropped: Vec<K>,
    /// The backoff drawn by [`Verdict::Failed`].
    pub(super) delay: Duration,
}

#[derive(Debug)]
pub(super) struct State<K> {
    pub(super) table: Table<K>,
    /// Operations from the inbox's tray, while they are worked off.
    pub(super) tray: VecDeque<Operation<K>>,
    /// Whether the inbox's tray is watched.
    pub(super) watched: bool,
    /// Keys to hand out, by band.
    ready: [List; 3],
    /// Keys being processed that are to run again at once, by band.
    reruns: [usize; 3],
    /// Keys being processed.
    running: Running,
    delays: Delays,
    /// Entries that were not needed any more when they were put here; some twice, some needed
    /// again. They are removed many at a time.
    unneeded: Vec<u32>,
    turns: PriorityChoice,
    waiters: Waiters,
    pub(super) phase: Phase,
    adds: u64,
    retries: u64,
    /// Not reported yet; `None` where nobody wants to know.
    durations: Option<Durations>,
}

impl<K> State<K> {
    pub(super) fn new(ageing: Ageing, durations: Option<Durations>) -> Self {
        Self {
            table: Table::new(),
            tray: VecDeque::new(),
            watched: false,
            ready: [List::EMPTY; 3],
            reruns: [0; 3],
            running: Running::default(),
            delays: Delays::default(),
            unneeded: Vec::new(),
            turns: PriorityChoice::new(ageing),
            waiters: Waiters::default(),
            phase: Phase::Open,
            adds: 0,
            retries: 0,
            durations,
        }
    }

    /// Adds a key, or merges with what is known of it: the higher band, the earlier time. Returns
    /// a key to drop outside the lock.
    pub(super) fn add(
        &mut self,
        hash: KeyHash,
        key: K,
        band: Priority,
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
        match self.table.find_or_insert(hash, key, band) {
            Found::New(index) => {
                self.enqueue(index, band, when, now);
                None
            }
            Found::Known(index, key) => {
                self.merge(index, band, when, now);
                Some(key)
            }
        }
    }

    /// Counts a failure of a key and adds it with backoff. Returns the delay and a key to drop
    /// outside the lock.
    pub(super) fn retry(
        &mut self,
        hash: KeyHash,
        key: K,
        band: Priority,
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
        let (index, spare) = match self.table.find_or_insert(hash, key, band) {
            Found::New(index) => (index, None),
            Found::Known(index, key) => (index, Some(key)),
        };
        let delay = self.fail(index, backoff, draw);
        self.merge(index, band, When::At(now.after(delay)), now);
        (delay, spare)
    }

    /// Counts a failure and draws the delay.
    fn fail(&mut self, index: u32, backoff: Backoff, draw: f64) -> Duration {
        let entry = self.table.entry_mut(index);
        let previous = (entry.failures > 0).then(|| Duration::from_nanos(entry.ceiling));
        let ceiling = backoff.ceiling_after(previous);
        entry.failures = entry.failures.saturating_add(1);
        entry.ceiling = nanos(ceiling);
        self.retries += 1;
        backoff.delay(ceiling, draw)
    }

    /// Returns keys to drop outside the lock.
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

    pub(super) fn failures(&self, hash: KeyHash, key: &K) -> u32
    where
        K: Eq,
    {
        self.table
            .find(hash, key)
            .map_or(0, |index| self.table.entry(index).failures)
    }

    fn merge(&mut self, index: u32, band: Priority, when: When, now: Tick) {
        let entry = self.table.entry_mut(index);
        match entry.place {
            Place::Idle => self.enqueue(index, band, when, now),
            Place::Ready { .. } => {
                if band < entry.band {
                    let old = std::mem::replace(&mut entry.band, band);
                    self.ready[old.index()].remove(&mut self.table.entries, index);
                    self.ready[band.index()].push_back(&mut self.table.entries, index);
                }
            }
            Place::Delayed { position } => {
                let band = entry.band.highest(band);
                entry.band = band;
                let earlier = match when {
                    When::Now => true,
                    When::At(due) => due < self.delays.due(position),
                };
                if earlier {
                    self.delays.remove(&mut self.table.entries, position);
                    self.enqueue(index, band, when, now);
                }
            }
            Place::Processing { run } => {
                if let Some(rerun) = self.running.rerun(run) {
                    let merged = rerun.merge(band, when, now);
                    let before = std::mem::replace(rerun, merged);
                    self.count_rerun(before, merged);
                }
            }
        }
    }

    fn count_rerun(&mut self, old: Rerun, new: Rerun) {
        match old {
            Rerun::Ready { band, .. } => self.reruns[band.index()] -= 1,
            Rerun::No | Rerun::Delayed { .. } if matches!(new, Rerun::Ready { .. }) => {
                self.adds += 1;
            }
            Rerun::No | Rerun::Delayed { .. } => {}
        }
        if let Rerun::Ready { band, .. } = new {
            self.reruns[band.index()] += 1;
        }
    }

    /// Puts an entry that is in no list where it belongs.
    fn enqueue(&mut self, index: u32, band: Priority, when: When, now: Tick) {
        match when {
            When::At(due) if due > now => {
                self.table.entry_mut(index).band = band;
                self.delays.push(&mut self.table.entries, index, due);
            }
            When::At(due) => self.enqueue_ready(index, band, due),
            When::Now => self.enqueue_ready(index, band, now),
        }
    }

    fn enqueue_ready(&mut self, index: u32, band: Priority, since: Tick) {
        self.adds += 1;
        self.push_ready(index, band, since);
    }

    fn push_ready(&mut self, index: u32, band: Priority, since: Tick) {
        let entry = self.table.entry_mut(index);
        entry.band = band;
        entry.place = Place::Ready { since };
        self.ready[band.index()].push_back(&mut self.table.entries, index);
    }

    /// Moves the keys that are due to the ready lists, in the order of their times.
    fn release_due(&mut self, now: Tick) {
        while let Some((index, due)) = self.delays.pop_due(&mut self.table.entries, now) {
            let band = self.table.entry(index).band;
            self.enqueue_ready(index, band, due);
        }
    }

    /// A waiter looks for work, and sleeps if there is none.
    pub(super) fn look(&mut self, ticket: &mut Option<Ticket>, waker: &Waker, now: Tick) -> Look<K>
    where
        K: Clone,
    {
        if let Some(ticket) = *ticket {
            self.waiters.look(ticket);
        }
        let look = match self.take(now) {
            Some(taken) => Look::Taken(taken),
            None if self.closed() => Look::Closed,
            None => {
                let due = self.delays.next_due();
                let (new, alarm) = self.waiters.sleep(*ticket, waker, due);
                *ticket = Some(new);
                return Look::Nothing { alarm };
            }
        };
        if let Some(ticket) = ticket.take() {
            self.waiters.leave(ticket);
        }
        look
    }

    /// A waiter gives up.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        self.waiters.look(ticket);
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
        let since = |band: Priority| {
            let head = self.ready[band.index()].front()?;
            match self.table.entry(head).place {
                Place::Ready { since } => Some((head, since)),
                _ => None,
            }
        };
        let (band, (index, since)) = self.turns.choose(since, now)?;
        // Cloned before anything is changed: a clone may panic.
        let key = self.table.entry(index).key.clone()?;
        self.ready[band.index()].remove(&mut self.table.entries, index);
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
            band,
            since,
            started: now,
            failures,
        })
    }

    /// Nothing more will ever be handed out.
    pub(super) fn closed(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => self.ready_len() == 0 && self.running.len() == 0,
            Phase::ShutDown => true,
        }
    }

    /// Nothing is being processed.
    pub(super) fn idle(&self) -> bool {
        self.running.len() == 0
    }

    /// Wakes whom the last operations gave something to do. Whoever gives the lock back does it.
    pub(super) fn settle(&mut self, wakes: &mut Wakes) {
        if self.waiters.nobody_asleep() {
            return;
        }
        if self.closed() {
            self.waiters.wake_all(wakes);
        } else {
            self.waiters
                .settle(self.ready_len(), self.delays.next_due(), wakes);
        }
    }

    /// Whether anybody waits for what an operation may bring about: a key, or the end.
    pub(super) fn somebody_waits(&self) -> bool {
        !self.waiters.nobody_asleep() || self.phase != Phase::Open
    }

    /// The durations that have come together, once they are many.
    pub(super) fn many_durations(&mut self) -> Option<Durations> {
        self.durations.as_mut().and_then(Durations::take_many)
    }

    /// The durations that have come together.
    pub(super) fn take_durations(&mut self) -> Option<Durations> {
        self.durations.as_mut().map(Durations::take)
    }

    fn ready_len(&self) -> usize {
        self.ready.iter().map(List::len).sum()
    }

    pub(super) fn snapshot(&self, now: Tick) -> Snapshot {
        let (unfinished, longest) = self.running.ages(now);
        Snapshot {
            depth: [0, 1, 2].map(|band: usize| self.ready[band].len() + self.reruns[band]),
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
