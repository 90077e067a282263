//! Limits in place of those of a policy, as options.

use std::str::FromStr;

use throttlekit_proto::v1;

/// Limits to set. What is omitted stays as in the policy file.
#[derive(clap::Args)]
pub(super) struct LimitArgs {
    /// Set the limit of a rate: UNITS for the first one, else NAME=UNITS; repeat it for several
    #[arg(long, value_name = "[NAME=]UNITS", conflicts_with = "unlimited")]
    rate: Vec<NamedUnits>,
    /// Set the burst of the first rate
    #[arg(long, value_name = "UNITS", default_value_t = 0, hide_default_value = true)]
    burst: i64,
    /// Set a token budget: TOKENS for the first one, else NAME=TOKENS; repeat it for several
    #[arg(long, value_name = "[NAME=]TOKENS", conflicts_with = "unlimited")]
    budget: Vec<NamedUnits>,
    /// Always allow, without deciding
    #[arg(long)]
    unlimited: bool,
}

/// The units of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedUnits {
    name: String,
    units: i64,
}

impl FromStr for NamedUnits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, units) = text.split_once('=').unwrap_or(("", text));
        let units =
            units.parse().map_err(|_| "expected UNITS or NAME=UNITS, such as daily=5000".to_owned())?;
        Ok(Self { name: name.to_owned(), units })
    }
}

impl LimitArgs {
    /// Returns the limits; `None` if no option sets one.
    pub(super) fn changes(&self) -> Option<v1::LimitChanges> {
        let rate = |NamedUnits { name, units }: &NamedUnits| {
            let burst = if name.is_empty() { self.burst } else { 0 };
            v1::RateChange { name: name.clone(), limit: *units, burst, per_ms: 0 }
        };
        let budget =
            |NamedUnits { name, units }: &NamedUnits| v1::BudgetChange { name: name.clone(), budget: *units };
        let rates: Vec<_> = self.rate.iter().map(rate).collect();
        let budgets: Vec<_> = self.budget.iter().map(budget).collect();
        let sets = !rates.is_empty() || !budgets.is_empty() || self.unlimited;
        sets.then_some(v1::LimitChanges { rates, budgets, unlimited: self.unlimited })
    }
}

/// Describes limits in one line.
pub(super) fn shown(limits: &v1::LimitChanges) -> String {
    if limits.unlimited {
        return "unlimited".into();
    }
    let rate = |rate: &v1::RateChange| {
        let name = if rate.name.is_empty() { "rate" } else { &rate.name };
        let burst = if rate.burst > 0 { format!(" burst {}", rate.burst) } else { String::new() };
        let per = if rate.per_ms > 0 { format!(" per {} ms", rate.per_ms) } else { String::new() };
        format!("{name} {}{per}{burst}", rate.limit)
    };
    let budget = |v1::BudgetChange { name, budget }: &v1::BudgetChange| {
        let name = if name.is_empty() { "budget" } else { name };
        format!("{name} {budget}")
    };
    let all = limits.rates.iter().map(rate).chain(limits.budgets.iter().map(budget));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_name_or_is_the_first() {
        let of = |name: &str, units| Ok(NamedUnits { name: name.into(), units });
        assert_eq!(["500".parse(), "daily=7".parse()], [of("", 500), of("daily", 7)]);
        assert!("daily=".parse::<NamedUnits>().is_err() && "daily".parse::<NamedUnits>().is_err());
    }

    #[test]
    fn the_burst_belongs_to_the_first_rate_and_no_option_is_no_limit() {
        let none = LimitArgs { rate: Vec::new(), burst: 0, budget: Vec::new(), unlimited: false };
        assert_eq!(none.changes(), None);
        let rate = vec!["daily=7".parse().unwrap(), "5".parse().unwrap()];
        let budget = vec!["3".parse().unwrap(), "team=8".parse().unwrap()];
        let some = LimitArgs { rate, burst: 9, budget, unlimited: false }.changes().unwrap();
        assert_eq!(shown(&some), "daily 7, rate 5 burst 9, budget 3, team 8");
        let all = LimitArgs { unlimited: true, ..none }.changes().unwrap();
        assert_eq!(shown(&all), "unlimited");
    }
}
