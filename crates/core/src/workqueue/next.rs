//! The future behind [`WorkQueue::next`](super::WorkQueue::next).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep_until};

use super::item::Item;
use super::state::Polled;
use super::wait::Ticket;
use super::{Key, Shared};

/// Takes a key, and sleeps among the queue's waiters until there is one.
pub(super) struct Next<'q, K: Key> {
    queue: &'q Shared<K>,
    ticket: Option<Ticket>,
    /// Only the timekeeper has one.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'q, K: Key> Next<'q, K> {
    pub(super) fn new(queue: &'q Shared<K>) -> Self {
        Self {
            queue,
            ticket: None,
            timer: None,
        }
    }
}

impl<'q, K: Key> Future for Next<'q, K> {
    type Output = Option<Item<'q, K>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let now = this.queue.clock.now();
            let ticket = &mut this.ticket;
            let inbox = &this.queue.inbox;
            let polled = inbox.with(|state| (state.poll(ticket, cx.waker(), now), Vec::new()));
            let alarm = match polled {
                Polled::Taken(taken) => return Poll::Ready(Some(Item::new(this.queue, taken))),
                Polled::Closed => return Poll::Ready(None),
                Polled::Nothing { alarm } => alarm,
            };
            let Some(due) = alarm else {
                this.timer = None;
                return Poll::Pending;
            };
            let due = this.queue.clock.instant(due);
            let timer = match &mut this.timer {
                Some(timer) => {
                    if timer.deadline() != due {
                        timer.as_mut().reset(due);
                    }
                    timer
                }
                none => none.insert(Box::pin(sleep_until(due))),
            };
            std::task::ready!(timer.as_mut().poll(cx));
            // A timer that has fired must not be polled again.
            this.timer = None;
        }
    }
}

impl<K: Key> Drop for Next<'_, K> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let inbox = &self.queue.inbox;
        inbox.with(|state| (state.give_up(ticket), Vec::new()));
    }
}
