//! What the tests are made with.
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | the binary, running |
//! | `client.rs` | a WebSocket client that speaks frames and checks every one it gets |
//! | `envelope.rs` | what has to be true of every frame |
//! | `hook.rs` | a server that lifecycle events are posted to |
//! | `puppet.rs`, `puppet.py` | an agent that does as the messages it gets tell it |

pub(crate) mod client;
pub(crate) mod envelope;
pub(crate) mod hook;
pub(crate) mod puppet;
pub(crate) mod server;

use std::time::Duration;

use serde_json::Value;

pub(crate) use self::client::Client;
pub(crate) use self::hook::Hook;
pub(crate) use self::puppet::Puppet;
pub(crate) use self::server::Server;

/// However slow the machine, nothing here takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is looked at that nobody reports.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What happens to a client before it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its connection ends without a word.
    Connection,
    /// The server is killed with -9 and started again.
    Server,
}

/// Makes two tests of a scenario that takes a [`Cut`].
macro_rules! both_ways {
    ($($scenario:ident),+ $(,)?) => {$(
        mod $scenario {
            #[tokio::test]
            async fn connection_dropped() {
                super::$scenario(crate::support::Cut::Connection).await;
            }

            #[tokio::test]
            async fn server_killed() {
                super::$scenario(crate::support::Cut::Server).await;
            }
        }
    )+};
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A text in a frame.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_owned()
}
