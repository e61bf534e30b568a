//! Work that blocks, such as reading files.
//!
//! ```
//! use belayer_core::blocking::spawn_blocking;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let here = spawn_blocking(std::env::current_dir).await.unwrap();
//! assert!(here.is_ok());
//! # }
//! ```

use tokio::task::JoinHandle;

/// Runs blocking work on a thread of its own. In a simulation it is a task of the simulation's thread, as the order in which
/// threads finish is not repeatable. The [module's example](self) reads a path.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    #[cfg(any(test, feature = "test-util"))]
    if crate::simulated::is_active() {
        return tokio::spawn(async move { work() });
    }
    tokio::task::spawn_blocking(work)
}
