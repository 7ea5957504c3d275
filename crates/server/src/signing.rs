//! Signatures of what is POSTed to others, so that they know who sent it.

use hmac::{Hmac, KeyInit as _, Mac as _};
use rejoin_core::Timestamp;
use sha2::Sha256;

/// The header with the signature.
pub(crate) const SIGNATURE: &str = "rejoin-signature";

/// `t=<unix>,v1=<hex>`: the HMAC-SHA256 of `<unix>.<body>` under the secret.
pub(crate) fn signature(secret: &[u8], body: &[u8], at: Timestamp) -> String {
    let seconds = at.as_secs();
    let mac = Hmac::<Sha256>::new_from_slice(secret).map(|mac| {
        mac.chain_update(format!("{seconds}.")).chain_update(body).finalize().into_bytes()
    });
    debug_assert!(mac.is_ok(), "HMAC takes keys of any length");
    let hex: String = mac.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_body_are_signed_together() {
        let at = Timestamp::from_millis(1_700_000_000_999);
        let signed = signature(b"secret", b"{}", at);
        let expected = "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163";
        assert_eq!(signed, format!("t=1700000000,v1={expected}"));
        assert_ne!(signature(b"secret", b"{ }", at), signed);
        assert_ne!(signature(b"other", b"{}", at), signed);
        assert_ne!(signature(b"secret", b"{}", at + std::time::Duration::from_secs(1)), signed);
    }
}
