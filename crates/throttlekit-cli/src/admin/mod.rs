//! Commands for operators: actions on a running server.

mod leases;
mod limits;
mod overrides;
mod plans;

use anyhow::Result;
use throttlekit_proto::v1;
use throttlekit_proto::v1::admin_client::AdminClient;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Response, Status};

pub(crate) use leases::{LeasesArgs, leases};
pub(crate) use overrides::{OverrideArgs, overrides};
pub(crate) use plans::{PlanArgs, plans};

use crate::connect::{AuthInterceptor, ConnectArgs};

/// Maximum size of a response: a page, or a policy file.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

type Client = AdminClient<InterceptedService<Channel, AuthInterceptor>>;

/// Runs a command over a connection to the server.
fn run<F: Future<Output = Result<()>>>(
    server: &ConnectArgs,
    command: impl FnOnce(Client) -> F,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = AdminClient::with_interceptor(server.connect().await?, server.auth()?);
        command(client.max_decoding_message_size(RESPONSE_BYTES_MAX)).await
    })
}

/// Returns the content of a response, or an error with the next step.
fn taken<T>(server: &ConnectArgs, response: Result<Response<T>, Status>) -> Result<T> {
    response.map(Response::into_inner).map_err(|status| server.refused(&status))
}

/// Policy and keys of a call.
#[derive(clap::Args)]
pub(crate) struct CallArgs {
    /// Name of the policy
    policy: String,
    /// The key, and further keys of the call if the policy limits by several
    #[arg(required = true)]
    keys: Vec<String>,
}

impl CallArgs {
    fn split(&self) -> (String, String, Vec<String>) {
        let (key, others) = self
            .keys
            .split_first()
            .map_or_else(Default::default, |(key, others)| (key.clone(), others.to_vec()));
        (self.policy.clone(), key, others)
    }
}

/// Options of `throttlekit reset`.
#[derive(clap::Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn reset(args: &ResetArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let (policy, key, keys) = args.call.split();
        taken(&args.server, client.reset(v1::ResetRequest { policy, key, keys }).await)?;
        println!("reset: the next request counts as the first");
        Ok(())
    })
}

/// Options of `throttlekit grant`.
#[derive(clap::Args)]
pub(crate) struct GrantArgs {
    #[command(flatten)]
    call: CallArgs,
    /// Grant this many units; what exceeds the current use has no effect
    #[arg(long, value_name = "UNITS")]
    units: i64,
    /// Set the idempotency key: a grant that is sent again within a day counts once
    #[arg(long, value_name = "ID")]
    id: String,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn grant(args: &GrantArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let (policy, key, keys) = args.call.split();
        let request = v1::GrantRequest { policy, key, keys, units: args.units, id: args.id.clone() };
        let v1::GrantResponse { repeated, remaining, limit } =
            taken(&args.server, client.grant(request).await)?;
        let did = if repeated { "granted before, not again" } else { "granted" };
        println!("{did}: {remaining} of {limit} units left");
        Ok(())
    })
}

/// Options of commands without others.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn drain(ServerArgs { server }: &ServerArgs) -> Result<()> {
    run(server, async |mut client| {
        taken(server, client.drain(v1::DrainRequest {}).await)?;
        println!("draining: the server reports not ready, and stops after its lame-duck time");
        Ok(())
    })
}

pub(crate) fn reload(ServerArgs { server }: &ServerArgs) -> Result<()> {
    run(server, async |mut client| {
        let v1::ReloadResponse { config_hash, error } =
            taken(server, client.reload(v1::ReloadRequest {}).await)?;
        anyhow::ensure!(error.is_empty(), "policy file rejected, {config_hash} stays loaded: {error}");
        println!("loaded: policy file {config_hash}");
        Ok(())
    })
}

pub(crate) fn config(ServerArgs { server }: &ServerArgs) -> Result<()> {
    run(server, async |mut client| {
        let v1::GetConfigResponse { json } = taken(server, client.get_config(v1::GetConfigRequest {}).await)?;
        let document: serde_json::Value = serde_json::from_str(&json)?;
        println!("{document:#}");
        Ok(())
    })
}

/// Options of `throttlekit log-filter`.
#[derive(clap::Args)]
pub(crate) struct LogFilterArgs {
    /// The filter: `info`, `debug`, `throttlekit_server=debug,warn` …; none restores the one that the server started
    /// with
    filter: Option<String>,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn log_filter(LogFilterArgs { filter, server }: &LogFilterArgs) -> Result<()> {
    run(server, async |mut client| {
        let request = v1::SetLogFilterRequest { filter: filter.clone().unwrap_or_default() };
        taken(server, client.set_log_filter(request).await)?;
        println!("log filter set until the server ends");
        Ok(())
    })
}
