//! Authentication: certificates on both sides, and a token that is rotated.

use std::net::SocketAddr;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use throttlekit::{Limit, SharedLimiter};
use throttlekit_client::{Client, ClientBuilder, RemoteStore};
use throttlekit_proto::v1::fleet_server::{Fleet, FleetServer};
use throttlekit_proto::v1::{Lease, ReserveRequest, ReserveResponse};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::common::runtime;

const TOKEN: &str = "Bearer rotated";

/// Leases ten units to callers with the token.
struct Lender;

#[tonic::async_trait]
impl Fleet for Lender {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        if request.metadata().get("authorization").is_none_or(|told| told != TOKEN) {
            return Err(Status::unauthenticated("another token"));
        }
        let lease = Lease { capacity: 10, lease_for_ms: 60_000, limit: 10, ..Lease::default() };
        Ok(Response::new(ReserveResponse { lease: Some(lease) }))
    }
}

struct Names {
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Names {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { authority: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    fn authority(&self) -> String {
        self.authority.as_ref().pem()
    }

    fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap().pem(), key.serialize_pem())
    }
}

async fn serve(names: &Names) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (certificate, key) = names.certify("localhost");
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(Certificate::from_pem(names.authority()));
    let server = Server::builder().tls_config(tls).unwrap().add_service(FleetServer::new(Lender));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

fn leased(client: &Client) -> SharedLimiter<RemoteStore> {
    let minute = Limit::fixed_window(10, Duration::from_secs(60)).unwrap();
    SharedLimiter::builder(client.store(), "api", minute).leased().build().unwrap()
}

async fn is_lent(client: ClientBuilder) -> Result<bool, String> {
    let client = client.deadline(Duration::from_secs(5)).build().map_err(|error| error.to_string())?;
    let answer = leased(&client).check("k").await.map_err(|error| error.to_string())?;
    Ok(answer.outage.is_none() && answer.allowed)
}

#[test]
fn both_sides_are_authenticated_by_certificates_and_the_caller_by_its_token() {
    runtime().block_on(async {
        let names = Names::new();
        let uri = format!("https://localhost:{}", serve(&names).await.port());
        let (certificate, key) = names.certify("client");
        let base = || Client::builder(uri.clone()).trust(names.authority());
        let known = || base().identity(&certificate, &key);

        assert_eq!(is_lent(known().token("rotated")).await, Ok(true));
        assert!(is_lent(known().token("another")).await.is_err(), "refused, which is no outage");
        assert_eq!(is_lent(base().token("rotated")).await, Ok(false), "nobody without a certificate");
        let stranger = Names::new();
        let believes_another = Client::builder(uri.clone()).trust(stranger.authority());
        assert_eq!(is_lent(believes_another.identity(&certificate, &key).token("rotated")).await, Ok(false));
    });
}

#[test]
fn a_token_file_is_read_again_when_the_token_is_rejected() {
    runtime().block_on(async {
        let names = Names::new();
        let uri = format!("https://localhost:{}", serve(&names).await.port());
        let (certificate, key) = names.certify("client");
        let file = std::env::temp_dir().join(format!("throttlekit-client-token-{}", std::process::id()));
        std::fs::write(&file, "stale\n").unwrap();
        let client = Client::builder(uri).trust(names.authority()).identity(&certificate, &key);
        let client = client.token_file(&file).deadline(Duration::from_secs(5)).build().unwrap();
        let leased = leased(&client);
        std::fs::write(&file, "rotated\n").unwrap();
        assert!(leased.check("k").await.is_err(), "the one that was read first");
        assert!(leased.check("k").await.unwrap().allowed);
        std::fs::remove_file(&file).unwrap();
    });
}
