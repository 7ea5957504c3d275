//! `rejoin tail`: an observer that outlives its connections.

use serde_json::Value;

use crate::support::{Running, Server};

/// What an event of [`Server::publish`] says.
fn note(line: &str) -> &str {
    line.split_once("agent.note").map_or("", |(_, text)| text.trim())
}

#[test]
fn events_are_followed_from_where_one_says() {
    let server = Server::start(&[]);
    let id = server.create();
    server.publish(&id, &["a", "b", "c"]);
    let mut tail = Running::start(server.command(&["tail", &id, "--from=2"]));
    let before = [tail.line(), tail.line()];
    assert_eq!(before.each_ref().map(|line| note(line)), ["b", "c"]);
    assert!(before[0].trim_start().starts_with("2 "), "{before:?}");
    server.publish(&id, &["d\u{1b}[2J\ne"]);
    assert_eq!(note(&tail.line()), r"d\u{1b}[2J\ne");
    tail.interrupt();
    let said = tail.end();
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.contains(&format!("rejoin tail {id} --from 5")), "{said:?}");
}

#[test]
fn the_last_ten_are_shown_if_nobody_says_from_where() {
    let server = Server::start(&[]);
    let id = server.create();
    let contents: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    server.publish(&id, &contents.iter().map(String::as_str).collect::<Vec<_>>());
    let mut tail = Running::start(server.command(&["tail", &id]));
    let lines: Vec<String> = (0..10).map(|_| tail.line()).collect();
    assert_eq!((note(&lines[0]), note(&lines[9])), ("3", "12"));
}

#[test]
fn a_tail_goes_on_across_a_restart_of_the_server_without_hole_or_duplicate() {
    let mut server = Server::start(&[]);
    let id = server.create();
    let mut tail = Running::start(server.command(&["tail", &id, "--from=1", "--json"]));
    let mut seqs = Vec::new();
    for round in ["one", "two", "three"] {
        server.publish(&id, &["a", "b", round]);
        for line in tail.until(&format!("\"{round}\"")) {
            let event: Value = serde_json::from_str(&line).unwrap();
            seqs.push(event["seq"].as_u64().unwrap());
        }
        server.kill();
        tail.notes("(waiting for it)");
        server.start_again();
        tail.notes("the server is back");
    }
    assert_eq!(seqs, (1..=9).collect::<Vec<_>>());
    tail.interrupt();
    assert_eq!(tail.end().code, Some(0));
}

#[test]
fn events_that_are_gone_are_told_as_a_gap() {
    let server = Server::start(&["--buffer-size=2"]);
    let id = server.create();
    server.publish(&id, &["a", "b", "c", "d", "e"]);
    let mut tail = Running::start(server.command(&["tail", &id, "--from=1"]));
    assert_eq!(tail.line(), "  --- gap: events 1 to 3 are gone (evicted)");
    assert_eq!(note(&tail.line()), "d");
    let mut tail = Running::start(server.command(&["tail", &id, "--from=1", "--json"]));
    let gap: Value = serde_json::from_str(&tail.line()).unwrap();
    assert_eq!(gap["gap"]["to"], 3);
}

#[test]
fn the_end_of_the_session_is_the_end_of_the_tail() {
    let server = Server::start(&[]);
    let id = server.create();
    server.publish(&id, &["a"]);
    let mut tail = Running::start(server.command(&["tail", &id, "--from=1"]));
    assert_eq!(note(&tail.line()), "a");
    server.answers(&["end", &id]);
    let said = tail.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), "the session has ended\n"));
}
