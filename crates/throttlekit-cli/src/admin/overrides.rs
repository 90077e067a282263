//! `throttlekit override`.

use anyhow::{Result, ensure};
use throttlekit_proto::v1;

use super::limits::{LimitArgs, shown};
use super::{run, taken};
use crate::connect::ConnectArgs;

/// Options of `throttlekit override`.
#[derive(clap::Args)]
pub(crate) struct OverrideArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Set other limits for a key, or for a prefix before a `*`
    Set(SetArgs),
    /// Remove an override
    Remove(RemoveArgs),
    /// List overrides of a policy
    List(ListArgs),
}

#[derive(clap::Args)]
struct SetArgs {
    /// Name of the policy
    policy: String,
    /// The key, or a prefix before a `*`
    #[arg(value_name = "KEY")]
    pattern: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// Assign the key to this plan, instead of setting limits
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rate", "burst", "budget", "unlimited"])]
    plan: Option<String>,
    /// Let it expire after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    for_s: u32,
    #[command(flatten)]
    server: ConnectArgs,
}

#[derive(clap::Args)]
struct RemoveArgs {
    /// Name of the policy
    policy: String,
    /// The key or prefix, as it was set
    #[arg(value_name = "KEY")]
    pattern: String,
    #[command(flatten)]
    server: ConnectArgs,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Name of the policy
    policy: String,
    /// Prefix of the keys
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn overrides(args: &OverrideArgs) -> Result<()> {
    match &args.action {
        Action::Set(args) => set(args),
        Action::Remove(args) => remove(args),
        Action::List(args) => list(args),
    }
}

fn set(args: &SetArgs) -> Result<()> {
    let limits = args.limits.changes();
    ensure!(
        limits.is_some() || args.plan.is_some(),
        "no limits: set --rate, --budget, --unlimited or --plan"
    );
    run(&args.server, async |mut client| {
        let one = v1::Override {
            policy: args.policy.clone(),
            key: args.pattern.clone(),
            limits: limits.clone(),
            plan: args.plan.clone().unwrap_or_default(),
            ..v1::Override::default()
        };
        let request = v1::SetOverrideRequest { r#override: Some(one), for_ms: i64::from(args.for_s) * 1_000 };
        let set = taken(&args.server, client.set_override(request).await)?;
        println!("set: {}", line(&set.r#override.unwrap_or_default()));
        Ok(())
    })
}

fn remove(args: &RemoveArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let request = v1::RemoveOverrideRequest { policy: args.policy.clone(), key: args.pattern.clone() };
        let removed = taken(&args.server, client.remove_override(request).await)?.removed;
        println!("{}", if removed { "removed" } else { "no such override" });
        Ok(())
    })
}

fn list(args: &ListArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let mut page_token = String::new();
        loop {
            let (policy, prefix) = (args.policy.clone(), args.prefix.clone());
            let request = v1::ListOverridesRequest { policy, prefix, page_size: 0, page_token };
            let page = taken(&args.server, client.list_overrides(request).await)?;
            page.overrides.iter().for_each(|one| println!("{}", line(one)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(());
            }
        }
    })
}

/// Describes an override in one line.
fn line(one: &v1::Override) -> String {
    let limits = match &one.limits {
        Some(limits) => shown(limits),
        None => format!("plan {}", one.plan.escape_debug()),
    };
    let expires =
        if one.expires_at > 0 { format!(", expires at {} ms", one.expires_at) } else { String::new() };
    let problem =
        if one.problem.is_empty() { String::new() } else { format!(", not applied: {}", one.problem) };
    let by = one.set_by.escape_debug();
    format!(
        "{} {}: {limits}{expires}, set by {by}{problem}",
        one.policy.escape_debug(),
        one.key.escape_debug()
    )
}
