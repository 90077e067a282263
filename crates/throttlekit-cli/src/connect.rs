//! The connection of commands to a server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

/// Time limit for establishing a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Address of a server and the credentials for it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    /// Connect to the gRPC listener at this address
    #[arg(long, env = "THROTTLEKIT_TARGET", default_value = "127.0.0.1:50051", value_name = "HOST:PORT")]
    pub(crate) target: String,
    /// Send this secret with every request
    #[arg(long, env = "THROTTLEKIT_SECRET", hide_env_values = true, value_name = "SECRET")]
    secret: Option<String>,
    /// Use TLS, and trust the CA certificates in this file
    #[arg(long, env = "THROTTLEKIT_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Present this client certificate
    #[arg(long, env = "THROTTLEKIT_CERT", requires = "key", requires = "ca", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Use this private key for the client certificate
    #[arg(long, env = "THROTTLEKIT_KEY", requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl ConnectArgs {
    /// Creates the endpoint without connecting.
    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        ensure!(
            !self.target.contains("://"),
            "invalid address `{}`: expected host:port without a scheme; --ca enables TLS",
            self.target
        );
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.target))
            .with_context(|| format!("invalid address `{}`: expected host:port", self.target))?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true);
        let Some(ca) = &self.ca else { return Ok(endpoint) };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        endpoint.tls_config(tls).context("TLS")
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        self.endpoint()?.connect().await.map_err(|error| {
            let error = anyhow::Error::new(error);
            let why = match &format!("{error:#}") {
                said if said.contains("CaUsedAsEndEntity") => {
                    "presents a CA certificate as its server certificate: issue one with \
                     basicConstraints=CA:FALSE"
                }
                said if said.contains("certificate") => "presents a certificate that --ca does not verify",
                _ => "does not respond: check that `throttlekit serve` runs there and --target is correct",
            };
            error.context(format!("{} {why}", self.target))
        })
    }

    /// Converts a gRPC error to a message with the cause and the next step.
    pub(crate) fn refused(&self, status: &Status) -> anyhow::Error {
        let next = match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                ": set THROTTLEKIT_SECRET to the secret that it requires"
            }
            Code::Internal | Code::Unknown => {
                ": set --target to the gRPC listener of the server (its --listen); pass --ca if it uses TLS"
            }
            _ => "",
        };
        let (code, message) = (status.code(), status.message().escape_debug());
        anyhow::anyhow!("{}: {code:?}: {message}{next}", self.target)
    }

    /// Creates the interceptor that sends the secret with every request.
    pub(crate) fn auth(&self) -> Result<AuthInterceptor> {
        let bearer = self.secret.as_ref().map(|secret| format!("Bearer {secret}").parse());
        let bearer =
            bearer.transpose().context("invalid secret: it has characters that are not valid in a header")?;
        Ok(AuthInterceptor { bearer })
    }
}

/// An interceptor that sends a secret with every request, if there is one.
#[derive(Clone)]
pub(crate) struct AuthInterceptor {
    bearer: Option<MetadataValue<Ascii>>,
}

impl Interceptor for AuthInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        Ok(request)
    }
}
