//! Ways to limit calls: each sends a call until the provider does not refuse it.

use std::num::NonZeroU32;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use throttlekit::outbound::{EstimatedTokens, Outbound, OutboundLayer, OutboundService};
use throttlekit_redis::RedisStore;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt};

use crate::arrivals::Dice;
use crate::client::Client;
use crate::provider::{CLIENT, TOKENS};
use crate::scenario::{Contender, Scenario};

/// Longest first pause of the backoff. It doubles with each refusal.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Bursts of `governor`, as parts of a minute: the same as ours.
const REQUESTS_BURST: u64 = 100;
const TOKENS_BURST: u64 = 20;
/// Estimates exceed the actual tokens by this, in percent.
const ESTIMATE_OVER: u64 = 20;

/// Sends the calls of one process.
pub struct Sender {
    uri: String,
    process: usize,
    limiter: Limiter,
    dice: Mutex<Dice>,
}

enum Limiter {
    None(Http),
    Governor(Http, [DefaultDirectRateLimiter; 2]),
    Ours(Box<OutboundService<Http>>),
}

impl Sender {
    pub async fn new(client: &Client, scenario: &Scenario) -> Result<Self> {
        let (account, http) = (&scenario.account, Http::new());
        let governors = |parts: u64| -> Result<[DefaultDirectRateLimiter; 2]> {
            Ok([
                governor(account.requests / parts, REQUESTS_BURST)?,
                governor(account.tokens / parts, TOKENS_BURST)?,
            ])
        };
        let limiter = match client.contender {
            Contender::Backoff => Limiter::None(http),
            Contender::Governor => Limiter::Governor(http, governors(1)?),
            Contender::Divided => Limiter::Governor(http, governors(client.processes as u64)?),
            Contender::Throttlekit => {
                let store =
                    RedisStore::builder(&client.redis).deadline(Duration::from_secs(5)).connect().await?;
                // A name of its own for each run: Redis outlives it.
                let name = format!("provider-{:x}", client.start.as_micros());
                let outbound = Outbound::shared(store, &name)
                    .requests_per_minute(account.requests)
                    .tokens_per_minute(account.tokens)
                    .build()?;
                Limiter::Ours(Box::new(OutboundLayer::new(outbound).layer(http)))
            }
        };
        let dice = Mutex::new(Dice(client.process as u64 + 7));
        Ok(Self { uri: client.uri.clone(), process: client.process, limiter, dice })
    }

    /// Sends a call until it is not refused. Returns when that one was sent.
    pub async fn send(&self, tokens: u64) -> Result<Instant> {
        for refusals in 0.. {
            let (status, sent) = self.attempt(tokens).await?;
            if status != StatusCode::TOO_MANY_REQUESTS {
                return Ok(sent);
            }
            if !matches!(self.limiter, Limiter::Ours(_)) {
                sleep(self.backoff(refusals)).await;
            }
        }
        unreachable!("the loop has no end")
    }

    async fn attempt(&self, tokens: u64) -> Result<(StatusCode, Instant)> {
        let sent = Sent::default();
        let request = Request::post(&self.uri)
            .header(CLIENT, self.process)
            .header(TOKENS, tokens)
            .extension(sent.clone())
            .extension(EstimatedTokens(tokens + tokens * ESTIMATE_OVER / 100))
            .body(Full::from("{}"))?;
        let status = match &self.limiter {
            Limiter::None(http) => finish(http.clone().oneshot(request).await?).await?,
            Limiter::Governor(http, [requests, all_tokens]) => {
                let units = NonZeroU32::new(tokens as u32).context("tokens")?;
                all_tokens.until_n_ready(units).await?;
                requests.until_ready().await;
                finish(http.clone().oneshot(request).await?).await?
            }
            Limiter::Ours(service) => {
                let response = (**service).clone().oneshot(request).await?;
                let status = response.status();
                response.into_body().collect().await?;
                status
            }
        };
        Ok((status, sent.get()))
    }

    fn backoff(&self, refusals: u32) -> Duration {
        let most = (BACKOFF * (1 << refusals.min(8))).min(BACKOFF_MAX);
        most.mul_f64(self.dice.lock().expect("no panic").unit())
    }
}

async fn finish(response: Response<Incoming>) -> Result<StatusCode> {
    let status = response.status();
    response.into_body().collect().await?;
    Ok(status)
}

/// Creates a limiter of this many units by the minute, of which a part may be used at once.
fn governor(per_minute: u64, burst_part: u64) -> Result<DefaultDirectRateLimiter> {
    let burst = u32::try_from(1 + per_minute / burst_part)?;
    let unit = Duration::from_secs(60).div_f64(per_minute as f64);
    let quota =
        Quota::with_period(unit).context("a rate")?.allow_burst(NonZeroU32::new(burst).context("a burst")?);
    Ok(RateLimiter::direct(quota))
}

/// The HTTP client below all contenders. Records when a request is sent.
#[derive(Clone)]
pub struct Http(HttpClient<HttpConnector, Full<Bytes>>);

impl Http {
    fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(HttpClient::builder(TokioExecutor::new()).build(connector))
    }
}

impl Service<Request<Full<Bytes>>> for Http {
    type Response = Response<Incoming>;
    type Error = hyper_util::client::legacy::Error;
    type Future = hyper_util::client::legacy::ResponseFuture;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        if let Some(sent) = request.extensions().get::<Sent>() {
            sent.set();
        }
        self.0.request(request)
    }
}

/// The time at which a request was sent for the last time.
#[derive(Clone)]
struct Sent(Arc<Mutex<Instant>>);

impl Default for Sent {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Sent {
    fn set(&self) {
        *self.0.lock().expect("no panic") = Instant::now();
    }

    fn get(&self) -> Instant {
        *self.0.lock().expect("no panic")
    }
}
