//! The only source of randomness: the operating system's.

use std::sync::Arc;

use rejoin_store::Unavailable;

/// Random bytes, or the sentence that says why there are none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Unavailable> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => {
            let sentence = format!("the operating system gives no random bytes: {error}");
            Err(Unavailable(Arc::from(sentence)))
        }
    }
}
