//! The builder of a client.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use throttlekit::BuildError;
use throttlekit::store::{Background, StoreClientOptions};
use tokio::runtime::Handle;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::Client;
use crate::client::Server;
use crate::token::Token;

/// A call within a data center takes a millisecond; a quarter of a second is what a request can wait for its limits.
const DEADLINE: Duration = Duration::from_millis(250);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const LEASE_FOR: Duration = Duration::from_secs(2);
const CONNECTIONS_MAX: usize = 64;

/// Configures a [`Client`].
pub struct ClientBuilder {
    uris: Vec<String>,
    connections: usize,
    connect_timeout: Duration,
    background: Background,
    line: StoreClientOptions,
    tls: Option<ClientTlsConfig>,
    token: Option<Secret>,
    lease_for: Duration,
    sessions: bool,
}

enum Secret {
    Given(String),
    File(PathBuf),
    Env(String),
}

impl ClientBuilder {
    pub(crate) fn new(uri: String) -> Self {
        Self {
            uris: vec![uri],
            connections: 1,
            connect_timeout: CONNECT_TIMEOUT,
            background: Background::default(),
            line: StoreClientOptions { deadline: DEADLINE, ..StoreClientOptions::default() },
            tls: None,
            token: None,
            lease_for: LEASE_FOR,
            sessions: true,
        }
    }

    /// Adds a server that shares its store with the first. One is used at a time, chosen at random; if it does not
    /// respond, the next. A check, query or reservation for which there is no connection was not sent, and the next server
    /// decides it at once. Leases are renewed and released at the server that granted them.
    pub fn endpoint(mut self, uri: impl Into<String>) -> Self {
        self.uris.push(uri.into());
        self
    }

    /// Sets the number of connections to each server, used in turn. Default: 1.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, CONNECTIONS_MAX);
        self
    }

    /// Sets the timeout of a call, connecting included. Default: 250 ms.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.line.deadline = deadline;
        self
    }

    /// Sets the timeout for connecting, which continues after a call has timed out. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the maximum number of concurrent calls to each server; further calls are rejected immediately. Default:
    /// 10,000.
    pub fn in_flight_max(mut self, calls: usize) -> Self {
        self.line.in_flight_max = calls;
        self
    }

    /// Sets the number of consecutive outages that open the circuit breaker (default: 5) and the interval of probes
    /// while it is open (default: about 100 ms). An open circuit breaker rejects calls immediately.
    pub fn breaker(mut self, opens_after: u32, probe_every: Duration) -> Self {
        (self.line.opens_after, self.line.probe_every) = (opens_after, probe_every);
        self
    }

    /// Trusts servers whose certificate chains to one of these, in PEM. Required for `https`.
    pub fn trust(mut self, ca_pem: impl AsRef<[u8]>) -> Self {
        let tls = self.tls.take().unwrap_or_default();
        self.tls = Some(tls.ca_certificate(Certificate::from_pem(ca_pem)));
        self
    }

    /// Presents this certificate to the server, in PEM.
    pub fn identity(mut self, certificate_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Self {
        let tls = self.tls.take().unwrap_or_default();
        self.tls = Some(tls.identity(Identity::from_pem(certificate_pem, key_pem)));
        self
    }

    /// Sets the expected name in the server's certificate. Default: the host of the address.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        let tls = self.tls.take().unwrap_or_default();
        self.tls = Some(tls.domain_name(name));
        self
    }

    /// Sends this bearer token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret::Given(token.into()));
        self
    }

    /// Sends the bearer token in this file. If the server rejects it, the file is read again.
    pub fn token_file(mut self, path: impl AsRef<Path>) -> Self {
        self.token = Some(Secret::File(path.as_ref().to_owned()));
        self
    }

    /// Sends the bearer token in this environment variable.
    pub fn token_env(mut self, name: impl Into<String>) -> Self {
        self.token = Some(Secret::Env(name.into()));
        self
    }

    /// Sets how long a server that does not report it holds a slot without a heartbeat, as configured in its policies'
    /// `lease_for`. Permits fence themselves after this time. Default: 2 s.
    pub fn lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Sets whether checks and debits share one stream per connection where the server offers it (`Session`), instead of
    /// one stream for each call. Default: true.
    pub fn sessions(mut self, sessions: bool) -> Self {
        self.sessions = sessions;
        self
    }

    /// Runs connections, calls and all background work of the client on your runtime, which must be driven for as long
    /// as the client is used. Default: a driver thread of the process.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.background = self.background.on(runtime);
        self
    }

    /// Builds the client. It connects with the first call.
    pub fn build(self) -> Result<Client, BuildError> {
        let token = self.token.as_ref().map(Secret::read).transpose();
        let token = token.map_err(|reason| BuildError::InvalidToken(reason.into()))?;
        let servers = self.uris.iter().map(|uri| self.server(uri)).collect::<Result<Vec<_>, _>>()?;
        let background = self.background.with_deadline(self.line.deadline);
        Ok(Client::of(servers, (token, self.sessions), self.lease_for, background))
    }

    fn server(&self, uri: &str) -> Result<Server, BuildError> {
        let mut endpoint = Endpoint::from_shared(uri.to_owned())
            .map_err(|error| invalid(uri, causes(&error)))?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEP_ALIVE))
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        match (endpoint.uri().scheme_str(), &self.tls) {
            (Some("https"), Some(tls)) => {
                endpoint = endpoint.tls_config(tls.clone()).map_err(|error| invalid(uri, causes(&error)))?;
            }
            (Some("https"), None) => return Err(invalid(uri, "set its certificate authority with `trust`")),
            // Incomplete TLS settings must not disable TLS.
            (_, Some(_)) => return Err(invalid(uri, "TLS is configured: use `https://`")),
            (_, None) => {}
        }
        Ok(Server::new(endpoint, self.connections, self.line, &self.background))
    }
}

fn invalid(uri: &str, reason: impl Into<Box<str>>) -> BuildError {
    BuildError::InvalidEndpoint { endpoint: uri.into(), reason: reason.into() }
}

/// Returns an error and its causes in one line.
fn causes(error: &(dyn Error + 'static)) -> String {
    let each = std::iter::successors(Some(error), |&error| error.source());
    each.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Secret {
    fn read(&self) -> Result<Token, String> {
        match self {
            Self::Given(token) => Token::given(token),
            Self::File(path) => Token::from_file(path),
            Self::Env(name) => {
                let token = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
                Token::given(&token)
            }
        }
    }
}

throttlekit::debug_fields!([] ClientBuilder, |it| uris = it.uris);
