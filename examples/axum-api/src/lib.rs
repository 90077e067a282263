//! The API itself: who counts under which plan, and what a request costs.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Extension, Router};
use throttlekit::http::{
    AdmissionLayer, HeaderStyle, KeyExtractor, Plan, client_ip, preflight_or_health, secret_header,
};
use throttlekit::{Decision, Limiter, Rate};

const API_KEY: &str = "x-api-key";

/// How much each plan gives.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// To each address without a known API key.
    pub anonymous: Rate,
    /// To each free API key.
    pub free: Rate,
    /// To each paid API key.
    pub pro: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            anonymous: Rate::per_minute(30).burst(5),
            free: Rate::per_minute(60),
            pro: Rate::per_second(100),
        }
    }
}

/// The routes behind the limits.
pub fn app(rates: Rates, pepper: &[u8]) -> Result<Router, Box<dyn Error>> {
    let limits = limits(rates, pepper)?;
    Ok(Router::new()
        .route("/v1/hello", get(hello))
        .route("/v1/report", get(async || "a long report"))
        .route("/healthz", get(async || "ok"))
        .layer(limits)) // a CORS layer goes after this one, so that a 429 has its headers too
}

fn limits(rates: Rates, pepper: &[u8]) -> Result<AdmissionLayer, Box<dyn Error>> {
    let anonymous = Plan::new("anonymous", Limiter::new(rates.anonymous)?)?;
    let free = Plan::new("free", Limiter::new(rates.free)?)?;
    let pro = Plan::new("pro", Limiter::new(rates.pro)?)?;

    let address = client_ip().peer_from(peer); // behind a proxy: .behind_proxies(1)
    let api_key = secret_header(API_KEY).pepper(pepper);

    // An unknown API key counts by address: otherwise each invented key would be a fresh budget.
    let choose = move |request: &Parts| match tier(request) {
        Some(Tier::Pro) => Ok((pro.clone(), api_key.extract(request)?)),
        Some(Tier::Free) => Ok((free.clone(), api_key.extract(request)?)),
        None => Ok((anonymous.clone(), address.extract(request)?)),
    };
    let layer = AdmissionLayer::by_plan(choose);
    Ok(layer.cost(cost).exempt(preflight_or_health).headers(HeaderStyle::Both).build()?)
}

enum Tier {
    Free,
    Pro,
}

/// Stands for a look into the customers' table.
fn tier(request: &Parts) -> Option<Tier> {
    match request.headers.get(API_KEY)?.as_bytes() {
        b"demo-free" => Some(Tier::Free),
        b"demo-pro" => Some(Tier::Pro),
        _ => None,
    }
}

fn cost(request: &Parts) -> u64 {
    if request.uri.path() == "/v1/report" { 20 } else { 1 }
}

/// Where axum keeps the peer's address.
fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
}

/// A handler may look at the decision that let it run.
async fn hello(Extension(decision): Extension<Decision>) -> String {
    format!("hello, {} of {} left\n", decision.remaining, decision.limit)
}
