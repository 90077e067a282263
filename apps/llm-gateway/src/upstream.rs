//! The client of the upstream model.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};
use axum::body::Bytes;
use axum::http::{HeaderMap, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::api::Api;

/// Maximum wait for the head of a stream.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// Maximum wait for the head of a response that does not stream: it comes when all is generated.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Certificates that an `https://` upstream is verified with.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those of the operating system.
    #[default]
    System,
    /// Only these, in PEM.
    Only(Vec<u8>),
}

impl Trust {
    /// Reads a PEM file. Default: the certificates of the operating system.
    pub fn from_file(file: Option<&Path>) -> Result<Self> {
        let read = |file: &Path| {
            fs::read(file).map(Self::Only).with_context(|| format!("cannot read {}", file.display()))
        };
        file.map_or(Ok(Self::System), read)
    }

    /// Creates the TLS configuration for an upstream. Without TLS it needs no certificate, and a host may have none.
    fn config(&self, url: &str) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match self {
            _ if !url.starts_with("https://") => builder.with_root_certificates(RootCertStore::empty()),
            Self::System => builder
                .with_native_roots()
                .context("cannot load the CA certificates of the operating system")?,
            Self::Only(pem) => builder.with_root_certificates(roots(pem).context("invalid CA file")?),
        };
        Ok(builder.with_no_client_auth())
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    ensure!(!roots.is_empty(), "the file has no certificate");
    Ok(roots)
}

/// A client with a connection pool.
pub struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    key: Option<String>,
}

/// The upstream did not respond.
#[derive(Debug)]
pub enum Unanswered {
    /// It was not reached: it did no work.
    Unreached(Error),
    /// It was reached, and may have done work.
    Broken(Error),
}

impl Upstream {
    /// Creates a client for `https://host` or `http://host:port`, with the gateway's own key if the upstream needs one.
    pub fn new(url: &str, key: Option<&str>, trust: &Trust) -> Result<Self> {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_WITHIN));
        http.set_nodelay(true);
        http.enforce_http(false);
        let tls = trust.config(url)?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: url.trim_end_matches('/').to_owned(),
            key: key.map(str::to_owned),
        })
    }

    /// Sends a request. Dropping the body of the response before its end closes the connection, which stops the model.
    pub async fn send(
        &self,
        api: &Api,
        headers: &HeaderMap,
        body: String,
        streams: bool,
    ) -> Result<Response<Incoming>, Unanswered> {
        let request = self.request(api, headers, body).map_err(Unanswered::Unreached)?;
        let within = if streams { HEAD_WITHIN } else { WHOLE_WITHIN };
        match timeout(within, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => {
                Err(Unanswered::Unreached(Error::from(error).context("cannot connect")))
            }
            Ok(Err(error)) => Err(Unanswered::Broken(Error::from(error).context("connection lost"))),
            Err(_) => Err(Unanswered::Broken(anyhow!("no response within {} s", within.as_secs()))),
        }
    }

    fn request(&self, api: &Api, headers: &HeaderMap, body: String) -> Result<Request<Full<Bytes>>> {
        let url = format!("{}{}", self.url, api.path);
        let mut request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            let (name, value) = api.family.authorization(key);
            request = request.header(name, value);
        }
        for name in api.family.forwarded() {
            request =
                headers.get_all(name).iter().fold(request, |request, value| request.header(name, value));
        }
        Ok(request.body(Full::from(body))?)
    }
}
