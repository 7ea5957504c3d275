//! Making sessions, naming one by the beginning of its id, and listing those that are wanted.

use rejoin_client::{Incoming, Session, Status};
use serde_json::Value;

use crate::support::{QUICK_AGENT, Server, rejoin, run};

/// The ids that a list shows, in its order.
fn listed(server: &Server, flags: &[&str]) -> Vec<String> {
    let said = server.answers(&[&["sessions", "--json"], flags].concat());
    let id = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("it is JSON");
        record["session_id"].as_str().expect("it has an id").to_owned()
    };
    said.lines().map(id).collect()
}

#[test]
fn new_prints_the_id_and_nothing_else() {
    let server = Server::start(&[QUICK_AGENT]);
    let said = server.answers(&["new"]);
    let id = said.trim_end();
    assert_eq!(said, format!("{id}\n"));
    assert!(server.answers(&["show", id]).contains("rejoin-cli"));
    let record: Value = serde_json::from_str(&server.answers(&["new", "--json"])).unwrap();
    assert!(record["session_id"].is_string(), "{record}");
}

#[test]
fn new_with_a_message_has_the_agent_at_work() {
    let server = Server::start(&[QUICK_AGENT]);
    let id = server.answers(&["new", "--message", "hello"]);
    let mut tail = crate::support::Running::start(server.command(&["tail", id.trim_end()]));
    tail.until("agent.final_answer");
}

#[test]
fn the_beginning_of_an_id_is_enough_where_it_is_one_sessions() {
    let server = Server::start(&[]);
    let mut ids = [server.create(), server.create(), server.create()];
    ids.sort();
    for (index, id) in ids.iter().enumerate() {
        let others = ids.iter().enumerate().filter(|(other, _)| *other != index);
        let shared = others.map(|(_, other)| shared(id, other)).max().unwrap();
        let said = server.answers(&["show", &id[..=shared]]);
        assert!(said.starts_with(id.as_str()), "{said}");
    }
    let said = server.answers(&["end", &ids[1][..ids[1].len() - 1]]);
    assert!(said.contains(&ids[1]), "{said}");

    let ambiguous = server.says(&["show", "sess_"]);
    assert_eq!(ambiguous.code, Some(1), "{ambiguous:?}");
    assert!(ambiguous.stderr.contains("several sessions begin with sess_"), "{ambiguous:?}");
    assert!(ids.iter().all(|id| ambiguous.stderr.contains(id.as_str())), "{ambiguous:?}");
    let unknown = server.says(&["show", "sess_-nobody"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("there is no session sess_-nobody"), "{unknown:?}");
}

/// How many bytes two ids have in common.
fn shared(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

#[tokio::test]
async fn a_list_is_of_those_who_are_wanted_in_the_order_that_is_wanted() {
    let server = Server::start(&[]);
    let [first, second, ended] = [server.create(), server.create(), server.create()];
    server.publish(&first, &["a"]);
    server.publish(&second, &["a", "b", "c"]);
    server.answers(&["end", &ended]);
    let mut session = Session::builder(server.websocket()).start().await.unwrap();
    while !matches!(session.next().await.unwrap(), Incoming::Status(Status::Connected { .. })) {}
    let attached = listed(&server, &["--attached"]);
    assert_eq!(attached.len(), 1);

    let mut parked = listed(&server, &["--parked"]);
    parked.sort();
    let mut expected = vec![first.clone(), second.clone()];
    expected.sort();
    assert_eq!(parked, expected);
    assert_eq!(listed(&server, &["--status=closed"]), [ended.as_str()]);
    assert_eq!(listed(&server, &["--all"]).len(), 4);
    assert_eq!(listed(&server, &["--principal=anonymous"]).len(), 3);
    assert_eq!(listed(&server, &["--principal=nobody"]), [""; 0]);
    assert!(
        server.answers(&["sessions", "--principal=nobody"]).starts_with("no sessions like that")
    );

    let by_events = listed(&server, &["--sort=events", "--parked"]);
    assert_eq!(by_events, [second.as_str(), first.as_str()]);
    assert_eq!(listed(&server, &["--sort=buffered", "--limit=1"]), [second.as_str()]);
    let by_age = listed(&server, &["--sort=created", "--all"]);
    assert_eq!(by_age, [attached[0].as_str(), &ended, &second, &first]);
    assert_eq!(listed(&server, &["--sort=last_activity", "--limit=1"]), attached);
    let both = server.says(&["sessions", "--attached", "--parked"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    session.close().await;
}

#[test]
fn the_short_help_is_one_screen_and_the_long_one_has_every_setting() {
    let [short, long] = ["-h", "--help"].map(|flag| {
        let mut command = rejoin();
        command.arg(flag);
        run(command)
    });
    assert_eq!((short.code, long.code), (Some(0), Some(0)));
    assert!(short.stdout.lines().count() < 24, "{}", short.stdout);
    assert!(!short.stdout.contains("--buffer-size") && long.stdout.contains("--buffer-size"));
}

#[test]
fn completions_are_what_each_shell_takes() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef rejoin"), ("fish", "complete -c rejoin")]
    {
        let mut command = rejoin();
        command.args(["completions", shell]);
        let said = run(command);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains(sign) && said.stdout.contains("sessions"), "{shell}");
    }
    let mut command = rejoin();
    command.args(["completions", "bash"]);
    let mut bash = std::process::Command::new("bash");
    bash.args(["-n", "-c", &run(command).stdout]);
    assert_eq!(run(bash).code, Some(0));
}
