//! The binary at its most talkative.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::known::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    ApiKeys,
    Jwt,
}

/// An agent that puts a canary into its state and into what it says. What it prints by mistake is logged.
const AGENT: &str = r#"
while read -r line; do case $line in *user.message*)
rest=${line#*'"in_seq":'}; n=${rest%%[!0-9]*}
echo '{"event":"agent.said","content":"event-canary-6a90cc","in_seq":'$n',"state":{"stage":"s","current_step":'$n',"memory_snapshot":{"mind":"state-canary-1f4e0a"},"plan_context":"state-canary-1f4e0a"}}'
echo 'printed by mistake'
echo '{"event":"agent.error","content":"event-canary-6a90cc"}'
esac; done"#;

/// A server that was started, its log read as it is written.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    pub(crate) fn start(directory: &Path, auth: Auth, log: &str, collector: &str) -> Self {
        let access = match auth {
            Auth::ApiKeys => {
                "[[api_keys]]\nname = \"trial\"\nkey_env = \"TRIAL_KEY\"\nadmin = true\npublish = true\n"
            }
            Auth::Jwt => {
                "auth = \"jwt\"\n[jwt]\nissuer = \"https://issuer.example\"\naudience = \"rejoin\"\n\
                 secret_env = \"TRIAL_JWT\"\n"
            }
        };
        let (config, agent) = (directory.join("rejoin.toml"), directory.join("agent.sh"));
        std::fs::write(&config, access).unwrap();
        std::fs::write(&agent, AGENT).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.env_clear().arg("serve").arg("--config").arg(config);
        command.arg("--data-dir").arg(directory.join("data"));
        command.arg(format!("--agent=exec sh '{}'", agent.display()));
        command.args(["--listen=127.0.0.1:0", "--log-level=trace", "--auto-export-interval=1s"]);
        command.arg(format!("--log={log}")).arg(format!("--otlp-endpoint={collector}"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("MCP_SESSION_SECRET", SIGNING).env("MCP_SESSION_SECRET_PREVIOUS", OLD_SIGNING);
        command.env("TRIAL_KEY", API_KEY).env("TRIAL_JWT", JWT_SECRET);
        command.env("REJOIN_OTLP_HEADERS", format!("x-collector-key={OTLP}"));
        command.env("REJOIN_HOOK_SECRET", HOOK);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            let _ = errors.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap());
        let address = lines.find_map(|line| Some(line.split_once("http://")?.1.trim().to_owned()));
        let Some(address) = address else { panic!("it does not start: {}", log.join().unwrap()) };
        Self { child, address, log: Some(log) }
    }

    /// Stops it in an orderly way, so that its last spans are sent, and gives its log.
    pub(crate) fn end(&mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
