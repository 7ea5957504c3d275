//! Calls to the store: those that must take effect one after the other, and those that need not. Both
//! take next to no memory while there are none, because every live session has some of each.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// A call under way, and what it means for the driver.
pub(crate) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes calls in order: the next one begins when the one before it has answered.
pub(crate) struct Lane<T> {
    calls: VecDeque<Call<T>>,
}

impl<T> Lane<T> {
    pub(crate) fn new() -> Self {
        Self { calls: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.calls.push_back(Box::pin(call));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The answer to the oldest call; never if there is none. Nothing is lost if it is dropped.
    pub(crate) async fn next(&mut self) -> T {
        poll_fn(|context| {
            let Some(call) = self.calls.front_mut() else { return Poll::Pending };
            let answer = call.as_mut().poll(context);
            if answer.is_ready() {
                self.calls.pop_front();
            }
            answer
        })
        .await
    }
}

/// Makes calls at the same time. They are few: all are looked at whenever one of them gets on.
pub(crate) struct Pool<T> {
    calls: Vec<Call<T>>,
}

impl<T> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { calls: Vec::new() }
    }

    pub(crate) fn push(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.calls.push(Box::pin(call));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The next answer to any of the calls; never if there is none. Nothing is lost if it is dropped.
    pub(crate) async fn next(&mut self) -> T {
        poll_fn(|context| {
            for index in 0..self.calls.len() {
                if let Poll::Ready(answer) = self.calls[index].as_mut().poll(context) {
                    drop(self.calls.swap_remove(index));
                    return Poll::Ready(answer);
                }
            }
            Poll::Pending
        })
        .await
    }
}
