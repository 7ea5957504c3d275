//! How fast a performance is, and how rough.

use std::time::Duration;

use crate::random::Random;

/// The musicians.
pub(crate) const MUSICIANS: [&str; 5] = ["Ada", "Bela", "Clara", "Django", "Ella"];

/// Jobs of each of them: thirty in all.
pub(crate) const JOBS_EACH: usize = 6;

/// Jobs that a musician has under way at the same time.
pub(crate) const AT_ONCE: usize = 2;

/// After how many results the server is killed.
pub(crate) const KILLED_AFTER: [usize; 2] = [8, 18];

/// How long things take, from the least to the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) job: (Duration, Duration),
    /// Between one cut and the next.
    pub(crate) cut_every: (Duration, Duration),
    /// How long a musician is away after a cut.
    pub(crate) away: (Duration, Duration),
    /// How long the server is down after it was killed.
    pub(crate) down: Duration,
    /// When a client is told to come back.
    pub(crate) retry: Duration,
    /// When something must have gone wrong.
    pub(crate) deadline: Duration,
}

const fn ms(least: u64, most: u64) -> (Duration, Duration) {
    (Duration::from_millis(least), Duration::from_millis(most))
}

/// As it is: jobs of 30 to 60 seconds, about three minutes in all.
pub(crate) const FULL: Pace = Pace {
    job: ms(30_000, 60_000),
    cut_every: ms(2_000, 6_000),
    away: ms(0, 8_000),
    down: Duration::from_secs(2),
    retry: Duration::from_secs(1),
    deadline: Duration::from_secs(600),
};

/// For tests: a tenth of a minute.
pub(crate) const SHORT: Pace = Pace {
    job: ms(600, 1_200),
    cut_every: ms(60, 180),
    away: ms(0, 250),
    down: Duration::from_millis(200),
    retry: Duration::from_millis(100),
    deadline: Duration::from_secs(90),
};

/// One job that a musician will ask for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Names it: asking again for the same key is asking for the same job.
    pub(crate) key: String,
    pub(crate) takes: Duration,
}

impl Pace {
    /// What a musician will ask for.
    pub(crate) fn plan(&self, musician: usize, random: &mut Random) -> Vec<Plan> {
        let name = MUSICIANS[musician];
        let job = |number: usize| Plan {
            key: format!("{name}-{}", number + 1),
            takes: random.between(self.job),
        };
        (0..JOBS_EACH).map(job).collect()
    }
}
