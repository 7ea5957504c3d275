//! Calls to the store: those that must take effect one after the other, and those that need not. Both
//! take next to no memory while there are none, because every live session has some of each.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A call under way, and what it means for the driver.
pub(crate) type StoreCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes calls that take effect in order, and answers them in order. A call begins when the one before it
/// has answered, or at once if both may be under way together: then they share a commit.
pub(crate) struct Lane<T> {
    calls: VecDeque<CallWaiting<T>>,
}

struct CallWaiting<T> {
    stage: Stage<T>,
    /// Whether it may begin before the one ahead of it has answered.
    joins: bool,
}

enum Stage<T> {
    StoreCall(StoreCall<T>),
    Answered(T),
}

impl<T> Lane<T> {
    pub(crate) fn new() -> Self {
        Self { calls: VecDeque::new() }
    }

    /// Adds a call that begins when all before it have answered.
    pub(crate) fn push(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.add(Box::pin(call), false);
    }

    /// Adds a call that needs not wait for others of its kind: it is the store that keeps them in the
    /// order in which they began.
    pub(crate) fn join(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.add(Box::pin(call), true);
    }

    fn add(&mut self, call: StoreCall<T>, joins: bool) {
        self.calls.push_back(CallWaiting { stage: Stage::StoreCall(call), joins });
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
            self.get_on(context);
            match self.calls.pop_front() {
                Some(CallWaiting { stage: Stage::Answered(answer), .. }) => {
                    self.give_back_room();
                    Poll::Ready(answer)
                }
                Some(first) => {
                    self.calls.push_front(first);
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    /// A session that is idle holds on to no memory for calls.
    fn give_back_room(&mut self) {
        if self.calls.is_empty() {
            self.calls = VecDeque::new();
        }
    }

    /// Lets the oldest call get on, and with it those right behind it that may be under way together.
    fn get_on(&mut self, context: &mut Context<'_>) {
        let together = self.calls.front().is_some_and(|first| first.joins);
        for (index, waiting) in self.calls.iter_mut().enumerate() {
            if index > 0 && !(together && waiting.joins) {
                break;
            }
            if let Stage::StoreCall(call) = &mut waiting.stage
                && let Poll::Ready(answer) = call.as_mut().poll(context)
            {
                waiting.stage = Stage::Answered(answer);
            }
        }
    }
}

/// Makes calls at the same time. They are few: all are looked at whenever one of them gets on.
pub(crate) struct Pool<T> {
    calls: Vec<StoreCall<T>>,
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    /// Notes which calls have begun.
    #[derive(Clone, Default)]
    struct Begun(Arc<Mutex<Vec<u8>>>);

    impl Begun {
        /// A call, and the way to let it answer.
        fn call(&self, number: u8) -> (impl Future<Output = u8> + use<>, oneshot::Sender<()>) {
            let (answer, answered) = oneshot::channel();
            let begun = self.clone();
            let call = async move {
                begun.0.lock().unwrap().push(number);
                let _ = answered.await;
                number
            };
            (call, answer)
        }

        fn so_far(&self) -> Vec<u8> {
            self.0.lock().unwrap().clone()
        }
    }

    #[test]
    fn a_call_begins_when_the_one_before_it_has_answered() {
        let (begun, mut lane) = (Begun::default(), Lane::new());
        let (first, answer_first) = begun.call(1);
        let (second, _answer_second) = begun.call(2);
        lane.join(first);
        lane.push(second);
        assert_eq!(lane.next().now_or_never(), None);
        assert_eq!(begun.so_far(), [1]);
        answer_first.send(()).unwrap();
        assert_eq!(lane.next().now_or_never(), Some(1));
        assert_eq!(lane.next().now_or_never(), None);
        assert_eq!(begun.so_far(), [1, 2]);
    }

    #[test]
    fn calls_that_may_be_under_way_together_begin_and_answer_in_their_order() {
        let (begun, mut lane) = (Begun::default(), Lane::new());
        let (first, answer_first) = begun.call(1);
        let (second, answer_second) = begun.call(2);
        let (third, _answer_third) = begun.call(3);
        let (fourth, _answer_fourth) = begun.call(4);
        lane.join(first);
        lane.join(second);
        lane.push(third);
        lane.join(fourth);
        answer_second.send(()).unwrap();
        assert_eq!(lane.next().now_or_never(), None);
        assert_eq!(begun.so_far(), [1, 2]);
        answer_first.send(()).unwrap();
        assert_eq!(lane.next().now_or_never(), Some(1));
        assert_eq!(lane.next().now_or_never(), Some(2));
        assert_eq!(lane.next().now_or_never(), None);
        assert_eq!(begun.so_far(), [1, 2, 3]);
    }
}
