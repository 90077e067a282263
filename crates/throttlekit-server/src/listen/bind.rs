//! The addresses that may be listened on without TLS.

use std::net::SocketAddr;

use crate::server_error::ServerError;

/// Checks whether an address may be listened on. Without TLS only loopback is allowed, unless `--allow-plaintext` is
/// set; then the warning is to be shown.
pub fn judge_bind(
    address: SocketAddr,
    has_tls: bool,
    allow_plaintext: bool,
) -> Result<Option<String>, ServerError> {
    if has_tls || address.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    if !allow_plaintext {
        return Err(ServerError::Plaintext(address));
    }
    Ok(Some(format!(
        "listening on {address} WITHOUT TLS: anyone on the network path can read keys and tokens and change \
         responses"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_clear_only_this_machine_is_served() {
        let judge = |address: &str, tls, allowed| {
            judge_bind(address.parse().unwrap(), tls, allowed).map_err(|error| error.to_string())
        };
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(judge(local, false, false), Ok(None), "{local}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            assert!(judge(open, false, false).unwrap_err().contains("--allow-plaintext"), "{open}");
            assert!(judge(open, false, true).unwrap().unwrap().contains("WITHOUT TLS"), "{open}");
            assert_eq!(judge(open, true, false), Ok(None), "{open}");
        }
    }
}
