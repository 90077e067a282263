//! Errors of starting and reloading a server.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use throttlekit::store::StoreError;

use crate::policy::PolicyError;

/// Reason why a server cannot start, or cannot apply a changed file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// A file cannot be read: policies, a secret or a certificate. Correct the path or the permissions.
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The policy file is invalid. Has every error, each with its location and the fix.
    PolicyFile(Vec<PolicyError>),
    /// A policy of a valid file cannot run; states the reason.
    Policy {
        /// Name of the policy.
        name: Box<str>,
        /// The reason.
        reason: Box<str>,
    },
    /// A valid file cannot replace the current one; states the reason.
    Reload(Box<str>),
    /// The access list is invalid, or one of its secrets cannot be used; states where, and the reason.
    Access(Box<str>),
    /// A secret is missing or too short.
    Secret {
        /// The file or the environment variable.
        location: Box<str>,
        /// The reason.
        reason: Box<str>,
    },
    /// The certificates cannot be used; states the reason.
    Tls(Box<str>),
    /// The URL names no store. Use `memory`, `redis://…`, `redis+cluster://…`, `redis+sentinel://…` or `postgres://…`.
    StoreUrl,
    /// An option does not apply to the store. Leave it out.
    StoreOption {
        /// The option.
        option: &'static str,
        /// The stores that it applies to.
        applies_to: &'static str,
    },
    /// The store cannot be used. Check that it runs and that its URL is right.
    Store(StoreError),
    /// An address cannot be listened on. Choose another.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The option of `throttlekit serve` that sets it.
        option: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// A socket that the supervisor passed cannot be used; states the reason. Give it the address of a listener.
    Socket(Box<str>),
    /// Other machines could connect without TLS. Configure TLS, or allow plaintext.
    Plaintext(SocketAddr),
    /// Traces, metrics or logs cannot be set up; states the reason.
    Telemetry(Box<str>),
}

impl ServerError {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.into(), error }
    }

    pub(crate) fn policy(name: &str, reason: impl fmt::Display) -> Self {
        Self::Policy { name: name.into(), reason: detail(reason) }
    }

    pub(crate) fn access(reason: impl fmt::Display) -> Self {
        Self::Access(detail(reason))
    }

    pub(crate) fn secret(location: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::Secret { location: detail(location), reason: detail(reason) }
    }

    pub(crate) fn store_option(option: &'static str, applies_to: &'static str) -> Self {
        Self::StoreOption { option, applies_to }
    }

    pub(crate) fn tls(reason: impl fmt::Display) -> Self {
        Self::Tls(detail(reason))
    }

    pub(crate) fn socket(reason: impl fmt::Display) -> Self {
        Self::Socket(detail(reason))
    }

    pub(crate) fn telemetry(reason: impl fmt::Display) -> Self {
        Self::Telemetry(detail(reason))
    }
}

fn detail(text: impl fmt::Display) -> Box<str> {
    text.to_string().into()
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::PolicyFile(errors) => {
                let mut line_break = "";
                errors.iter().try_for_each(|error| {
                    let separator = std::mem::replace(&mut line_break, "\n");
                    write!(f, "{separator}{error}")
                })
            }
            Self::Policy { name, reason } => write!(f, "policy `{name}`: {reason}"),
            Self::Secret { location, reason } => write!(f, "{location}: {reason}"),
            Self::Reload(reason) | Self::Access(reason) | Self::Tls(reason) | Self::Telemetry(reason) => {
                f.write_str(reason)
            }
            Self::StoreUrl => f.write_str(
                "unknown store URL: expected `memory`, `redis://host:port`, `redis+cluster://host:port,host:port`, \
                 `redis+sentinel://host:port,host:port/service` or `postgres://host/db`; for TLS `rediss` in place \
                 of `redis`",
            ),
            Self::StoreOption { option, applies_to } => {
                write!(f, "{option} applies only to {applies_to}: leave it out")
            }
            Self::Store(error) => {
                write!(f, "{error}: check that the store runs and that its URL is correct")
            }
            Self::Listen { address, option, error } => {
                write!(f, "{address}: {error}: choose another with {option}")
            }
            Self::Socket(reason) => write!(
                f,
                "a passed socket cannot be used: {reason}: set --listen, --http, --resp or --metrics to its address"
            ),
            Self::Plaintext(address) => write!(
                f,
                "{address} is reachable from other machines, and TLS is not configured: pass --tls-cert and \
                 --tls-key, or \
                 --allow-plaintext if a proxy in front encrypts and authorizes connections"
            ),
        }
    }
}

impl Error for ServerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File { error, .. } | Self::Listen { error, .. } => Some(error),
            Self::PolicyFile(errors) => errors.first().map(|error| error as _),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_has_its_cause() {
        let error = ServerError::file(Path::new("/p.yaml"), io::ErrorKind::NotFound.into());
        assert_eq!(error.to_string(), "/p.yaml: entity not found");
        assert!(error.source().is_some());
    }

    #[test]
    fn an_invalid_file_shows_every_error() {
        let errors = crate::policy::load("version: 1\npolicies: {a: {rat: 1}, b: {}}\n").unwrap_err();
        let (shown, count) = (ServerError::PolicyFile(errors.clone()).to_string(), errors.len());
        let each: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown, each.join("\n"), "{count} errors");
    }
}
