//! Spreads work over the processors, for the one moment when there is a lot of it: opening.

use std::sync::{Mutex, PoisonError};
use std::{panic, thread};

/// Does `work` for every part and gives the outcomes in the order of the parts. This thread and
/// `threads - 1` others take the next part whenever they are done with one; `tool` makes what each of
/// them needs for itself.
pub(super) fn map<P: Send, T, R: Send>(
    threads: usize,
    parts: Vec<P>,
    tool: impl Fn() -> T + Sync,
    work: impl Fn(&mut T, P) -> R + Sync,
) -> Vec<R> {
    let waiting = Mutex::new(parts.into_iter().enumerate());
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let (mut tool, mut done) = (tool(), Vec::new());
        while let Some((number, part)) = take() {
            done.push((number, work(&mut tool, part)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().name("rejoin-open".into()).spawn_scoped(scope, run);
        // Without helpers it takes longer, that is all.
        let helpers: Vec<_> = (1..threads).filter_map(|number| spawn(number).ok()).collect();
        let mut done = run();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Does one thing on another thread and one on this, and returns when both are done.
pub(super) fn both<A: Send, B>(
    there: impl FnOnce() -> A + Send,
    here: impl FnOnce() -> B,
) -> (A, B) {
    thread::scope(|scope| {
        let there = scope.spawn(there);
        let here = here();
        (there.join().unwrap_or_else(|panic| panic::resume_unwind(panic)), here)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_in_the_order_of_the_parts() {
        for threads in [1, 2, 5] {
            let squares = map(threads, (0..100_u64).collect(), || (), |(), part| part * part);
            assert_eq!(squares, (0..100).map(|part| part * part).collect::<Vec<u64>>());
        }
    }
}
