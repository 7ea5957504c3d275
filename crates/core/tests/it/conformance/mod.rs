//! The language-neutral cases of `conformance/` against the client's brain. Its README says how they are
//! read; every client passes the same ones. Here they are found, begun and played; `read` and `write`
//! translate between their JSON and the brain's own words.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod cases;
mod read;
mod write;

use std::time::Duration;

use cases::{Book, Case, Step};
use rejoin_core::Timestamp;
use rejoin_core::client::{Client, ClientOptions, Input, Output};
use serde_json::{Value, json};

#[test]
fn the_brain_does_what_every_client_does() {
    let book = Book::open();
    let mut failures = Vec::new();
    for case in &book.cases {
        if let Err(failure) = play(&book, case) {
            failures.push(format!("{}: {failure}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn there_are_at_least_sixty_cases_and_no_name_occurs_twice() {
    let mut names: Vec<_> = Book::open().cases.into_iter().map(|case| case.name).collect();
    assert!(names.len() >= 60, "{}", names.len());
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn a_case_that_expects_something_else_fails() {
    let book = Book::open();
    let mut case =
        book.cases.iter().find(|case| case.name == "duplicates_are_dropped").unwrap().clone();
    case.steps[0].out = Some(vec![json!({ "event": 5 })]);
    assert!(play(&book, &case).is_err());
    case.steps[0].out = None;
    case.steps[0].next_ms = Some(json!(1));
    assert!(play(&book, &case).is_err());
}

/// A client in the middle of a case.
struct Run {
    client: Client,
    now: Timestamp,
}

fn play(book: &Book, case: &Case) -> Result<(), String> {
    let chapters = book.chapters(case);
    let saved = chapters.iter().rev().find_map(|chapter| chapter.saved.as_ref());
    let saved = saved.map(|saved| read::saved(&book.saved(saved, None)));
    let given = chapters.iter().rev().find_map(|chapter| chapter.options.as_ref());
    let client = Client::new(given.map_or_else(ClientOptions::default, read::options), saved);
    let mut run = Run { client, now: Timestamp::from_millis(1_000_000) };
    let started = run.outputs();
    for step in chapters.iter().flat_map(|chapter| &chapter.steps) {
        run.take(book, step, &started).map_err(|why| format!("at {}: {why}", step.happens))?;
    }
    Ok(())
}

impl Run {
    fn take(&mut self, book: &Book, step: &Step, started: &[Output]) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(step.after_ms);
        let outputs = if step.happens == "start" {
            started.to_vec()
        } else {
            self.handle(read::inputs(book, &step.happens))
        };
        if let Some(out) = &step.out {
            let wanted: Vec<_> = out.iter().flat_map(|output| book.expected(output)).collect();
            compare(&outputs, &wanted)?;
        }
        match &step.next_ms {
            Some(expected) if *expected != self.next_ms() => {
                Err(format!("the next deadline is {}, not {expected}", self.next_ms()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn handle(&mut self, inputs: Vec<Input>) -> Vec<Output> {
        let mut outputs = Vec::new();
        for input in inputs {
            self.client.handle(input, self.now);
            outputs.extend(self.outputs());
        }
        outputs
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.client.poll_output()).collect()
    }

    fn next_ms(&self) -> Value {
        let due = self.client.next_deadline();
        due.map_or(Value::Null, |due| json!(due.as_millis() as i64 - self.now.as_millis() as i64))
    }
}

fn compare(outputs: &[Output], wanted: &[Value]) -> Result<(), String> {
    let shown = outputs.iter().enumerate().map(|(at, output)| {
        let by_number = wanted.get(at).is_some_and(|wanted| wanted["event"].is_u64());
        write::output(output, by_number)
    });
    let shown: Vec<_> = shown.collect();
    if shown == wanted {
        return Ok(());
    }
    let lines = |values: &[Value]| values.iter().map(|v| format!("    {v}\n")).collect::<String>();
    Err(format!("wanted\n{}  got\n{}", lines(wanted), lines(&shown)))
}
