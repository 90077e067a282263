//! An upstream with TLS.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use llm_gateway::api::CHAT;
use llm_gateway::upstream::Trust;
use llm_gateway_load::process::{Http, Process, Scratch};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::common::local::{Local, json};
use crate::common::{self, Limits, Model};

const MODEL: Model = Model { length: 50, chunk: 4, delay_ms: 0 };
const LIMITS: Limits = Limits { rpm: 1_000, tpm: 100_000, concurrency: 8 };

/// A mock model with a self-signed certificate: its URL, and the certificate in PEM.
async fn model(name: &str) -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, routes) = (acceptor.clone(), TowerToHyperService::new(MODEL.routes()));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let _ = Builder::new().serve_connection(TokioIo::new(stream), routes).await;
            });
        }
    });
    (format!("https://localhost:{port}"), cert.pem())
}

fn request() -> Value {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    json!({ "model": "gpt-4o", "messages": messages, "max_tokens": 20 })
}

#[tokio::test]
async fn an_upstream_with_a_trusted_certificate_is_reached() {
    let (url, pem) = model("localhost").await;
    let config = common::config(&url, &LIMITS);
    let gateway = Local::trusting(&config, &common::redis(), &Trust::Only(pem.into_bytes())).await;
    let response = gateway.post(&CHAT, &request()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(json(response).await["usage"]["completion_tokens"], 20);
}

#[tokio::test]
async fn an_upstream_with_an_unknown_certificate_or_name_is_not_reached_and_costs_nothing() {
    let (url, _) = model("localhost").await;
    let (other_url, other_pem) = model("other.example").await;
    let (_, unrelated) = model("localhost").await;
    for (url, pem) in [(url, unrelated), (other_url, other_pem)] {
        let config = common::config(&url, &LIMITS);
        let gateway = Local::trusting(&config, &common::redis(), &Trust::Only(pem.into_bytes())).await;
        let response = gateway.post(&CHAT, &request()).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(json(response).await["error"]["code"], "upstream_unreachable");
        gateway.settles_at(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ca_file_is_an_option_of_the_command() {
    let (url, pem) = model("localhost").await;
    let ca = Scratch::new("gateway-ca", &pem).unwrap();
    let config = Scratch::new("gateway-tls", &common::config(&url, &LIMITS).to_string()).unwrap();
    let flags = [
        ("config", config.path()),
        ("upstream-ca", ca.path()),
        ("redis", common::redis()),
        ("policy", format!("gateway-tls-{:x}", RandomState::new().hash_one(1))),
        ("store-deadline-ms", "5000".to_owned()),
    ];
    let gateway = Process::start(Path::new(env!("CARGO_BIN_EXE_llm-gateway")), "serve", &flags).unwrap();
    let answer = Http::default().post(&gateway.url, &CHAT, "sk-test", request().to_string()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}
