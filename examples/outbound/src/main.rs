//! Calls a provider as fast as it allows, and not faster: `cargo run -p outbound`.
//!
//! The provider is a local server that allows 600 requests by the minute, and reports them as OpenAI does. The client is
//! configured with 6,000: it learns the rest.

use std::error::Error;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use throttlekit::http::{AdmissionLayer, HeaderStyle, fixed};
use throttlekit::outbound::OutboundLayer;
use throttlekit::{Limiter, Rate};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};

const CALLS: u32 = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = start_provider().await?;
    let layer = OutboundLayer::per_minute(6_000).tokens_per_minute(600_000).build()?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let client = ServiceBuilder::new().layer(layer.clone()).service(client);

    let mut answered = 0;
    for _ in 0..CALLS {
        let response = client.clone().oneshot(Request::post(&uri).body(Body::from("{}"))?).await?;
        answered += u32::from(response.status().is_success());
        response.into_body().collect().await?; // settles the tokens from `usage`
    }

    let stats = layer.outbound().stats();
    println!("{answered} of {CALLS} calls answered, {} refused", stats.refused);
    println!("learned: {} requests by the minute", stats.keys[0].requests_per_minute.unwrap_or_default());
    Ok(())
}

/// Starts the provider. Returns its address.
async fn start_provider() -> Result<String, Box<dyn Error>> {
    let limiter = Limiter::new(Rate::per_minute(600))?;
    let layer = AdmissionLayer::builder(limiter, fixed("account")).headers(HeaderStyle::OpenAi).build()?;
    let chat = async || r#"{"usage":{"prompt_tokens":4,"completion_tokens":6,"total_tokens":10}}"#;
    let app = Router::new().route("/v1/chat/completions", post(chat)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(uri)
}
