//! A gateway for language models, its mock model, and a load that compares ways to meter.
//!
//! ```sh
//! llm-gateway mock                              # a model that knows no answers, on port 9001
//! llm-gateway serve --config examples/llm-gateway/gateway.json   # the gateway before it, on port 8080
//! llm-gateway load                              # both, three gateways, sixty-four streams, three meters: a table
//! ```

use anyhow::{Result, bail};
use llm_gateway::args::Args;
use llm_gateway::{load, serve};

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let args = Args::read(words)?;
    match command.as_str() {
        "mock" => serve::mock(args).await,
        "serve" => serve::gateway(args).await,
        "load" => load::run(load::Plan::read(args)?).await,
        _ => bail!("llm-gateway mock | serve --config FILE | load"),
    }
}
