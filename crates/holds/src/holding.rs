//! Whether holds may be added: not while Belayer is drained, and not before its mode is known.
//!
//! One switch per process. The runner, and components that create objects with a hold, check it before they add a
//! hold. Releases do not depend on it.
//!
//! ```
//! use belayer_holds::holding::{HoldSwitch, Holding};
//!
//! let switch = HoldSwitch::new(Holding::Unknown);
//! assert!(!switch.allows(), "nothing is held before the mode is known");
//! switch.set(Holding::Allowed);
//! assert!(switch.allows());
//! ```

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Whether holds may be added. The [module's example](self) has two of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Not yet known; counts as not allowed.
    Unknown,
    /// Holds may be added.
    Allowed,
    /// Belayer is drained: no hold is added; everything else continues.
    Draining,
    /// Belayer's own namespace is being deleted, and with it its RBAC permissions: no hold is added, and no
    /// re-creation is completed.
    Leaving,
}

/// The switch of the process. Cheap to clone; clones share one state. The [module's example](self)
/// turns it on.
#[derive(Clone)]
pub struct HoldSwitch(Arc<Shared>);

struct Shared {
    now: Mutex<Holding>,
    resumed: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl HoldSwitch {
    /// A switch in this position.
    pub fn new(now: Holding) -> Self {
        Self(Arc::new(Shared {
            now: Mutex::new(now),
            resumed: Mutex::default(),
        }))
    }

    /// Its position.
    pub fn now(&self) -> Holding {
        *self.0.now.lock()
    }

    /// Whether holds may be added.
    pub fn allows(&self) -> bool {
        self.now() == Holding::Allowed
    }

    /// Sets the position. Callbacks are called once holds may be added again.
    pub fn set(&self, to: Holding) {
        let before = std::mem::replace(&mut *self.0.now.lock(), to);
        if to == Holding::Allowed && before != Holding::Allowed {
            self.0.resumed.lock().iter().for_each(|call| call());
        }
    }

    /// Calls `call` whenever holds may be added again.
    pub fn on_allowed(&self, call: impl Fn() + Send + Sync + 'static) {
        self.0.resumed.lock().push(Box::new(call));
    }
}

/// Holds may be added: for programs without draining.
impl Default for HoldSwitch {
    fn default() -> Self {
        Self::new(Holding::Allowed)
    }
}

impl fmt::Debug for HoldSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HoldSwitch").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn those_who_wait_are_called_when_there_is_leave_again() {
        let switch = HoldSwitch::new(Holding::Unknown);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        switch.on_allowed(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        for (to, expected) in [
            (Holding::Draining, 0),
            (Holding::Allowed, 1),
            (Holding::Allowed, 1),
            (Holding::Draining, 1),
            (Holding::Allowed, 2),
        ] {
            switch.set(to);
            assert_eq!(switch.allows(), to == Holding::Allowed);
            assert_eq!(calls.load(Ordering::SeqCst), expected, "{to:?}");
        }
    }
}
