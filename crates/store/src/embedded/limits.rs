//! Every bound of the embedded store, in one place.

use std::time::Duration;

/// Bytes of a page of a database that is made. A small commit writes a page or two, whatever their
/// size; larger pages make large commits and opening somewhat cheaper, and small commits dearer. One
/// that was made with pages of another size keeps them.
pub(super) const PAGE_BYTES: u32 = 4096;

/// Bytes the write-ahead log takes before they are copied into the database. The longer it is, the
/// more often a page was overwritten in it and is copied once only. Together with
/// [`JOURNAL_SLACK_BYTES`] and [`FREE_BYTES`] it must stay below the 64 MiB that are promised.
pub(super) const WAL_BYTES: u64 = 40 * 1024 * 1024;

/// The write-ahead log's file is made this large at once: overwriting it in place costs one flush per
/// commit, growing it two. There is some room for the commit that crosses [`WAL_BYTES`].
pub(super) const WAL_FILE_BYTES: u64 = WAL_BYTES + 4 * 1024 * 1024;

/// Bytes for the write-ahead log that are written in one piece: a whole commit, but for large ones. The
/// system's file of SQLite writes no more at once; of twice as much it writes nothing.
pub(super) const WAL_WRITE_BYTES: usize = 128 * 1024 - 1;

/// Memory for database pages, in KiB.
pub(super) const CACHE_KIB: i64 = 32 * 1024;

/// Requests that may wait for the desk; beyond that callers wait in line before the queue.
pub(super) const QUEUE_REQUESTS: usize = 16 * 1024;

/// Bytes of bodies that may wait for the desk.
pub(super) const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// Requests that go into one commit.
pub(super) const BATCH_REQUESTS: usize = 4096;

/// Bytes of records after which a commit takes no further request; a larger request goes alone.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

/// Requests from which on a commit does not wait for further callers: while it is under way there is
/// time for those of the next one.
pub(super) const LARGE_COMMIT: usize = 128;

/// How long a caller looks whether the desk becomes free before it stands in line, and the writer
/// before it sleeps. It is longer than the writer usually takes to prepare a commit.
pub(super) const LOOK_FOR_DESK: Duration = Duration::from_micros(50);

/// Journal bytes beyond 1.5 times the live ones that are left alone.
pub(super) const JOURNAL_SLACK_BYTES: u64 = 8 * 1024 * 1024;

/// Dead journal rows are deleted when so many have come together, or so many bytes: deleting one at
/// a time would make every commit touch pages that the last one touched.
pub(super) const DELETE_ROWS: usize = 64;

/// See [`DELETE_ROWS`].
pub(super) const DELETE_BYTES: u64 = 256 * 1024;

/// Dead journal rows that one commit deletes.
pub(super) const DELETE_ROWS_AT_ONCE: usize = 1024;

/// Dead journal bytes that one commit deletes.
pub(super) const DELETE_BYTES_AT_ONCE: u64 = 8 * 1024 * 1024;

/// Journal bytes that one commit searches for survivors, on top of four times its own.
pub(super) const EVACUATE_BYTES: u64 = 512 * 1024;

/// Journal rows that one commit searches for survivors.
pub(super) const EVACUATE_ROWS: usize = 1024;

/// Bytes of free pages that are left in the database for later use.
pub(super) const FREE_BYTES: u64 = 8 * 1024 * 1024;

/// Free pages that one commit gives back to the file system.
pub(super) const VACUUM_PAGES: u64 = 1024;

/// How long the writer waits for a request that its tidying up could ride on, before it makes a
/// commit of its own for it.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Session rows that were changed by opening alone and are written by one commit.
pub(super) const LAZY_ROWS: usize = 32;

/// Runs of processes on the store that are remembered, each in a line of `runs.mark`.
pub(super) const RUNS_KEPT: usize = 64;

/// Commits that may be missing at the end without anybody being asked: the tail of the write-ahead log, as a power failure
/// can take it on a disk that says too early that it has flushed.
pub(super) const COMMITS_LOST_UNASKED: u64 = 16;

/// Faults of one store that are told one by one.
pub(super) const FAULTS_TOLD: usize = 8;

/// Pages of a backup that are copied before they are flushed.
pub(super) const BACKUP_PAGES: i32 = 1024;

/// Sessions looked at under one lock when listing.
pub(super) const LIST_STEP: usize = 512;

/// How long what is known of the disk's free space counts.
pub(super) const LOOK_AT_DISK: Duration = Duration::from_millis(100);

/// Of a small disk at most this part is kept in reserve.
pub(super) const RESERVED_PART: u64 = 16;

/// How long the writer waits before it tries again to make a commit for which there was no space, or the
/// database was locked by another program.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A commit that can't be made for so long makes the store refuse what is new.
pub(super) const STALLED: Duration = Duration::from_secs(1);

/// How long callers wait for a commit for which there is no space, before they are told that the outcome is
/// not known: somebody has to make room, which takes longer than any client waits.
pub(super) const WAIT_FOR_SPACE: Duration = Duration::from_secs(2);

/// The same while another program has the database locked, which most do for a moment.
pub(super) const WAIT_FOR_LOCK: Duration = Duration::from_secs(10);

/// How long a checkpoint that a reader was in the way of is not tried again.
pub(super) const CHECKPOINT_AGAIN: Duration = Duration::from_secs(1);

/// Connections for reading that are kept open.
pub(super) const READERS: usize = 4;

/// How long the writer looks for the next request before it sleeps: waking it costs callers more
/// than the wait. It is longer than a caller that slept during the commit takes to be woken and to
/// come back.
pub(super) const SPIN: Duration = Duration::from_micros(60);

/// How long the writer lingers for callers that it has just answered, once the first is there.
pub(super) const LINGER: Duration = Duration::from_micros(100);

/// Pauses of a processor between two looks at who has come.
pub(super) const LINGER_PAUSES: usize = 64;

/// Threads that read and check a store when it is opened.
pub(super) const OPEN_THREADS: usize = 4;

/// Parts in which these take each table: enough that all of them are done at about the same time.
pub(super) const OPEN_PARTS: u64 = 16;

/// A database of less bytes is opened by one thread.
pub(super) const OPEN_ALONE_BYTES: u64 = 8 * 1024 * 1024;
