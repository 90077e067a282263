//! `throttlekit reset`.

use throttlekit_proto::v1::ResetRequest;
use throttlekit_proto::v1::admin_client::AdminClient;

use crate::connect::ConnectArgs;

/// Options of `throttlekit reset`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the policy
    policy: String,
    /// The key, and further keys of the call if the policy limits by several
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = args.server.connect().await?;
        let mut admin = AdminClient::with_interceptor(channel, args.server.auth()?);
        let (key, keys) = args
            .keys
            .split_first()
            .map_or_else(Default::default, |(key, others)| (key.clone(), others.to_vec()));
        let request = ResetRequest { policy: args.policy.clone(), key, keys };
        admin.reset(request).await.map_err(|status| args.server.refused(&status))?;
        println!("reset: the next request counts as the first");
        Ok(())
    })
}
