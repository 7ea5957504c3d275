//! What was measured, beside what is wanted.

use std::process::ExitCode;

/// Collects figures and prints them as they come.
#[derive(Debug, Default)]
pub struct Report {
    missed: usize,
    figures: usize,
}

/// What is wanted of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this.
    AtMost(f64),
}

impl Report {
    /// A figure beside what is wanted of it.
    #[expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]
    pub fn figure(&mut self, name: &str, figure: f64, wanted: Wanted, detail: &str) {
        let (good, sign, limit) = match wanted {
            Wanted::AtLeast(limit) => (figure >= limit, "≥", limit),
            Wanted::AtMost(limit) => (figure <= limit, "≤", limit),
        };
        self.figures += 1;
        self.missed += usize::from(!good);
        let mark = if good { "ok  " } else { "MISS" };
        println!("{mark} {name}: {figure:.2} (wanted {sign} {limit}); {detail}");
    }

    /// Says how many were as wanted.
    #[expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]
    pub fn finish(self) -> ExitCode {
        println!("{} of {} figures as wanted", self.figures - self.missed, self.figures);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
