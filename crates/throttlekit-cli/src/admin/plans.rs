//! `throttlekit plan`.

use anyhow::{Context, Result};
use throttlekit_proto::v1;

use super::limits::{LimitArgs, shown};
use super::{run, taken};
use crate::connect::ConnectArgs;

/// Options of `throttlekit plan`.
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Set the limits of a plan, for all keys that are assigned to it
    Set(SetArgs),
    /// Remove a plan that no override names
    Remove(RemoveArgs),
    /// List the plans of a policy
    List(ListArgs),
}

#[derive(clap::Args)]
struct SetArgs {
    /// Name of the policy
    policy: String,
    /// Name of the plan
    name: String,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    server: ConnectArgs,
}

#[derive(clap::Args)]
struct RemoveArgs {
    /// Name of the policy
    policy: String,
    /// Name of the plan
    name: String,
    #[command(flatten)]
    server: ConnectArgs,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Name of the policy
    policy: String,
    #[command(flatten)]
    server: ConnectArgs,
}

pub(crate) fn plans(args: &PlanArgs) -> Result<()> {
    match &args.action {
        Action::Set(args) => set(args),
        Action::Remove(args) => remove(args),
        Action::List(args) => list(args),
    }
}

fn set(args: &SetArgs) -> Result<()> {
    let limits = args.limits.changes().context("no limits: set --rate, --budget or --unlimited")?;
    run(&args.server, async |mut client| {
        let (policy, name) = (args.policy.clone(), args.name.clone());
        let plan = v1::Plan { policy, name, limits: Some(limits.clone()), assigned: 0 };
        taken(&args.server, client.set_plan(v1::SetPlanRequest { plan: Some(plan) }).await)?;
        println!("set: {}", shown(&limits));
        Ok(())
    })
}

fn remove(args: &RemoveArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let request = v1::RemovePlanRequest { policy: args.policy.clone(), name: args.name.clone() };
        let removed = taken(&args.server, client.remove_plan(request).await)?.removed;
        println!("{}", if removed { "removed" } else { "no such plan" });
        Ok(())
    })
}

fn list(args: &ListArgs) -> Result<()> {
    run(&args.server, async |mut client| {
        let request = v1::ListPlansRequest { policy: args.policy.clone() };
        for plan in taken(&args.server, client.list_plans(request).await)?.plans {
            let limits = shown(&plan.limits.unwrap_or_default());
            println!("{}: {limits}, {} keys or prefixes", plan.name.escape_debug(), plan.assigned);
        }
        Ok(())
    })
}
