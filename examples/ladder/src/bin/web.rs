//! Limits an axum service by the caller's API key, in one line.

use std::error::Error;

use axum::{Router, body::Body, http::Request, routing::get};
use throttlekit::http::{AdmissionLayer, header};
use tower::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(AdmissionLayer::per_minute(2, header("x-api-key"))?);

    // Instead of `axum::serve`, so that the example ends.
    for _ in 0..3 {
        let request = Request::get("/").header("x-api-key", "alice").body(Body::empty())?;
        let response = app.clone().oneshot(request).await?;
        println!("{}", response.status());
    }
    Ok(())
}
