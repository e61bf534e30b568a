//! What outlasts one set of controllers.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use belayer_core::events::EventMemory;

/// What the controllers of a process remember when a reload of the configuration replaces them. Clones share it. A field
/// of the [`Options`](crate::context::Options).
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let memory = belayer_controller::context::Memory::default();
/// memory.of::<AtomicU64>().store(3, Ordering::Relaxed);
/// assert_eq!(memory.clone().of::<AtomicU64>().load(Ordering::Relaxed), 3);
/// ```
#[derive(Clone, Default)]
pub struct Memory {
    /// The recorded Events.
    pub events: EventMemory,
    of_controllers: Arc<Mutex<Vec<Arc<dyn Any + Send + Sync>>>>,
}

impl Memory {
    /// The value of this type, which a controller defines: the same one for each set of controllers.
    pub fn of<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut all = self.of_controllers.lock();
        let mut found = all.iter().map(|value| Arc::clone(value).downcast());
        if let Some(Ok(known)) = found.find(Result::is_ok) {
            return known;
        }
        let new = Arc::<T>::default();
        all.push(Arc::clone(&new) as _);
        new
    }
}
