//! Encrypted, and by whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit_server::internals::access::Access;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::internals::listen::{ListenOptions, Speaks, Tls, TlsFiles};
use throttlekit_server::policy::AccessSpec;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

use crate::client::{Client, Failure};
use crate::target::Target;

/// Long enough for two handshakes on a busy machine.
const CERTIFICATE_LIVES: Duration = Duration::from_secs(4);

/// An authority, and what it signed.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

struct Signed {
    cert: PathBuf,
    key: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let (folder, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn sign(&self, file: &str, name: SanType) -> Signed {
        self.sign_as(file, name, CertificateParams::new(Vec::new()).unwrap())
    }

    fn sign_until(&self, file: &str, name: SanType, ends: Timestamp) -> Signed {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = (std::time::UNIX_EPOCH + Duration::from_nanos(ends.as_nanos())).into();
        self.sign_as(file, name, params)
    }

    fn sign_as(&self, file: &str, name: SanType, mut params: CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        params.subject_alt_names = vec![name];
        let path = |end: &str| self.folder.path().join(format!("{file}.{end}"));
        let signed = Signed { cert: path("pem"), key: path("key") };
        std::fs::write(&signed.cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }

    fn server(&self) -> Signed {
        self.sign("server", SanType::DnsName("server.test".try_into().unwrap()))
    }

    fn client(&self, uri: &str) -> Signed {
        self.sign("client", SanType::URI(uri.try_into().unwrap()))
    }
}

fn files(server: &Signed, client_ca: Option<PathBuf>) -> TlsFiles {
    TlsFiles { cert: Some(server.cert.clone()), key: Some(server.key.clone()), client_ca }
}

fn options(files: &TlsFiles) -> ListenOptions {
    ListenOptions { tls: Tls::load(files).unwrap(), ..ListenOptions::default() }
}

fn connector(ca: &Path, me: Option<&Signed>, protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match me {
        Some(me) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&me.cert).unwrap()],
                PrivateKeyDer::from_pem_file(&me.key).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn connect(target: &Target, ca: &Path, me: Option<&Signed>) -> Result<Client, Failure> {
    let tcp = TcpStream::connect(target.address).await?;
    let name = ServerName::try_from("server.test").unwrap();
    Client::over(connector(ca, me, b"h2").connect(name, tcp).await?).await
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served() {
    let authority = Authority::new();
    let target = Target::open(options(&files(&authority.server(), None))).await;
    let client = connect(&target, &authority.ca(), None).await.unwrap();
    assert!(client.check("api", "k").await.unwrap().decision.unwrap().allowed);
    assert!(connect(&target, &Authority::new().ca(), None).await.is_err());
}

#[tokio::test]
async fn what_is_not_encrypted_is_not_served() {
    let authority = Authority::new();
    let target = Target::open(options(&files(&authority.server(), None))).await;
    let client = Client::connect(target.address).await;
    let answer = match client {
        Ok(client) => client.check("api", "k").await.map(|_| ()),
        Err(failure) => Err(failure),
    };
    assert!(matches!(answer, Err(Failure::Lost(_))), "{answer:?}");
    assert_eq!(target.stop().await.handshake_failures, 1);
}

#[tokio::test]
async fn without_a_client_certificate_of_the_authority_nobody_connects() {
    let authority = Authority::new();
    let target = Target::open(options(&files(&authority.server(), Some(authority.ca())))).await;
    let stranger = Authority::new();
    let forged = stranger.client("spiffe://mesh/billing");
    for me in [None, Some(&forged)] {
        // In TLS 1.3 the client learns of it with its first request.
        let answer = match connect(&target, &authority.ca(), me).await {
            Ok(client) => client.check("api", "k").await.map(|_| ()),
            Err(failure) => Err(failure),
        };
        assert!(matches!(answer, Err(Failure::Lost(_))), "{answer:?}");
    }
    let known = authority.client("spiffe://mesh/billing");
    let client = connect(&target, &authority.ca(), Some(&known)).await.unwrap();
    assert!(client.check("api", "k").await.is_ok());
    assert_eq!(target.stop().await.handshake_failures, 2);
}

#[tokio::test]
async fn the_name_in_a_client_certificate_says_what_it_may() {
    let authority = Authority::new();
    let spec: AccessSpec = serde_saphyr::from_str(
        "principals: {billing: {certificate: 'spiffe://mesh/billing', allow: [{endpoints: [check], policies: [api]}]}}",
    )
    .unwrap();
    let files = files(&authority.server(), Some(authority.ca()));
    let target = Target::start(options(&files), Access::of(&spec).unwrap()).await;
    let billing = authority.client("spiffe://mesh/billing");
    let client = connect(&target, &authority.ca(), Some(&billing)).await.unwrap();
    assert!(client.check("api", "k").await.is_ok());
    assert_eq!(client.check("chat", "k").await.unwrap_err().code(), Code::PermissionDenied);
    let other = authority.client("spiffe://mesh/other");
    let client = connect(&target, &authority.ca(), Some(&other)).await.unwrap();
    assert_eq!(client.check("api", "k").await.unwrap_err().code(), Code::Unauthenticated);
}

/// One handshake and one request, with what the client remembers of earlier ones.
async fn again(target: &Target, connector: &TlsConnector) -> Result<HandshakeKind, Failure> {
    let tcp = TcpStream::connect(target.address).await?;
    let stream = connector.connect(ServerName::try_from("server.test").unwrap(), tcp).await?;
    let kind = stream.get_ref().1.handshake_kind().unwrap();
    Client::over(stream).await?.check("api", "k").await?;
    Ok(kind)
}

/// A resumed session would bring along the certificate of the first handshake, however old.
#[tokio::test]
async fn an_expired_client_certificate_is_refused_also_by_resumption() {
    let authority = Authority::new();
    let target = Target::open(options(&files(&authority.server(), Some(authority.ca())))).await;
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let ends = WallClock.now() + CERTIFICATE_LIVES;
        let me = authority.sign_until("short", SanType::URI("spiffe://mesh/short".try_into().unwrap()), ends);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority.ca()).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&me.cert).unwrap()];
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&me.key).unwrap())
            .unwrap();
        // The default of rustls: it remembers sessions and tries to resume them.
        config.resumption = rustls::client::Resumption::in_memory_sessions(8);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let mut good = 0;
        while WallClock.now() + Duration::from_secs(1) < ends {
            match again(&target, &connector).await {
                Ok(kind) => assert_eq!(kind, HandshakeKind::Full, "{version:?}"),
                // A machine that stood still for so long saw nothing of the good time.
                Err(failure) => assert!(WallClock.now() >= ends, "{failure:?}"),
            }
            good += 1;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(good >= 2, "the certificate expired before it was tried twice");
        while WallClock.now() < ends + Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..3 {
            assert!(matches!(again(&target, &connector).await, Err(Failure::Lost(_))), "{version:?}");
        }
    }
}

#[tokio::test]
async fn sessions_are_resumed_where_no_client_certificate_is_demanded() {
    let authority = Authority::new();
    let target = Target::open(options(&files(&authority.server(), None))).await;
    let connector = connector(&authority.ca(), None, b"h2");
    assert_eq!(again(&target, &connector).await.unwrap(), HandshakeKind::Full);
    assert_eq!(again(&target, &connector).await.unwrap(), HandshakeKind::Resumed);
}

#[tokio::test]
async fn the_end_of_the_servers_certificate_is_known_and_follows_new_ones() {
    let authority = Authority::new();
    let name = || SanType::DnsName("server.test".try_into().unwrap());
    let first = authority.sign_until("server", name(), Timestamp::from_millis(1_900_000_000_000));
    let tls = Tls::load(&files(&first, None)).unwrap().unwrap();
    assert_eq!(tls.expires(), Some(Timestamp::from_millis(1_900_000_000_000)));
    authority.sign_until("server", name(), Timestamp::from_millis(2_600_000_000_000));
    assert!(tls.reload().unwrap());
    assert_eq!(tls.expires(), Some(Timestamp::from_millis(2_600_000_000_000)));
}

#[test]
fn a_certificate_that_is_a_pipe_or_a_device_is_refused_at_once() {
    let authority = Authority::new();
    let pipe = authority.folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe, "/dev/zero".into()] {
        let error = Tls::load(&TlsFiles { cert: Some(path), ..files(&authority.server(), None) })
            .unwrap_err()
            .to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_taken_over_and_a_bad_one_is_not() {
    let authority = Authority::new();
    let files = files(&authority.server(), None);
    let tls = Tls::load(&files).unwrap().unwrap();
    let target = Target::open(ListenOptions { tls: Some(tls.clone()), ..ListenOptions::default() }).await;
    assert!(!tls.reload().unwrap());
    // Another authority's, in the same files.
    let next = Authority::new();
    let new = next.server();
    std::fs::copy(&new.cert, files.cert.as_ref().unwrap()).unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("do not match"));
    assert!(connect(&target, &authority.ca(), None).await.is_ok());
    std::fs::copy(&new.key, files.key.as_ref().unwrap()).unwrap();
    assert!(tls.reload().unwrap());
    assert!(connect(&target, &authority.ca(), None).await.is_err());
    assert!(connect(&target, &next.ca(), None).await.is_ok());
}

#[tokio::test]
async fn a_look_at_the_files_puts_new_certificates_in_force_at_once() {
    let authority = Authority::new();
    let policies = authority.folder.path().join("policies.yaml");
    std::fs::write(&policies, crate::target::POLICIES).unwrap();
    let files = files(&authority.server(), None);
    let mut options = ServerOptions::new(policies, Backend::memory());
    (options.tls, options.http) = (Tls::load(&files).unwrap(), Some(([127, 0, 0, 1], 0).into()));
    let server = Server::start(options).await.unwrap();
    let next = Authority::new();
    let new = next.server();
    std::fs::copy(&new.cert, files.cert.as_ref().unwrap()).unwrap();
    std::fs::copy(&new.key, files.key.as_ref().unwrap()).unwrap();
    let page = async |ca: &Path| page(server.http().unwrap(), ca, "/healthz").await;
    assert!(page(&authority.ca()).await.is_some() && page(&next.ca()).await.is_none());
    server.look_now().await;
    assert!(page(&authority.ca()).await.is_none() && page(&next.ca()).await.is_some());
    server.stop().await;
}

#[tokio::test]
async fn http_1_is_offered_only_where_it_is_spoken() {
    let authority = Authority::new();
    let files = files(&authority.server(), None);
    for (speaks, is_offered) in [(Speaks::Http2, false), (Speaks::Http, true)] {
        let target = Target::open(ListenOptions { speaks, ..options(&files) }).await;
        let tcp = TcpStream::connect(target.address).await.unwrap();
        let name = ServerName::try_from("server.test").unwrap();
        let stream = connector(&authority.ca(), None, b"http/1.1").connect(name, tcp).await;
        assert_eq!(stream.is_ok(), is_offered, "{speaks:?}");
    }
}

#[tokio::test]
async fn probes_without_a_certificate_reach_metrics_and_health_only_where_that_is_asked_for() {
    let authority = Authority::new();
    let policies = authority.folder.path().join("policies.yaml");
    std::fs::write(&policies, crate::target::POLICIES).unwrap();
    for without in [false, true] {
        let any = Some(([127, 0, 0, 1], 0).into());
        let mut options = ServerOptions::new(policies.clone(), Backend::memory());
        options.tls = Tls::load(&files(&authority.server(), Some(authority.ca()))).unwrap();
        (options.http, options.metrics, options.metrics_without_certificates) = (any, any, without);
        let server = Server::start(options).await.unwrap();
        for path in ["/metrics", "/healthz", "/readyz"] {
            let page = page(server.metrics().unwrap(), &authority.ca(), path).await;
            assert_eq!(page.is_some_and(|page| page.starts_with("HTTP/1.1 200")), without, "{path}");
        }
        assert_eq!(page(server.http().unwrap(), &authority.ca(), "/healthz").await, None);
        server.stop().await;
    }
}

#[tokio::test]
async fn commands_are_encrypted_and_their_caller_is_known_by_its_certificate() {
    let authority = Authority::new();
    let policies = authority.folder.path().join("policies.yaml");
    let access = "access: {principals: {billing: {certificate: 'spiffe://mesh/billing', allow: [{endpoints: [check], \
                  policies: [api]}]}}}";
    std::fs::write(&policies, format!("{}{access}", crate::target::POLICIES)).unwrap();
    let mut options = ServerOptions::new(policies, Backend::memory());
    options.tls = Tls::load(&files(&authority.server(), Some(authority.ca()))).unwrap();
    options.resp = Some(([127, 0, 0, 1], 0).into());
    let server = Server::start(options).await.unwrap();
    let billing = authority.client("spiffe://mesh/billing");
    let tcp = TcpStream::connect(server.resp().unwrap()).await.unwrap();
    let name = ServerName::try_from("server.test").unwrap();
    let connector = connector(&authority.ca(), Some(&billing), b"redis");
    let mut stream = connector.connect(name, tcp).await.unwrap();
    stream.write_all(b"CL.THROTTLE api:k\r\nCL.THROTTLE chat:k\r\nQUIT\r\n").await.unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).await.unwrap();
    assert!(replies.starts_with("*5\r\n:0\r\n"), "{replies}");
    assert!(replies.contains("-NOPERM `billing`") && replies.ends_with("+OK\r\n"), "{replies}");
    server.stop().await;
}

/// TLS takes responses that the socket does not take.
#[tokio::test]
async fn a_client_that_reads_nothing_is_closed() {
    let authority = Authority::new();
    let policies = authority.folder.path().join("policies.yaml");
    std::fs::write(&policies, crate::target::POLICIES).unwrap();
    let any = Some(([127, 0, 0, 1], 0).into());
    let mut options = ServerOptions::new(policies, Backend::memory());
    options.tls = Tls::load(&files(&authority.server(), None)).unwrap();
    (options.http, options.metrics) = (any, any);
    options.limits.stall_max = Duration::from_millis(300);
    let server = Server::start(options).await.unwrap();
    let tcp = TcpStream::connect(server.http().unwrap()).await.unwrap();
    let name = ServerName::try_from("server.test").unwrap();
    let mut stream = connector(&authority.ca(), None, b"http/1.1").connect(name, tcp).await.unwrap();
    let body = r#"{"policy":"api","key":"k"}"#;
    let check = format!(
        "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let flood = check.repeat(20);
    let flooding = async { while stream.write_all(flood.as_bytes()).await.is_ok() {} };
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, flooding).await.expect("closed, though it reads nothing");
    let line = "connections_closed_total{listener=\"http\",reason=\"stalled\"} 1";
    let counted = async {
        let page = async || page(server.metrics().unwrap(), &authority.ca(), "/metrics").await;
        while !page().await.is_some_and(|page| page.contains(line)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience, counted).await.expect("counted as stalled");
    server.stop().await;
}

/// Returns the response to a client without a certificate, if any.
async fn page(address: SocketAddr, ca: &Path, path: &str) -> Option<String> {
    let tcp = TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from("server.test").unwrap();
    let mut stream = connector(ca, None, b"http/1.1").connect(name, tcp).await.ok()?;
    let ask = format!("GET {path} HTTP/1.1\r\nhost: server.test\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[test]
fn half_of_tls_is_an_error_that_names_what_is_missing() {
    let some = || Some(PathBuf::from("/nowhere"));
    let table = [
        (some(), None, None, "--tls-key is missing"),
        (some(), None, some(), "--tls-key is missing"),
        (None, some(), None, "--tls-cert is missing"),
        (None, some(), some(), "--tls-cert is missing"),
        (None, None, some(), "--tls-cert and --tls-key are missing"),
        (some(), some(), None, "/nowhere"),
    ];
    for (cert, key, client_ca, why) in table {
        let error = Tls::load(&TlsFiles { cert, key, client_ca }).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(Tls::load(&TlsFiles::default()).unwrap().is_none());
}
