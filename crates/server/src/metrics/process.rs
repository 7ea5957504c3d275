//! What the system says about this process, under the names that every Prometheus library uses. Only Linux
//! tells it in `/proc`; elsewhere there is nothing to say.

use super::text::MetricsText;

/// Adds what is known.
pub(super) fn describe(text: &mut MetricsText) {
    let Some(usage) = ProcessUsage::now() else { return };
    let ProcessUsage { cpu_seconds, resident_bytes, open_files, max_files, started } = usage;
    text.counter(
        "process_cpu_seconds_total",
        "User and system CPU time spent, in seconds",
        cpu_seconds,
    );
    text.gauge("process_resident_memory_bytes", "Resident memory size, in bytes", resident_bytes);
    text.gauge("process_open_fds", "Open file descriptors", open_files);
    if let Some(max) = max_files {
        text.gauge("process_max_fds", "File descriptors that may be open", max);
    }
    let help = "When the process started, in seconds since 1970";
    text.gauge("process_start_time_seconds", help, started);
}

/// What a process uses at a moment.
#[derive(Debug)]
struct ProcessUsage {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_files: u64,
    /// Nothing if there is no limit.
    max_files: Option<u64>,
    started: f64,
}

#[cfg(target_os = "linux")]
impl ProcessUsage {
    fn now() -> Option<Self> {
        use std::fs::read_to_string;

        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let stat = read_to_string("/proc/self/stat").ok()?;
        // The name of the program may hold anything, also spaces and parentheses. The third field follows it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let booted: f64 = {
            let system = read_to_string("/proc/stat").ok()?;
            let line = system.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse().ok()?
        };
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
            open_files: open_files()?,
            max_files: files.current,
            started: booted + field(22)? as f64 / ticks,
        })
    }
}

/// Newer kernels say it as the size of a directory; for older ones its entries are counted, which takes
/// milliseconds where there are many thousands, and includes the one that is open for counting.
#[cfg(target_os = "linux")]
fn open_files() -> Option<u64> {
    let said = std::fs::metadata("/proc/self/fd").ok()?.len();
    if said > 0 {
        return Some(said);
    }
    let counted = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(counted.saturating_sub(1))
}

#[cfg(not(target_os = "linux"))]
impl ProcessUsage {
    fn now() -> Option<Self> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn it_is_about_this_process() {
        let before = ProcessUsage::now().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - before.started;
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
        let files: Vec<_> =
            (0..50).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let (memory, began) = (vec![1_u8; 64 << 20], std::time::Instant::now());
        while began.elapsed().as_millis() < 60 {
            std::hint::black_box(&memory);
        }
        let after = ProcessUsage::now().unwrap();
        assert!(after.open_files >= before.open_files + files.len() as u64, "{before:?} {after:?}");
        assert!(after.max_files.is_none_or(|max| max >= after.open_files), "{after:?}");
        assert!(after.resident_bytes > 64 << 20, "{after:?}");
        assert!(after.cpu_seconds > before.cpu_seconds, "{before:?} {after:?}");
    }
}
