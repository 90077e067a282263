//! `throttlekit schema`.

use std::io::{self, ErrorKind, Write};

use throttlekit_server::internals::api::http::document;
use throttlekit_server::policy;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the OpenAPI document of the HTTP API instead
    #[arg(long)]
    openapi: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let schema = if args.openapi { document() } else { policy::schema() };
    match writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&schema)?) {
        // A reader such as `head` has what it wants.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
