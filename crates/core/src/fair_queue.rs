//! A FIFO queue per namespace, served in turns, so that ten thousand items of one namespace do not
//! delay the one item of another. The example of [`FairQueue`] has
//! two groups.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

/// A queue of items by namespace: FIFO within a namespace; the namespaces take turns.
///
/// `push` and `pop` cost O(1), whatever the number of items and of namespaces.
///
/// ```
/// use std::sync::Arc;
/// use belayer_core::fair_queue::FairQueue;
///
/// let (hot, quiet): (Arc<str>, Arc<str>) = ("hot".into(), "quiet".into());
/// let mut queue = FairQueue::default();
/// queue.push(&hot, 1);
/// queue.push(&hot, 2);
/// queue.push(&quiet, 3);
/// assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(3), Some(2)));
/// ```
pub struct FairQueue<T> {
    items: HashMap<Arc<str>, VecDeque<T>>,
    /// Namespaces with items; the front one is next.
    order: VecDeque<Arc<str>>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            items: HashMap::new(),
            order: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> fmt::Debug for FairQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue")
            .field("namespaces", &self.order.len())
            .field("len", &self.len)
            .finish()
    }
}

impl<T> FairQueue<T> {
    /// Appends an item to the queue of its namespace. Items without a namespace use the empty name.
    pub fn push(&mut self, namespace: &Arc<str>, item: T) {
        self.len += 1;
        if let Some(items) = self.items.get_mut(namespace) {
            items.push_back(item);
            return;
        }
        self.order.push_back(Arc::clone(namespace));
        self.items
            .insert(Arc::clone(namespace), VecDeque::from([item]));
    }

    /// Removes the next item, from the namespace whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_where(|_| true).map(|(_, item)| item)
    }

    /// Removes the next item of a namespace for which `may` is true. A namespace for which it is
    /// false is skipped: its next turn comes after the others'.
    pub fn pop_where(&mut self, may: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, T)> {
        for _ in 0..self.order.len() {
            let namespace = self.order.pop_front()?;
            if !may(&namespace) {
                self.order.push_back(namespace);
                continue;
            }
            let items = self.items.get_mut(&namespace)?;
            let item = items.pop_front()?;
            if items.is_empty() {
                self.items.remove(&namespace);
            } else {
                self.order.push_back(Arc::clone(&namespace));
            }
            self.len -= 1;
            return Some((namespace, item));
        }
        None
    }

    /// Removes the last item of the namespace with the most items. Unlike all else it costs O(n), for n namespaces.
    pub fn pop_longest(&mut self) -> Option<T> {
        let longest = self.items.iter().max_by_key(|(_, items)| items.len());
        let namespace = Arc::clone(longest?.0);
        let items = self.items.get_mut(&namespace)?;
        let item = items.pop_back()?;
        if items.is_empty() {
            self.items.remove(&namespace);
            self.order.retain(|other| *other != namespace);
        }
        self.len -= 1;
        Some(item)
    }

    /// The number of namespaces with waiting items.
    pub fn namespaces(&self) -> usize {
        self.order.len()
    }

    /// The number of waiting items of a namespace.
    pub fn len_of(&self, namespace: &Arc<str>) -> usize {
        self.items.get(namespace).map_or(0, VecDeque::len)
    }

    /// The number of waiting items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no item is waiting.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: &[(&str, u32)]) -> FairQueue<u32> {
        let mut queue = FairQueue::default();
        for (namespace, item) in items {
            queue.push(&Arc::from(*namespace), *item);
        }
        queue
    }

    fn all(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn namespaces_take_turns_and_each_is_first_in_first_out() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("", 5), ("b", 6)]);
        assert_eq!(queue.len(), 6);
        assert_eq!(all(&mut queue), [1, 4, 5, 2, 6, 3]);
        assert!(queue.is_empty() && queue.items.is_empty() && queue.order.is_empty());
    }

    #[test]
    fn the_longest_queue_loses_its_last_item() {
        let mut queue = queue(&[("a", 1), ("b", 2), ("b", 3)]);
        assert_eq!(queue.pop_longest(), Some(3));
        assert_eq!((queue.len(), queue.namespaces()), (2, 2));
        assert_eq!(queue.len_of(&Arc::from("b")), 1);
        queue.pop_longest();
        queue.pop_longest();
        assert!(queue.is_empty() && queue.items.is_empty() && queue.order.is_empty());
        assert_eq!(queue.pop_longest(), None);
    }

    #[test]
    fn a_skipped_namespace_keeps_its_items() {
        let mut queue = queue(&[("a", 1), ("b", 2), ("a", 3)]);
        let not_a = |namespace: &Arc<str>| **namespace != *"a";
        assert_eq!(queue.pop_where(not_a).map(|(_, item)| item), Some(2));
        assert_eq!(queue.pop_where(not_a), None);
        assert_eq!(queue.len(), 2);
        assert_eq!(all(&mut queue), [1, 3]);
    }
}
