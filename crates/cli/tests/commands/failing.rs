//! One clear sentence for each thing that can be wrong, and the right exit code.

use std::net::TcpListener;

use crate::support::{Running, Said, Server, rejoin, run};

/// An id that no session has.
const NOBODY: &str = "sess_AAAAAAAAAAAAAAAAAAAAAA";

/// Every command that asks a server, with what it needs.
fn commands(id: &str) -> [Vec<&str>; 7] {
    [
        vec!["sessions"],
        vec!["show", id],
        vec!["tail", id],
        vec!["send", id, "hello"],
        vec!["disconnect", id],
        vec!["end", id],
        vec!["audit"],
    ]
}

fn assert_says(said: &Said, code: i32, sentence: &str) {
    assert_eq!(said.code, Some(code), "{said:?}");
    assert_eq!(said.stderr, format!("rejoin: {sentence}\n"));
    assert_eq!(said.stdout, "");
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    for arguments in commands(NOBODY) {
        let mut command = rejoin();
        command.args(arguments).args(["--url", &url]);
        let sentence = format!("nothing listens on {url}; start it with `rejoin`");
        assert_says(&run(command), 1, &sentence);
    }
}

#[test]
fn a_session_that_is_not_there_is_told() {
    let server = Server::start(&[]);
    for arguments in commands(NOBODY) {
        if ["sessions", "audit"].contains(&arguments[0]) {
            continue;
        }
        let sentence =
            format!("there is no session {NOBODY}; `rejoin sessions --all` lists those there are");
        assert_says(&server.says(&arguments), 1, &sentence);
    }
}

#[test]
fn a_session_that_has_ended_is_told() {
    let server = Server::start(&[]);
    let id = server.create();
    server.answers(&["end", &id]);
    for arguments in commands(&id) {
        if ["sessions", "audit", "show"].contains(&arguments[0]) {
            continue;
        }
        let sentence = format!(
            "session {id} has ended: nothing more happens in it; `rejoin show {id}` shows its record"
        );
        assert_says(&server.says(&arguments), 1, &sentence);
    }
}

#[test]
fn who_is_asking_is_told_by_environment_or_file_and_checked() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("rejoin.toml");
    let key =
        "[[api_keys]]\nname = \"a\"\nprincipal = \"alice\"\nadmin = true\nkey_env = \"TEST_KEY\"\n";
    std::fs::write(&config, key).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    let url = server.url();

    let missing = format!(
        "{url} wants to know who is asking: set REJOIN_API_KEY, or name a file with --key-file"
    );
    for arguments in commands(NOBODY) {
        assert_says(&server.says(&arguments), 1, &missing);
    }
    let mut wrong = server.command(&["sessions"]);
    wrong.env("REJOIN_API_KEY", "another");
    let refused = format!("{url} does not accept the API key from REJOIN_API_KEY");
    assert_says(&run(wrong), 1, &refused);

    let mut right = server.command(&["sessions"]);
    right.env("REJOIN_API_KEY", "the-key-of-alice");
    assert_eq!(run(right).code, Some(0));
    let file = files.path().join("key");
    std::fs::write(&file, "the-key-of-alice\n").unwrap();
    server.answers(&["sessions", "--key-file", file.to_str().unwrap()]);
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["sessions", "--url=nowhere"][..],
        &["sessions", "--url=http://me:password@host"],
        &["sessions", "--key-file=/nowhere/at/all"],
        &["sessions", "--key=secret"],
        &["sessions", "--limit=0"],
        &["show", "no/id"],
        &["tail", NOBODY, "--from=0"],
        &["send", NOBODY],
    ] {
        let mut command = rejoin();
        command.args(arguments);
        let said = run(command);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
        assert!(!said.stderr.is_empty() && !said.stderr.contains("password"), "{said:?}");
    }
}

#[test]
fn the_help_says_why_no_flag_takes_a_key() {
    let mut command = rejoin();
    command.args(["sessions", "--help"]);
    let said = run(command);
    assert!(said.stdout.contains("REJOIN_API_KEY") && said.stdout.contains("history"), "{said:?}");
}

#[test]
fn something_else_on_that_port_is_not_taken_for_a_server_of_ours() {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope").unwrap();
    });
    let mut command = rejoin();
    command.args(["sessions", "--url", &url]);
    let sentence = format!("{url} does not answer like a Rejoin server: there is no /api");
    assert_says(&run(command), 1, &sentence);
    other.join().unwrap();
}

#[test]
fn a_server_with_tls_is_asked_if_this_machine_trusts_it() {
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| files.path().join(name));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let [certificate, key] = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let server = Server::start(&["--tls-cert", certificate, "--tls-key", key]);
    let url = server.url().replace("http://", "https://");

    let mut trusted = server.command(&["sessions", "--url", &url]);
    trusted.env("SSL_CERT_FILE", certificate);
    let said = run(trusted);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = server.says(&["sessions", "--url", &url]);
    assert_eq!(said.code, Some(1));
    let begins = format!("rejoin: {url} can't be reached: invalid peer certificate");
    assert!(
        said.stderr.starts_with(&begins) || said.stderr.contains("ca-certificates"),
        "{said:?}"
    );
}

#[test]
fn a_pipe_that_is_closed_is_no_error() {
    let server = Server::start(&[]);
    server.create();
    let mut watching = Running::start(server.command(&["sessions", "--watch", "--json"]));
    watching.line();
    watching.close_output();
    let said = watching.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_server_starts_in_the_environment_of_a_person_who_asks_one() {
    let mut command = rejoin();
    command.arg("check-config").env("REJOIN_URL", "http://h").env("REJOIN_API_KEY", "k");
    let said = run(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stdout.contains("API_KEY"), "{said:?}");
}
