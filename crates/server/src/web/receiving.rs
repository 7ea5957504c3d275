//! Bytes of requests that have come and were not handed on yet: bodies and frames that are not whole, and those that
//! wait for the store. Nothing else counts them, so without a bound one caller could have the server hold as much as it
//! has connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Extensions;
use http_body_util::BodyExt as _;
use rejoin_core::Principal;
use rejoin_core::network::Network;

use super::limits::{LARGEST_AT_ONCE, RETRY_RECEIVING};
use super::{Front, WebSettings};
use crate::access::Caller;
use crate::service::Denial;

/// Who sends something. Where anybody may come without a credential, callers are told apart by where they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Principal(Principal),
    At(Option<Network>),
}

impl Sender {
    pub(super) fn of(front: &Front, caller: &Caller, address: Option<IpAddr>) -> Self {
        match front.settings.open {
            true => Self::At(address.map(Network::of)),
            false => Self::Principal(caller.principal.clone()),
        }
    }

    /// Notes who sends a request, for whoever reads its body.
    pub(super) fn note(self, extensions: &mut Extensions) {
        extensions.insert(self);
    }
}

/// What all callers are sending.
#[derive(Debug)]
pub(super) struct Receiving {
    of_sender: u64,
    of_all: u64,
    taken: Mutex<BytesTaken>,
}

#[derive(Debug, Default)]
struct BytesTaken {
    all: u64,
    by: HashMap<Sender, u64>,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    OfSender,
    OfAll,
}

impl Receiving {
    /// As the settings say, but a caller that sends nothing else can always send the largest request.
    pub(super) fn new(settings: &WebSettings) -> Self {
        let frame = settings.max_frame_bytes.saturating_mul(super::ws::OVERSIZE);
        let largest = frame.max(settings.mcp.max_bytes) as u64;
        Self::with(
            settings.receiving_of_caller.max(largest),
            settings.receiving.max(largest.saturating_mul(LARGEST_AT_ONCE)),
        )
    }

    fn with(of_sender: u64, of_all: u64) -> Self {
        Self { of_sender, of_all, taken: Mutex::default() }
    }

    /// The place of something that `sender` begins to send.
    pub(super) fn place(self: &Arc<Self>, sender: Sender) -> RequestPlace {
        RequestPlace { receiving: Arc::clone(self), sender, bytes: 0 }
    }

    fn take(&self, sender: &Sender, bytes: u64) -> Result<(), Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_sender = taken.by.get(sender).copied().unwrap_or(0).saturating_add(bytes);
        let of_all = taken.all.saturating_add(bytes);
        if of_sender > self.of_sender {
            return Err(Full::OfSender);
        }
        if of_all > self.of_all {
            return Err(Full::OfAll);
        }
        taken.all = of_all;
        taken.by.insert(sender.clone(), of_sender);
        Ok(())
    }

    fn give_back(&self, sender: &Sender, bytes: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(bytes);
        let Some(of_sender) = taken.by.get_mut(sender) else { return };
        *of_sender = of_sender.saturating_sub(bytes);
        if *of_sender == 0 {
            taken.by.remove(sender);
        }
    }
}

/// The place of one request, or of what has come on one connection. Its bytes are given back when it is dropped.
#[derive(Debug)]
pub(super) struct RequestPlace {
    receiving: Arc<Receiving>,
    sender: Sender,
    bytes: u64,
}

impl RequestPlace {
    /// So many more have come.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let bytes = bytes as u64;
        if bytes > 0 {
            self.receiving.take(&self.sender, bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// So many of them are kept no longer.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.bytes -= bytes;
        self.receiving.give_back(&self.sender, bytes);
    }

    /// Another place with what is in this one, which is empty then.
    pub(super) fn split(&mut self) -> Self {
        let (receiving, sender) = (Arc::clone(&self.receiving), self.sender.clone());
        Self { receiving, sender, bytes: std::mem::take(&mut self.bytes) }
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.receiving.give_back(&self.sender, self.bytes);
        }
    }
}

impl From<Full> for Denial {
    fn from(full: Full) -> Self {
        let why = match full {
            Full::OfSender => {
                "Too much is being received from this caller at once; send less at a time \
                 (see max_bytes_per_principal)"
            }
            Full::OfAll => "Too much is being received at once; send it again later",
        };
        Self::Busy { why: why.into(), retry_after: RETRY_RECEIVING }
    }
}

/// A body that has come whole, with its place: that is kept until the request was handed on or answered.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    pub(super) place: RequestPlace,
}

/// Why a body has not come.
#[derive(Debug)]
pub(super) enum NotReceived {
    TooLarge,
    Broken,
    Full(Full),
}

impl Received {
    /// Reads a body of at most `max` bytes.
    pub(super) async fn read(
        front: &Front,
        request: Request,
        max: usize,
    ) -> Result<Self, NotReceived> {
        let sender = request.extensions().get::<Sender>().cloned();
        let place = front.receiving.place(sender.unwrap_or(Sender::At(None)));
        read(request.into_body(), place, max).await
    }
}

async fn read(
    mut body: Body,
    mut place: RequestPlace,
    max: usize,
) -> Result<Received, NotReceived> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| NotReceived::Broken)?;
        let Ok(data) = frame.into_data() else { continue }; // trailers
        if data.len() > max - bytes.len() {
            return Err(NotReceived::TooLarge);
        }
        place.grow(data.len()).map_err(NotReceived::Full)?;
        bytes.extend_from_slice(&data);
    }
    Ok(Received { bytes: bytes.into(), place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> Sender {
        Sender::At(Some(Network::of(IpAddr::from([192, 0, 2, last]))))
    }

    #[test]
    fn a_sender_has_its_bound_and_all_together_have_theirs() {
        let receiving = Arc::new(Receiving::with(10, 25));
        let mut places: Vec<RequestPlace> = (1..=3).map(|last| receiving.place(at(last))).collect();
        let mut second = receiving.place(at(1));
        assert_eq!(places[0].grow(6), Ok(()));
        assert_eq!(second.grow(5), Err(Full::OfSender), "the same sender on another connection");
        assert_eq!(second.grow(4), Ok(()));
        assert_eq!(places[1].grow(10), Ok(()));
        assert_eq!(places[2].grow(6), Err(Full::OfAll));
        drop(second);
        assert_eq!(places[2].grow(6), Ok(()), "what is dropped is given back");
    }

    #[test]
    fn what_is_split_off_is_given_back_once() {
        let receiving = Arc::new(Receiving::with(10, 10));
        let mut place = receiving.place(at(1));
        place.grow(8).unwrap();
        let handed_on = place.split();
        assert_eq!(place.grow(3), Err(Full::OfSender));
        drop(handed_on);
        assert_eq!(place.grow(10), Ok(()));
        place.shrink(20);
        drop(place);
        let taken = receiving.taken.lock().unwrap();
        assert_eq!((taken.all, taken.by.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_is_counted_as_it_comes_whatever_it_says_of_its_length() {
        let receiving = Arc::new(Receiving::with(10, 100));
        let came = read(Body::from("0123456789"), receiving.place(at(1)), 10).await.unwrap();
        let more = read(Body::from("0"), receiving.place(at(1)), 10).await;
        assert!(matches!(more, Err(NotReceived::Full(Full::OfSender))), "{more:?}");
        assert!(read(Body::from("0"), receiving.place(at(2)), 10).await.is_ok());
        drop(came);
        let long = read(Body::from("0123456789a"), receiving.place(at(1)), 10).await;
        assert!(matches!(long, Err(NotReceived::TooLarge)), "{long:?}");
        assert!(read(Body::empty(), receiving.place(at(1)), 10).await.is_ok());
    }
}
