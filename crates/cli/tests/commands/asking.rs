//! What each command does when all is well.

use rejoin_client::{Incoming, Joined, Session, Status};
use serde_json::Value;

use crate::support::{QUICK_AGENT, Running, Server};

#[test]
fn an_empty_list_says_what_to_do_next() {
    let server = Server::start(&[]);
    let said = server.answers(&["sessions"]);
    assert!(said.starts_with("no active sessions"), "{said}");
    assert!(said.contains("rejoin new"), "{said}");
    let said = server.answers(&["audit"]);
    assert!(said.starts_with("no attempts are recorded"), "{said}");
}

#[test]
fn sessions_are_a_table_for_people_and_json_lines_for_programs() {
    let server = Server::start(&[]);
    let (first, second) = (server.create(), server.create());
    server.publish(&first, &["a", "b"]);

    let table = server.answers(&["sessions"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("SESSION"), "{table}");
    let row = lines.iter().find(|line| line.starts_with(&first)).expect("it is listed");
    let fields: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(fields[1..9], ["parked", "-", "test", "7", "anonymous", "2", "0", "2"]);
    assert!(!table.contains('\x1b'), "a pipe gets no colour: {table}");

    let json = server.answers(&["sessions", "--json"]);
    let ids: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(ids.iter().any(|record| record["session_id"] == second.as_str()), "{json}");

    let limited = server.says(&["sessions", "--limit=1", "--json"]);
    assert_eq!((limited.code, limited.stdout.lines().count()), (Some(0), 1));
    assert!(limited.stderr.contains("more than 1"), "{limited:?}");
}

#[test]
fn ended_sessions_are_listed_for_who_asks_for_all() {
    let server = Server::start(&[]);
    let id = server.create();
    let said = server.answers(&["end", &id]);
    assert_eq!(said, format!("session {id} has ended, after 0 events\n"));
    assert!(!server.answers(&["sessions"]).contains(&id));
    let all = server.answers(&["sessions", "--all"]);
    assert!(all.contains(&id) && all.contains("closed"), "{all}");
}

#[test]
fn watching_goes_on_until_it_is_interrupted() {
    let server = Server::start(&[]);
    let mut watching = Running::start(server.command(&["sessions", "--watch"]));
    watching.until("no active sessions");
    let id = server.create();
    watching.until(&id);
    watching.interrupt();
    assert_eq!(watching.end().code, Some(0));
}

#[test]
fn a_session_is_shown_with_its_buffer() {
    let server = Server::start(&[]);
    let id = server.create();
    server.publish(&id, &["a", "b", "c"]);
    let said = server.answers(&["show", &id]);
    for part in [&*id, "active, parked", "test 7", "3 so far, 0 acked", "events 1 to 3", "in 23h"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json: Value = serde_json::from_str(&server.answers(&["show", &id, "--json"])).unwrap();
    assert_eq!(json["health"]["buffer_size"], 3);

    server.answers(&["end", &id]);
    let said = server.answers(&["show", &id]);
    assert!(said.contains("closed") && said.contains("it has ended"), "{said}");
}

#[test]
fn a_session_is_shown_with_the_deaths_of_its_agent() {
    let server = Server::start(&["--agent=read -r line; echo 'no model is left' >&2; exit 7"]);
    let id = server.create();
    server.says(&["send", &id, "hello", "--wait", "--idle=2"]);
    let said = server.answers(&["show", &id]);
    for part in ["deaths of its agent", "exit status: 7", "no model is left"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json: Value = serde_json::from_str(&server.answers(&["show", &id, "--json"])).unwrap();
    assert!(json["timeline"]["moments"].is_array(), "{json}");
}

#[test]
fn a_message_is_accepted_once_under_its_id() {
    let server = Server::start(&[QUICK_AGENT]);
    let id = server.create();
    let said = server.answers(&["send", &id, "hello", "--message-id=m1"]);
    assert_eq!(said, "accepted as message 1 (m1)\n");
    let said = server.answers(&["send", &id, "hello", "--message-id=m1"]);
    assert_eq!(said, "was there already, as message 1 (m1)\n");
    let said = server.answers(&["send", &id, "hello again", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["in_seq"], 2);
}

#[test]
fn who_waits_gets_the_events_up_to_the_answer() {
    let server = Server::start(&[QUICK_AGENT]);
    let id = server.create();
    for (first, second) in [(1, 2), (3, 4)] {
        let said = server.answers(&["send", &id, "hello", "--wait"]);
        let events: Vec<Vec<&str>> = said.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(events.len(), 2, "{said}");
        assert_eq!(events[0][0], first.to_string());
        assert_eq!(events[0][2..], ["agent.thinking", "hm"]);
        assert_eq!(events[1][0], second.to_string());
        assert_eq!(events[1][2..], ["agent.final_answer", "done"]);
    }
}

#[test]
fn who_waits_for_an_agent_that_says_nothing_is_told_so() {
    let server = Server::start(&["--agent=cat > /dev/null"]);
    let id = server.create();
    let said = server.says(&["send", &id, "hello", "--wait", "--idle=1"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.stderr.contains("nothing has come for 1 s"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_disconnected_comes_back_and_the_audit_trail_has_it() {
    let server = Server::start(&["--reconnect-backoff=0"]);
    let mut session = Session::builder(server.websocket()).start().await.unwrap();
    let id = joined(&mut session, Joined::Created).await;
    let listed = server.answers(&["sessions"]);
    assert!(listed.contains("attached") && listed.contains("websocket"), "{listed}");

    let said = server.answers(&["disconnect", &id]);
    assert!(said.starts_with("its connection was cut"), "{said}");
    assert_eq!(joined(&mut session, Joined::Resumed).await, id);
    let said = server.answers(&["audit", "--session", &id]);
    assert!(said.contains("reconnected") && said.contains("127.0.0.1"), "{said}");
    let said = server.answers(&["show", &id]);
    assert!(said.contains("latest attempts") && said.contains("reconnected"), "{said}");

    session.close().await;
    let json: Value = serde_json::from_str(&server.answers(&["audit", "--json"])).unwrap();
    assert_eq!(json["session_id"], id.as_str());
}

#[test]
fn a_session_that_nobody_is_attached_to_has_no_connection_to_cut() {
    let server = Server::start(&[]);
    let said = server.answers(&["disconnect", &server.create()]);
    assert!(said.starts_with("nobody was connected"), "{said}");
}

/// Reads on until the client is attached in this way.
async fn joined(session: &mut Session, wanted: Joined) -> String {
    loop {
        let incoming = session.next().await.expect("it goes on");
        if let Incoming::Status(Status::Connected { session_id, how }) = incoming
            && how == wanted
        {
            return session_id.to_string();
        }
    }
}
