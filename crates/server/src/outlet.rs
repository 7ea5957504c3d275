//! What a client is told, on its way from its session's driver to its transport. A queue of our own,
//! because every idle client has one: the runtime's has room for 32 things from the start, which with all
//! around it is 800 bytes; this one has 80, and more only while something waits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A queue that holds up to `bound` things.
pub(crate) fn queue<T>(bound: usize) -> (Outlet<T>, Inlet<T>) {
    let queue = Queue { waiting: VecDeque::new(), bound, reader: None, closed: false };
    let shared = Arc::new(Mutex::new(queue));
    (Outlet(Arc::clone(&shared)), Inlet(shared))
}

/// The end where things are put in. When it is dropped, what waits is still taken out.
#[derive(Debug)]
pub(crate) struct Outlet<T>(Arc<Mutex<Queue<T>>>);

/// The end where they are taken out.
#[derive(Debug)]
pub(crate) struct Inlet<T>(Arc<Mutex<Queue<T>>>);

/// Why something was not put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPut {
    /// As many wait as may.
    Full,
    /// Nobody takes them out any more.
    Closed,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    bound: usize,
    /// Who waits for the next one.
    reader: Option<Waker>,
    /// One of the ends is gone.
    closed: bool,
}

impl<T> Outlet<T> {
    /// Puts something in, if there is room.
    pub(crate) fn put(&self, thing: T) -> Result<(), NotPut> {
        let mut queue = lock(&self.0);
        if queue.closed {
            return Err(NotPut::Closed);
        }
        if queue.waiting.len() >= queue.bound {
            return Err(NotPut::Full);
        }
        queue.waiting.push_back(thing);
        let reader = queue.reader.take();
        drop(queue);
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Whether nobody takes anything out any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }
}

impl<T> Inlet<T> {
    /// The next thing; nothing once the other end is gone and everything was taken out. Nothing is lost
    /// if it is dropped.
    pub(crate) async fn take(&mut self) -> Option<T> {
        poll_fn(|context| {
            let queue = &mut *lock(&self.0);
            match queue.waiting.pop_front() {
                Some(thing) => {
                    if queue.waiting.is_empty() {
                        queue.waiting = VecDeque::new();
                    }
                    Poll::Ready(Some(thing))
                }
                None if queue.closed => Poll::Ready(None),
                None => {
                    queue.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).waiting.len()
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.closed = true;
        let reader = queue.reader.take();
        drop(queue);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting); // whatever that does, it does without the lock
    }
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn things_come_out_in_order_and_wake_who_waits() {
        let (outlet, mut inlet) = queue(2);
        let reader = tokio::spawn(async move { [inlet.take().await, inlet.take().await] });
        tokio::task::yield_now().await;
        assert_eq!((outlet.put(1), outlet.put(2)), (Ok(()), Ok(())));
        assert_eq!(reader.await.unwrap(), [Some(1), Some(2)]);
        assert_eq!(outlet.put(3), Err(NotPut::Closed), "the reader is gone");
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_still_taken_when_the_other_end_is_gone() {
        let (outlet, mut inlet) = queue(2);
        assert_eq!((outlet.put(1), outlet.put(2)), (Ok(()), Ok(())));
        assert_eq!((outlet.put(3), inlet.len()), (Err(NotPut::Full), 2));
        drop(outlet);
        assert_eq!((inlet.take().await, inlet.take().await), (Some(1), Some(2)));
        assert_eq!(inlet.take().await, None);
    }

    #[tokio::test]
    async fn who_waits_learns_that_the_other_end_is_gone() {
        let (outlet, mut inlet) = queue::<u8>(2);
        let reader = tokio::spawn(async move { inlet.take().await });
        tokio::task::yield_now().await;
        drop(outlet);
        assert_eq!(timeout(Duration::from_secs(5), reader).await.unwrap().unwrap(), None);
    }

    #[test]
    fn an_outlet_knows_that_nobody_listens() {
        let (outlet, inlet) = queue::<u8>(2);
        assert!(!outlet.is_closed());
        drop(inlet);
        assert!(outlet.is_closed());
    }
}
