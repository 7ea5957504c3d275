//! What happened when, and a picture of it.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pace::MUSICIANS;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A musician asked for a job.
    Asked(String),
    /// Its result arrived.
    Got(String),
    /// Its connections were cut, and it could not come back before a while.
    Cut(Duration),
    /// The server was killed, for so long.
    Killed(Duration),
}

#[derive(Clone, Debug)]
struct Mark {
    at: Duration,
    musician: usize,
    what: What,
}

/// What happened when.
#[derive(Debug)]
pub(crate) struct Timeline {
    started: Instant,
    marks: Mutex<Vec<Mark>>,
}

/// The picture's measures.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const LANE: f64 = 56.0;
const BAR: f64 = 18.0;

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), marks: Mutex::default() }
    }

    pub(crate) fn note(&self, musician: usize, what: What) {
        let at = self.started.elapsed();
        self.lock().push(Mark { at, musician, what });
    }

    /// How often something like this happened.
    pub(crate) fn count(&self, like: impl Fn(&What) -> bool) -> usize {
        self.lock().iter().filter(|mark| like(&mark.what)).count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The picture: a lane for each musician, a bar for each job from asking to result, a mark for each cut with
    /// the time away, a band for each time the server was down.
    pub(crate) fn svg(&self) -> String {
        let marks = self.lock().clone();
        let end = marks
            .iter()
            .map(|mark| mark.at)
            .max()
            .unwrap_or_default()
            .max(Duration::from_millis(1));
        let x = |at: Duration| LEFT + (WIDTH - LEFT - 20.0) * at.as_secs_f64() / end.as_secs_f64();
        let height = TOP + LANE * MUSICIANS.len() as f64 + 40.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        legend(&mut svg);
        for mark in &marks {
            let (from, lane) = (x(mark.at), TOP + LANE * mark.musician as f64);
            match &mark.what {
                What::Killed(down) => {
                    let (width, bottom) =
                        ((x(mark.at + *down) - from).max(2.0), height - TOP - 30.0);
                    rect(
                        &mut svg,
                        (from, TOP - 6.0, width, bottom),
                        "#222",
                        "server killed and restarted",
                    );
                }
                What::Cut(away) => {
                    let width = (x(mark.at + *away) - from).max(1.5);
                    rect(&mut svg, (from, lane, width, LANE - 8.0), "#e4572e", "connections cut");
                }
                What::Asked(_) | What::Got(_) => {}
            }
        }
        for (row, job) in jobs(&marks) {
            let lane = TOP + LANE * job.musician as f64 + 4.0 + (BAR + 4.0) * row as f64;
            let place = (x(job.asked), lane, (x(job.got) - x(job.asked)).max(1.0), BAR);
            rect(&mut svg, place, "#4c78a8", &job.key);
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#2ca02c\"/>",
                x(job.got),
                lane + BAR / 2.0
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"white\" font-size=\"10\">{}</text>",
                x(job.asked) + 3.0,
                lane + 13.0,
                job.key
            );
        }
        for (number, name) in MUSICIANS.iter().enumerate() {
            let y = TOP + LANE * number as f64 + LANE / 2.0;
            let _ = writeln!(svg, "<text x=\"8\" y=\"{y:.1}\">{name}</text>");
        }
        axis(&mut svg, end, height, x);
        svg.push_str("</svg>\n");
        svg
    }
}

/// A job in the picture.
struct Job {
    musician: usize,
    key: String,
    asked: Duration,
    got: Duration,
}

/// All of them, each with its row in the lane.
fn jobs(marks: &[Mark]) -> Vec<(usize, Job)> {
    let mut jobs: Vec<(usize, Job)> = Vec::new();
    for mark in marks {
        let What::Asked(key) = &mark.what else { continue };
        let got = marks.iter().find(|other| other.what == What::Got(key.clone()));
        let Some(got) = got.map(|got| got.at) else { continue };
        let taken = |(row, job): &(usize, Job)| {
            *row == 0 && job.musician == mark.musician && job.got > mark.at
        };
        let row = usize::from(jobs.iter().any(taken));
        jobs.push((row, Job { musician: mark.musician, key: key.clone(), asked: mark.at, got }));
    }
    jobs
}

fn legend(svg: &mut String) {
    let entries = [
        (70.0, "#4c78a8", "a call, from asking to result"),
        (270.0, "#2ca02c", "the result, once"),
        (400.0, "#e4572e", "connections cut, and away"),
        (590.0, "#222", "server killed (-9) and restarted"),
    ];
    for (x, colour, text) in entries {
        rect(svg, (x, 12.0, 12.0, 12.0), colour, text);
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"22\">{text}</text>", x + 18.0);
    }
}

fn axis(svg: &mut String, end: Duration, height: f64, x: impl Fn(Duration) -> f64) {
    for tenth in 0..=10 {
        let at = end * tenth / 10;
        let (x, y) = (x(at), height - 14.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"#555\">{:.0} s</text>",
            at.as_secs_f64()
        );
    }
}

fn rect(svg: &mut String, (x, y, width, height): (f64, f64, f64, f64), colour: &str, title: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
         fill-opacity=\"0.85\"><title>{title}</title></rect>"
    );
}
