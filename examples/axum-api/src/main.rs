//! An API with plans: by API key for customers, by address for everyone else.
//!
//! ```sh
//! cargo run -p axum-api
//! curl -i localhost:3000/v1/hello                             # anonymous: 5 at once, then 30 a minute
//! curl -i localhost:3000/v1/hello -H 'x-api-key: demo-free'   # free: 60 a minute
//! curl -i localhost:3000/v1/hello -H 'x-api-key: demo-pro'    # pro: 100 a second
//! curl -i localhost:3000/v1/report -H 'x-api-key: demo-free'  # costs 20
//! curl -i localhost:3000/healthz                              # never counted
//! for i in $(seq 6); do curl -si localhost:3000/v1/hello; done  # the last answer is a 429 that says why
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum_api::{Rates, app};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Nodes that share a store need the same pepper; this one counts alone, so any will do.
    let pepper = std::env::var("KEY_PEPPER").unwrap_or_else(|_| "only for this demo".into());
    let app = app(Rates::default(), pepper.as_bytes())?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
