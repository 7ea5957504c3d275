//! A thread that starts children, and nothing else.
//!
//! The kernel kills a child of ours when the thread that started it ends (see
//! [`super::process`]). A thread of the runtime may end long before the process does: it is enough that
//! some task on it blocks in place. This one never ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, mpsc};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::guard::Guard;

type Job = Box<dyn FnOnce(&mut Guard) + Send>;

static SPAWNER: LazyLock<io::Result<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    let thread = std::thread::Builder::new().name("rejoin-spawner".into());
    thread.spawn(move || {
        let mut guard = Guard::default();
        for job in queue {
            // A runtime that is going down may panic; who waits for the child sees the dropped reply.
            let _ = catch_unwind(AssertUnwindSafe(|| job(&mut guard)));
        }
    })?;
    Ok(jobs)
});

/// Starts a child that leads a group. If nobody waits for it any more by then it is killed at once, as
/// the command says.
pub(crate) async fn spawn(mut command: Command) -> io::Result<Child> {
    let no_thread = || io::Error::other("there is no thread to start a child on");
    let spawner = SPAWNER.as_ref().map_err(|_| no_thread())?;
    let (reply, child) = oneshot::channel();
    let runtime = Handle::current();
    let job = move |guard: &mut Guard| {
        let _context = runtime.enter();
        let child = command.spawn();
        let group = child.as_ref().ok().and_then(Child::id);
        group.into_iter().for_each(|group| guard.watch(group));
        if reply.send(child).is_err() {
            group.into_iter().for_each(|group| guard.forget(group));
        }
    };
    spawner.send(Box::new(job)).map_err(|_| no_thread())?;
    child.await.map_err(|_| no_thread())?
}

/// The group of a child has gone.
pub(super) fn gone(group: u32) {
    if let Ok(spawner) = SPAWNER.as_ref() {
        let _ = spawner.send(Box::new(move |guard: &mut Guard| guard.forget(group)));
    }
}
