//! `RateLimit` and `RateLimit-Policy` of the IETF drafts: lists of structured fields, and the dictionary of before.

use std::convert::Infallible;
use std::time::Duration;

use http::HeaderMap;
use sfv::visitor::{EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor, ParameterVisitor};
use sfv::{BareItemFromInput, KeyRef, Parser};

use super::Quota;
use super::value::{self, DELAY_MAX, ResponseClock};

/// Members of a list that are read.
const MEMBERS_MAX: usize = 16;

/// Requests and tokens, each by the member that leaves least.
pub(super) fn read(headers: &HeaderMap, clock: ResponseClock) -> [Option<Quota>; 2] {
    let left = members(headers, "ratelimit");
    let policies = members(headers, "ratelimit-policy");
    if left.is_empty() {
        return [dictionary(headers, &policies, clock), None];
    }
    let tightest = |of_tokens: bool| {
        let quotas = left.iter().map(|one| one.with_policy(&policies));
        let quotas = quotas.filter(|(is_of_tokens, _)| *is_of_tokens == of_tokens).map(|(_, quota)| quota);
        quotas.filter(|quota| quota.remaining.is_some()).min_by_key(|quota| quota.remaining)
    };
    [tightest(false), tightest(true)]
}

/// Reads `limit=100, remaining=50, reset=5`, which drafts up to the seventh had.
fn dictionary(headers: &HeaderMap, policies: &[Member], clock: ResponseClock) -> Option<Quota> {
    let text = value::text(headers, "ratelimit")?;
    let field = |name: &str| {
        let mut pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let quota = Quota {
        limit: field("limit").and_then(value::units),
        remaining: field("remaining").and_then(value::units),
        reset: field("reset").and_then(|text| value::reset(text, clock)),
        period: policies.first().and_then(|policy| seconds(policy.window)),
    };
    quota.remaining.is_some().then_some(quota)
}

/// One member of a list: a name, and numbers.
#[derive(Debug, Default)]
struct Member {
    name: String,
    /// `qu`: the unit of a quota.
    unit: Option<String>,
    /// `q` and `w`, of a policy.
    quota: Option<u64>,
    window: Option<u64>,
    /// `r` and `t`.
    remaining: Option<u64>,
    reset: Option<u64>,
}

impl Member {
    /// Completes it by the policy of the same name. Returns whether it counts tokens.
    fn with_policy(&self, policies: &[Self]) -> (bool, Quota) {
        let policy = policies.iter().find(|policy| policy.name == self.name);
        let unit = policy.and_then(|policy| policy.unit.as_deref()).or(self.unit.as_deref());
        let of_tokens = unit.is_some_and(|unit| unit.contains("token")) || names_tokens(&self.name);
        let quota = Quota {
            limit: policy.and_then(|policy| policy.quota),
            remaining: self.remaining,
            reset: seconds(self.reset),
            period: policy.and_then(|policy| seconds(policy.window)),
        };
        (of_tokens, quota)
    }
}

/// Checks whether a limit of this name counts tokens. Those of this library end with the axis.
fn names_tokens(name: &str) -> bool {
    name.contains("token") || name.ends_with("-cost")
}

fn seconds(number: Option<u64>) -> Option<Duration> {
    number.map(Duration::from_secs).filter(|length| *length <= DELAY_MAX)
}

/// Parses all values of a field as one list. An invalid one is ignored, as RFC 9651 requires.
fn members(headers: &HeaderMap, name: &str) -> Vec<Member> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    let mut members = Members::default();
    match Parser::new(&values.join(&b", "[..])).parse_list_with_visitor(&mut members) {
        Ok(()) => members.0,
        Err(_) => Vec::new(),
    }
}

#[derive(Default)]
struct Members(Vec<Member>);

impl<'de> ListVisitor<'de> for &mut Members {
    type Out = ();
    type Error = Infallible;

    fn entry(&mut self) -> Result<impl EntryVisitor<'de>, Infallible> {
        Ok(Entry(&mut self.0))
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}

struct Entry<'a>(&'a mut Vec<Member>);

impl<'de> EntryVisitor<'de> for Entry<'_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        Ok(Ignored)
    }
}

impl<'de> ItemVisitor<'de> for Entry<'_> {
    type Out = ();
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = ()>, Infallible> {
        let member = match item {
            BareItemFromInput::String(name) => Member { name: name.as_str().to_owned(), ..Member::default() },
            BareItemFromInput::Token(name) => Member { name: name.as_str().to_owned(), ..Member::default() },
            // Policies of before: `100;w=60`.
            other => Member { quota: number(&other), ..Member::default() },
        };
        let is_read = self.0.len() < MEMBERS_MAX;
        if is_read {
            self.0.push(member);
        }
        Ok(Parameters(self.0.last_mut().filter(|_| is_read)))
    }
}

struct Parameters<'a>(Option<&'a mut Member>);

impl<'de> ParameterVisitor<'de> for Parameters<'_> {
    type Out = ();
    type Error = Infallible;

    fn parameter(&mut self, key: &'de KeyRef, value: BareItemFromInput<'de>) -> Result<(), Infallible> {
        let Some(member) = &mut self.0 else { return Ok(()) };
        match key.as_str() {
            "q" => member.quota = number(&value),
            "w" => member.window = number(&value),
            "r" => member.remaining = number(&value),
            "t" => member.reset = number(&value),
            "qu" => {
                if let BareItemFromInput::String(unit) = value {
                    member.unit = Some(unit.as_str().to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn number(item: &BareItemFromInput<'_>) -> Option<u64> {
    if let BareItemFromInput::Integer(number) = item { u64::try_from(i64::from(*number)).ok() } else { None }
}
