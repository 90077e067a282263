//! The HTTP server.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::limits::Limit;
use super::{Account, CLIENT, Served, TOKENS};

/// A running provider. Dropping it stops the server.
pub struct Provider {
    address: SocketAddr,
    inner: Arc<Inner>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Inner {
    account: Account,
    start: Instant,
    state: Mutex<State>,
}

struct State {
    requests: Limit,
    tokens: Limit,
    served: Vec<Served>,
    admitted: u64,
}

impl Provider {
    /// Starts a provider on a free loopback port. Its time starts after this delay.
    pub async fn start(account: Account, delay: Duration) -> io::Result<Self> {
        let limit = |units| Limit::new(account.rule, units, account.left_at_start);
        let (requests, tokens) = (limit(account.requests), limit(account.tokens));
        let state = Mutex::new(State { requests, tokens, served: Vec::new(), admitted: 0 });
        let inner = Arc::new(Inner { account, start: Instant::now() + delay, state });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(listener, inner.clone()));
        Ok(Self { address, inner, accepting })
    }

    /// Returns the address to call.
    pub fn uri(&self) -> String {
        format!("http://{}/v1/chat/completions", self.address)
    }

    /// Returns the calls so far.
    pub fn served(&self) -> Vec<Served> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner).served.clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, inner.clone()));
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let inner = inner.clone();
        async move { Ok::<_, Infallible>(inner.respond(request).await) }
    });
    // A client that disconnects ends its connection only.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Inner {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let number = |headers: &HeaderMap, name| headers.get(name)?.to_str().ok()?.parse().ok();
        let headers = request.headers();
        let (client, tokens) = (number(headers, CLIENT).unwrap_or(0), number(headers, TOKENS).unwrap_or(1));
        let response = self.decide(client as u32, tokens);
        let _ = request.into_body().collect().await;
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            sleep(self.account.latency).await;
        }
        response
    }

    fn decide(&self, client: u32, tokens: u64) -> Response<Full<Bytes>> {
        let account = &self.account;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that calls are served in the order of their times.
        let now = self.start.elapsed();
        let part = account.part_at(now);
        state.requests.update(account.requests * part / 1_000, now);
        state.tokens.update(account.tokens * part / 1_000, now);
        let wait = state.requests.wait(1, now).max(state.tokens.wait(tokens, now));
        let admitted = wait.is_zero();
        if admitted {
            state.requests.charge(1, now);
            state.tokens.charge(tokens, now);
            state.admitted += 1;
        }
        state.served.push(Served { at: now, client, admitted, tokens });
        let fails = account.error_every > 0 && state.admitted.is_multiple_of(account.error_every);
        let (requests, all_tokens) = (state.requests.seen(now), state.tokens.seen(now));
        drop(state);
        let (status, body) = match (admitted, fails) {
            (false, _) => (StatusCode::TOO_MANY_REQUESTS, String::from(r#"{"error":{"type":"rate_limit"}}"#)),
            (true, true) => {
                (StatusCode::INTERNAL_SERVER_ERROR, String::from(r#"{"error":{"type":"internal"}}"#))
            }
            (true, false) => (StatusCode::OK, account.style.body(tokens)),
        };
        let response = Response::builder().status(status).header("content-type", "application/json");
        let response = account.style.report(response, requests, all_tokens, self.clock());
        let response = if admitted { response } else { account.style.delay(response, wait) };
        response.body(Full::from(body)).expect("valid headers")
    }

    /// Returns the time by the provider's clock, in seconds since the epoch.
    #[expect(clippy::disallowed_methods, reason = "the clock of another machine")]
    fn clock(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        now.as_secs() + self.account.clock_ahead
    }
}
