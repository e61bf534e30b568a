//! The queue of notices: bounded, and fair to namespaces.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Notice, Regarding};
use crate::fair_queue::FairQueue;

type Waiting = Arc<Mutex<FairQueue<(Regarding, Notice)>>>;

/// A queue of at most `capacity` notices, of which namespaces take turns.
pub(super) fn queue(capacity: usize) -> (Sender, Receiver) {
    let (places, taken) = mpsc::channel(capacity);
    let waiting = Waiting::default();
    let sender = Sender {
        places,
        waiting: Arc::clone(&waiting),
    };
    (sender, Receiver { taken, waiting })
}

/// The end that accepts notices.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    /// One unit per notice that waits.
    places: mpsc::Sender<()>,
    waiting: Waiting,
}

/// The end that sends them.
#[derive(Debug)]
pub(super) struct Receiver {
    taken: mpsc::Receiver<()>,
    waiting: Waiting,
}

impl Sender {
    /// Adds a notice. False if one was dropped for it, or it was dropped itself: if the queue is full, the namespace
    /// with the most notices loses its last one.
    pub(super) fn try_send(&self, regarding: Regarding, notice: Notice) -> bool {
        let namespace = Arc::clone(regarding.key.shared_namespace());
        let mut waiting = self.waiting.lock();
        let is_full = match self.places.try_send(()) {
            Ok(()) => false,
            Err(TrySendError::Full(())) => true,
            Err(TrySendError::Closed(())) => return false,
        };
        if is_full {
            // The namespaces' fair shares: only one with less than its share takes the place of another's notice.
            let share = waiting.len() / waiting.namespaces().max(1);
            if waiting.len_of(&namespace) >= share || waiting.pop_longest().is_none() {
                return false;
            }
        }
        waiting.push(&namespace, (regarding, notice));
        !is_full
    }
}

impl Receiver {
    /// The next notice; `None` once all senders are dropped.
    pub(super) async fn recv(&mut self) -> Option<(Regarding, Notice)> {
        loop {
            self.taken.recv().await?;
            if let Some(next) = self.waiting.lock().pop() {
                return Some(next);
            }
        }
    }

    /// Accepts no more notices. Returns how many of them waited and are lost.
    pub(super) fn close(&mut self) -> u64 {
        let mut waiting = self.waiting.lock();
        self.taken.close();
        let lost = std::mem::take(&mut *waiting).len();
        lost.try_into().unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Result<(Regarding, Notice), mpsc::error::TryRecvError> {
        self.taken.try_recv()?;
        let next = self.waiting.lock().pop();
        next.ok_or(mpsc::error::TryRecvError::Empty)
    }
}
