//! Names in client certificates, as the file writes them.

/// Converts the name of a certificate to the form that is compared: `dns:host` in lower case, a URI, or the beginning
/// of a SPIFFE ID up to a `/`, followed by `*`.
pub(crate) fn judge_certificate(name: &str) -> Result<String, String> {
    if let Some(host) = name.strip_prefix("dns:") {
        return Ok(format!("dns:{}", host.to_ascii_lowercase()));
    }
    match name.split_once('*') {
        None if name.contains("://") => Ok(name.into()),
        Some((beginning, "")) if is_spiffe_folder(beginning) => Ok(name.into()),
        Some(_) => Err(format!(
            "certificate `{}`: a `*` is allowed at the end only, after a `/` that follows the trust domain, \
             such as \
             `spiffe://mesh.example/*`",
            name.escape_debug()
        )),
        None => Err(format!(
            "certificate `{}` is neither `dns:host` nor a URI such as `spiffe://mesh/name`",
            name.escape_debug()
        )),
    }
}

/// Checks whether it is a trust domain and perhaps a path, up to a `/`.
fn is_spiffe_folder(text: &str) -> bool {
    let path = text.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'));
    path.is_some_and(|(domain, path)| !domain.is_empty() && (path.is_empty() || path.ends_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_at_the_end_behind_a_trust_domain() {
        for good in ["spiffe://mesh/*", "spiffe://mesh.example/ns/*", "spiffe://mesh/x", "https://a/b"] {
            assert_eq!(judge_certificate(good).as_deref(), Ok(good));
        }
        for bad in [
            "spiffe://*",
            "spiffe:///*",
            "spiffe://mesh*",
            "spiffe://mesh/ns*",
            "spiffe://mesh/*/x",
            "https://a/*",
        ] {
            assert!(judge_certificate(bad).unwrap_err().contains("at the end only"), "{bad}");
        }
        assert!(judge_certificate("cn:x").unwrap_err().contains("neither"));
    }
}
