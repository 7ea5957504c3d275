//! `/ws`: the agent event protocol, one JSON object per text frame.
//!
//! | file | concern |
//! |---|---|
//! | `frames.rs` | what clients say, read once into requests |
//! | `words.rs` | what clients are told, as frames |
//! | `connection.rs` | one connection: who it is, what it is attached to, what comes next |
//! | `requests.rs` | what is done for each request |
//! | `tells.rs` | what its session has to say |
//! | `alone.rs` | what it does itself while it has none |
//! | `outbox.rs` | frames on their way |

mod alone;
mod connection;
mod frames;
mod outbox;
mod requests;
mod tells;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, State};
use axum::http::{Extensions, HeaderMap};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use rejoin_core::record::Transport;

use self::connection::Connection;
use super::Front;
use super::answer::Failure;
use super::credentials::credential;
use super::intake::Intake;
use super::limits::STRANGER_BYTES;
use super::receiving::Sender;
use crate::access::PresentedFrom;
use crate::service::transport_word;

/// Bytes read from a socket at once. Each connection has a buffer of that size, so it is small: it
/// decides what an idle connection costs.
const READ_BUFFER: usize = 1024;

/// Bytes written to a socket at once.
const WRITE_BUFFER: usize = 16 * 1024;

/// Frames up to so many times the limit are read whole and refused with a proper close; beyond that the
/// connection ends where it stands.
pub(super) const OVERSIZE: usize = 2;

/// Makes a connection of a request.
pub(super) async fn upgrade(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    extensions: Extensions,
    upgrade: WebSocketUpgrade,
) -> Response {
    let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let caller = match credential(&headers) {
        Ok(Some(credential)) => match front.admit(credential, presented_from(address)).await {
            Ok(caller) => Some(caller),
            Err(rejected) => return Failure::from(rejected).into_response(),
        },
        // A browser can't set headers: it may say who it is in its first frame.
        Ok(None) | Err(_) => front.credentials.without(),
    };
    let intake = extensions.get::<Intake>().cloned().unwrap_or_default();
    match &caller {
        Some(caller) => {
            intake.open(front.receiving.place(Sender::of(&front, caller, address)));
        }
        None => intake.narrow(STRANGER_BYTES),
    }
    let limit = front.settings.max_frame_bytes.saturating_mul(OVERSIZE);
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(move |socket| {
            let (sink, stream) = socket.split(); // out here, or the task would have room for it twice
            match Connection::new(front, caller, address.map(canonical), intake) {
                // A task of its own: the one that upgraded it has room for all that is needed for that.
                #[expect(clippy::disallowed_methods, reason = "`Service::close` waits for them")]
                Ok(connection) => drop(tokio::spawn(connection.run(sink, stream))),
                Err(unavailable) => tracing::error!(%unavailable, "a connection was not taken"),
            }
            std::future::ready(())
        })
}

/// How credentials of WebSocket clients come.
fn presented_from(address: Option<IpAddr>) -> PresentedFrom {
    PresentedFrom { address, over: transport_word(Transport::WebSocket) }
}

/// One address has one spelling, also where it came through an IPv6 socket.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
