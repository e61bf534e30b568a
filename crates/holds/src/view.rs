//! The sources of a controller's snapshots: the caches of a running controller, or the live reads of
//! `explain`.
//!
//! A controller is generic over its [`View`], so that both run the same code. Calls are static: in a
//! running controller they are direct calls of the store or the cache.
//!
//! ```
//! use belayer_core::{Lookup, ObjectKey, OwnerMeta};
//! use belayer_holds::view::Objects;
//!
//! /// Runs on the cache of a controller and on the live reads of `explain`.
//! fn owner(owners: &impl Objects<OwnerMeta>, key: &ObjectKey) -> &'static str {
//!     match owners.lookup(key) {
//!         Lookup::Found(_) => "exists",
//!         Lookup::Absent => "is gone",
//!         Lookup::Unknown => "is not known yet",
//!     }
//! }
//! ```

use belayer_core::informer::{InformerState, Lookup, Store};
use belayer_core::object::ObjectKey;
use belayer_core::queries::{LiveAnswer, Query, QueryCache, ReadError, Waiter};
use belayer_core::slim::Slim;

/// The sources that a controller observes. Its stores are [`Objects`]. See the [example](self).
pub trait View: Send + Sync + 'static {
    /// The objects of one kind.
    type Store<K: Slim>: Objects<K>;
    /// Live answers to one kind of query.
    type Queries<Q: Query>: Answers<Q>;

    /// Whether the stores watch their objects, so that the first seen version of an object, and whether a later
    /// version was missed, is known.
    const FOLLOWS: bool;
}

/// The known objects of one kind. The [module's example](self) uses one.
pub trait Objects<K>: Send + Sync + 'static {
    /// The object of a key.
    fn lookup(&self, key: &ObjectKey) -> Lookup<K>;

    /// The number of objects with `value` in an index; `None` if it is unknown.
    fn count_by_index(&self, index: &str, value: &str) -> Option<usize>;

    /// Whether the server is known not to serve the kind.
    fn is_not_served(&self) -> bool;
}

/// Live answers. [`Objects`] is the same for stores. See the [example](self).
pub trait Answers<Q: Query>: Send + Sync + 'static {
    /// The latest answer, if there is one.
    fn get(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>>;

    /// Why the last live read failed; `None` if it did not.
    fn last_error(&self, query: &Q) -> Option<ReadError>;

    /// Asks `query` for `waiter`.
    fn ask(&self, query: Q, waiter: Waiter<'_>);
}

/// The informers' stores, and the answers that waiters share. Its [`Objects`] are stores. See the
/// [example](self).
#[derive(Debug, Clone, Copy)]
pub enum Cached {}

impl View for Cached {
    type Store<K: Slim> = Store<K>;
    type Queries<Q: Query> = QueryCache<Q>;

    const FOLLOWS: bool = true;
}

impl<K: Slim> Objects<K> for Store<K> {
    #[inline]
    fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        Store::lookup(self, key)
    }

    #[inline]
    fn count_by_index(&self, index: &str, value: &str) -> Option<usize> {
        Store::count_by_index(self, index, value)
    }

    #[inline]
    fn is_not_served(&self) -> bool {
        self.state() == InformerState::NotServed
    }
}

impl<Q: Query> Answers<Q> for QueryCache<Q> {
    #[inline]
    fn get(&self, query: &Q) -> Option<LiveAnswer<Q::Answer>> {
        QueryCache::get(self, query)
    }

    #[inline]
    fn last_error(&self, query: &Q) -> Option<ReadError> {
        QueryCache::last_error(self, query)
    }

    #[inline]
    fn ask(&self, query: Q, waiter: Waiter<'_>) {
        QueryCache::ask(self, query, waiter);
    }
}
