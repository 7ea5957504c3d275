//! What an agent learns about the server that runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::server_process::ServerProcess;
use crate::revoking::hang_up;
use crate::{ask, eventually, member};

const API_KEY: &str = "api-key-that-nobody-else-may-see";
const SIGNING: &str = "signing-secret-that-no-child-may-see";
const HOOK: &str = "hook-secret-that-no-child-may-see";
const HEADERS: &str = "authorization=telemetry-secret";

const CONFIG: &str = "[[api_keys]]\nname = 'a'\nadmin = true\nkey_env = 'UNRELATED_NAME'\n";

/// An agent that writes down what it sees.
fn spy(directory: &Path) -> String {
    let script = directory.join("spy.sh");
    let there = directory.display();
    let text = format!(
        "env > {there}/env\n\
         cat /proc/$PPID/environ > {there}/environ 2> {there}/environ.error\n\
         cat /proc/$PPID/cmdline > {there}/cmdline\n\
         ls /proc/self/fd > {there}/files\n\
         ulimit -n > {there}/limit\n\
         touch {there}/done\n\
         cat > /dev/null\n"
    );
    fs::write(&script, text).unwrap();
    format!("exec sh {}", script.display())
}

/// A file that whoever starts the server has left open for its children by mistake.
fn left_open() -> fs::File {
    let file = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    file
}

async fn spied(arguments: &[&str], environment: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let _left_open = left_open();
    let mut all = vec!["--agent".to_owned(), spy(directory.path())];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let server = ServerProcess::start(all, CONFIG, environment).await;
    spy_on(&server, &directory).await;
    directory
}

/// Has the server start the agent that looks around.
async fn spy_on(server: &ServerProcess, directory: &tempfile::TempDir) {
    let key = format!("X-API-Key: {API_KEY}\r\n");
    let made = ask(server.address(), "POST", "/api/sessions", &key, "{}").await;
    let id = member(&made, "session_id");
    let path = format!("/api/sessions/{id}/messages");
    ask(server.address(), "POST", &path, &key, r#"{"content":"hello"}"#).await;
    let done = directory.path().join("done");
    eventually(|| done.exists().then_some(())).await;
    fs::remove_file(done).unwrap();
}

fn read(directory: &tempfile::TempDir, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(directory.path().join(name)).unwrap()).into_owned()
}

const ENVIRONMENT: [(&str, &str); 7] = [
    ("NOTIFY_SOCKET", "@a-supervisor-that-is-not-there"),
    ("UNRELATED_NAME", API_KEY),
    ("MCP_SESSION_SECRET", SIGNING),
    ("REJOIN_HOOK_SECRET", HOOK),
    ("REJOIN_HOOK_URL", "http://127.0.0.1:9/"),
    ("OTEL_EXPORTER_OTLP_HEADERS", HEADERS),
    ("OF_THE_AGENT", "is passed on"),
];

#[tokio::test]
async fn an_agent_sees_no_secret_of_the_server_in_its_environment_or_the_servers() {
    let seen = spied(&[], &ENVIRONMENT).await;
    for file in ["env", "environ", "cmdline"] {
        let text = read(&seen, file);
        for secret in [API_KEY, SIGNING, HOOK] {
            assert!(!text.contains(secret), "{file}: {text}");
        }
    }
    let environment = read(&seen, "env");
    assert!(!environment.contains("telemetry-secret"), "{environment}");
    assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    assert!(environment.contains("OF_THE_AGENT=is passed on"), "{environment}");
    let files: Vec<u32> = read(&seen, "files").lines().map(|line| line.parse().unwrap()).collect();
    assert!(files.iter().all(|file| *file <= 3), "{files:?}: `ls` itself has the directory open");
}

#[tokio::test]
async fn secrets_given_as_flags_are_not_in_the_process_list() {
    let arguments = ["--hook-url", "http://127.0.0.1:9/", "--hook-secret", HOOK];
    let seen = spied(&arguments, &[("UNRELATED_NAME", API_KEY)]).await;
    assert!(!read(&seen, "cmdline").contains(HOOK));
    assert!(read(&seen, "cmdline").contains("--hook-secret"));
}

#[tokio::test]
async fn what_is_to_be_kept_or_hidden_besides_can_be_said() {
    let arguments = ["--child-env-keep", "UNRELATED_NAME", "--child-env-hide", "OF_THE_AGENT"];
    let seen = spied(&arguments, &ENVIRONMENT).await;
    let environment = read(&seen, "env");
    assert!(environment.contains(API_KEY), "{environment}");
    assert!(!environment.contains("OF_THE_AGENT"), "{environment}");
}

#[tokio::test]
async fn a_variable_that_the_settings_name_while_the_server_runs_is_hidden_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = vec!["--agent".to_owned(), spy(directory.path())];
    let environment = [("UNRELATED_NAME", API_KEY), ("NAMED_LATER", "a key of somebody else")];
    let server = ServerProcess::start(arguments, CONFIG, &environment).await;
    spy_on(&server, &directory).await;
    assert!(read(&directory, "env").contains("NAMED_LATER"), "nothing says yet that it is a key");
    let another = "[[api_keys]]\nname = 'b'\nkey_env = 'NAMED_LATER'\n";
    fs::write(server.config(), format!("{CONFIG}{another}")).unwrap();
    hang_up(&server);
    eventually(|| server.log().contains("keys of callers read").then_some(())).await;
    spy_on(&server, &directory).await;
    assert!(!read(&directory, "env").contains("NAMED_LATER"));
}

#[tokio::test]
async fn an_agent_gets_the_limit_of_open_files_that_the_server_was_started_with() {
    let own = Command::new("sh").args(["-c", "ulimit -n"]).output().unwrap().stdout;
    let seen = spied(&[], &ENVIRONMENT).await;
    assert_eq!(read(&seen, "limit"), String::from_utf8_lossy(&own));
}

/// Runs something as a user without any privilege would, though the test may be run by root.
#[cfg(target_os = "linux")]
fn unprivileged(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", program]);
    command
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_servers_memory_is_closed_to_processes_of_its_user() {
    let home = tempfile::tempdir().unwrap();
    let mut command = unprivileged(env!("CARGO_BIN_EXE_rejoin"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.path().join("data"));
    let log = home.path().join("log");
    command.stdout(fs::File::create(&log).unwrap()).stderr(std::process::Stdio::null());
    let Ok(mut server) = command.spawn() else { return }; // there is no setpriv here
    eventually(|| fs::read_to_string(&log).unwrap().contains("stop with").then_some(())).await;
    let read = |id: &str, name: &str| {
        let path = format!("/proc/{id}/{name}");
        unprivileged("head").args(["-c1", &path]).output().unwrap()
    };
    let own = read("self", "environ");
    let others = ["environ", "mem", "maps"].map(|name| read(&server.id().to_string(), name));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(own.status.success(), "it may read its own");
    for other in others {
        assert!(!other.status.success(), "{other:?}");
    }
}
