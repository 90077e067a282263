//! `throttlekit leases`.

use std::time::Duration;

use anyhow::Result;
use throttlekit_proto::v1;

use super::{run, taken};
use crate::connect::ConnectArgs;

/// Options of `throttlekit leases`.
#[derive(clap::Args)]
pub(crate) struct LeasesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List leases that clients hold at this server
    List(FilterArgs),
    /// End leases, as if the heartbeats of their clients had stopped
    Release(FilterArgs),
}

#[derive(clap::Args)]
struct FilterArgs {
    /// Name of the policy
    policy: String,
    /// Only leases of this key
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    of_key: String,
    /// Only leases of this principal
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    principal: String,
    /// Only the lease with this handle
    #[arg(long, value_name = "HANDLE", default_value = "", hide_default_value = true)]
    handle: String,
    #[command(flatten)]
    server: ConnectArgs,
}

impl FilterArgs {
    fn filter(&self) -> Option<v1::LeaseFilter> {
        let (policy, key) = (self.policy.clone(), self.of_key.clone());
        Some(v1::LeaseFilter { policy, key, principal: self.principal.clone(), handle: self.handle.clone() })
    }
}

pub(crate) fn leases(args: &LeasesArgs) -> Result<()> {
    match &args.action {
        Action::List(args) => list(args),
        Action::Release(args) => release(args),
    }
}

fn list(args: &FilterArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let mut page_token = String::new();
        loop {
            let request = v1::ListLeasesRequest { filter: args.filter(), page_size: 0, page_token };
            let page = taken(&args.server, client.list_leases(request).await)?;
            for held in page.leases {
                let keys = held.keys.join(" ");
                let time = Duration::from_millis(u64::try_from(held.held_for_ms).unwrap_or(0));
                let (keys, principal) = (keys.escape_debug(), held.principal.escape_debug());
                println!("{} {keys}: held by {principal} for {time:?}", held.handle);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(());
            }
        }
    })
}

fn release(args: &FilterArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let mut released = 0;
        loop {
            let request = v1::ReleaseLeasesRequest { filter: args.filter() };
            let part = taken(&args.server, client.release_leases(request).await)?;
            released += part.released;
            if !part.more || part.released == 0 {
                println!("released: {released}");
                return Ok(());
            }
        }
    })
}
