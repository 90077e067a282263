//! Paces a reqwest client and an async-openai client by the same limits: `cargo run -p outbound-reqwest`.
//!
//! The provider is a local server that allows 600 requests by the minute, and reports them as OpenAI does. The clients are
//! configured with 6,000: they learn the rest.

mod openai;
mod paced;

use std::error::Error;

use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{ChatCompletionRequestUserMessage, CreateChatCompletionRequestArgs};
use axum::routing::post;
use axum::{Json, Router};
use paced::Paced;
use serde_json::{Value, json};
use throttlekit::http::{AdmissionLayer, HeaderStyle, fixed};
use throttlekit::outbound::Outbound;
use throttlekit::{Limiter, Rate};
use tokio::net::TcpListener;

const CALLS: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (api, http) = (start_provider().await?, reqwest::Client::new());
    let outbound =
        Outbound::builder("openai").requests_per_minute(6_000).tokens_per_minute(600_000).build()?;

    let client = reqwest_middleware::ClientBuilder::new(http.clone()).with(Paced(outbound.clone())).build();
    for _ in 0..CALLS {
        let response = client.post(format!("{api}/chat/completions")).body("{}").send().await?;
        response.error_for_status()?.bytes().await?; // settles the tokens from `usage`
    }

    let config = OpenAIConfig::new().with_api_base(&api).with_api_key("key");
    let client = openai::client(config, http, outbound.clone());
    let message = ChatCompletionRequestUserMessage::from("What is a token bucket?");
    let request =
        CreateChatCompletionRequestArgs::default().model("gpt-5").messages([message.into()]).build()?;
    for _ in 0..CALLS {
        client.chat().create(request.clone()).await?;
    }

    let stats = outbound.stats();
    println!("{} calls, {} refused", stats.admitted, stats.refused);
    println!("learned: {} requests by the minute", stats.keys[0].requests_per_minute.unwrap_or_default());
    Ok(())
}

/// Starts the provider. Returns the address of its API.
async fn start_provider() -> Result<String, Box<dyn Error>> {
    let limiter = Limiter::new(Rate::per_minute(600))?;
    let layer = AdmissionLayer::builder(limiter, fixed("account")).headers(HeaderStyle::OpenAi).build()?;
    let app = Router::new().route("/v1/chat/completions", post(chat)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let api = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(api)
}

async fn chat() -> Json<Value> {
    let usage = json!({ "prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10 });
    Json(json!({
        "id": "1", "object": "chat.completion", "created": 0, "model": "gpt-5", "choices": [], "usage": usage
    }))
}
