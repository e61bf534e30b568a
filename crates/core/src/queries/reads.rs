//! Limits the live reads in flight and orders the waiting ones.

use std::sync::Arc;

use belayer_metrics::waiting;
use hashbrown::HashMap;
use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::fair_queue::FairQueue;

/// Maximum number of live reads in flight in a process (rule L1), of all query types.
const IN_FLIGHT: usize = 64;

/// The live reads of a process. Cheap to clone; the clones share the limit.
///
/// Namespaces take turns. A namespace never has more reads in flight than slots are free. So a
/// namespace with ten thousand queries, each of many pages, takes half of the slots, and a query of
/// another namespace gets a slot at once.
///
/// An argument of [`QueryCache::new`](crate::queries::QueryCache::new); the
/// [example](crate::queries) uses the default.
#[derive(Debug, Clone)]
pub struct LiveReads {
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug)]
struct Slots {
    free: usize,
    /// The number of slots of each namespace; never zero.
    taken: HashMap<Arc<str>, usize>,
    waiting: FairQueue<oneshot::Sender<Slot>>,
    gauge: Gauge,
}

/// The permit for one live read, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Slot {
    /// `None` once it was returned.
    slots: Option<Arc<Mutex<Slots>>>,
    namespace: Arc<str>,
}

impl Default for LiveReads {
    fn default() -> Self {
        Self {
            slots: Arc::new(Mutex::new(Slots {
                free: IN_FLIGHT,
                taken: HashMap::new(),
                waiting: FairQueue::default(),
                gauge: metrics::gauge!(crate::metric_names::API_WAITING, "queue" => waiting::LIVE_READS),
            })),
        }
    }
}

impl LiveReads {
    /// Waits for the turn of `namespace`. Cancel-safe.
    pub(super) async fn slot(&self, namespace: &Arc<str>) -> Slot {
        let served = {
            let mut slots = self.slots.lock();
            if slots.waiting.is_empty() && slots.may_take(namespace) {
                return slots.take(Arc::clone(namespace), &self.slots);
            }
            let (sender, served) = oneshot::channel();
            slots.waiting.push(namespace, sender);
            slots.gauge.set(slots.waiting.len() as f64);
            served
        };
        serve(&self.slots);
        // `self` owns the sender and is borrowed while this waits, so an error cannot happen.
        served.await.unwrap_or_else(|_| Slot {
            slots: None,
            namespace: Arc::clone(namespace),
        })
    }
}

impl Slots {
    fn may_take(&self, namespace: &Arc<str>) -> bool {
        self.taken.get(namespace).copied().unwrap_or_default() < self.free
    }

    fn take(&mut self, namespace: Arc<str>, slots: &Arc<Mutex<Self>>) -> Slot {
        self.free -= 1;
        *self.taken.entry(Arc::clone(&namespace)).or_default() += 1;
        Slot {
            slots: Some(Arc::clone(slots)),
            namespace,
        }
    }

    fn give_back(&mut self, namespace: &Arc<str>) {
        self.free += 1;
        if let Some(taken) = self.taken.get_mut(namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(namespace);
            }
        }
    }
}

/// Gives free slots to the waiting reads.
fn serve(slots: &Arc<Mutex<Slots>>) {
    loop {
        let (sender, slot) = {
            let mut guard = slots.lock();
            let this = &mut *guard;
            if this.free == 0 {
                return;
            }
            // Skips fewer namespaces than there are reads in flight: a namespace without a read may
            // have a slot.
            let (free, taken) = (this.free, &this.taken);
            let may = |namespace: &Arc<str>| taken.get(namespace).is_none_or(|has| *has < free);
            let Some((namespace, sender)) = this.waiting.pop_where(may) else {
                return;
            };
            this.gauge.set(this.waiting.len() as f64);
            (sender, this.take(namespace, slots))
        };
        // If the read was cancelled in the meantime, the next one gets the slot. The slot is not
        // dropped here, because that would call `serve` recursively.
        if let Err(mut unwanted) = sender.send(slot) {
            unwanted.slots = None;
            slots.lock().give_back(&unwanted.namespace);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.lock().give_back(&self.namespace);
            serve(&slots);
        }
    }
}

#[cfg(test)]
mod tests;
