//! The arguments of `CL.THROTTLE`.

use super::parser::Command;
use crate::engine::PolicyCall;

const USAGE: &str = "expected policy:key [quantity], or policy:key max_burst count period [quantity]";

/// Checks whether this is the name of the command: `CL.THROTTLE` of redis-cell, or `THROTTLE` of throttlecrab.
pub(super) fn is_throttle(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"CL.THROTTLE") || name.eq_ignore_ascii_case(b"THROTTLE")
}

/// Converts a command to a call. The burst, the count and the period must be integers and are otherwise ignored: limits
/// are in the policy file, where clients cannot change them.
pub(super) fn call<'a>(command: &Command<'a>) -> Result<PolicyCall<'a>, String> {
    let args = command.args();
    let (limits, quantity) = match command.count() {
        2 | 3 => (&[][..], args.get(2)),
        5 | 6 => (&args[2..5], args.get(5)),
        count => return Err(format!("wrong number of arguments: got {}, {USAGE}", count.saturating_sub(1))),
    };
    for (name, value) in ["max_burst", "count", "period"].into_iter().zip(limits) {
        number::<i64>(value).ok_or_else(|| format!("invalid {name}: expected an integer"))?;
    }
    let cost = match quantity {
        None => 1,
        Some(quantity) => number(quantity)
            .filter(|cost| *cost > 0)
            .ok_or("invalid quantity: expected an integer of at least 1")?,
    };
    let (policy, key) = named(args[1])?;
    Ok(PolicyCall { policy, key, others: &[], cost })
}

/// Splits an argument into the name of a policy and a key, at the first colon.
fn named(arg: &[u8]) -> Result<(&str, &[u8]), String> {
    let colon = arg.iter().position(|byte| *byte == b':');
    let (policy, key) = colon
        .map(|colon| (&arg[..colon], &arg[colon + 1..]))
        .ok_or("invalid key: expected policy:key, such as api:alice for the policy `api`")?;
    let policy =
        std::str::from_utf8(policy).map_err(|_| "invalid policy: expected UTF-8 before the colon")?;
    Ok((policy, key))
}

fn number<T: std::str::FromStr>(arg: &[u8]) -> Option<T> {
    std::str::from_utf8(arg).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::parser::parse;
    use super::*;

    fn read(line: &str) -> Result<(String, Vec<u8>, u64), String> {
        let line = format!("{line}\r\n");
        let (command, _) = parse(line.as_bytes(), 1_000).unwrap().unwrap();
        call(&command).map(|call| (call.policy.to_owned(), call.key.to_vec(), call.cost))
    }

    #[test]
    fn both_forms_name_a_policy_a_key_and_a_cost() {
        let table = [
            ("CL.THROTTLE api:alice", "api", "alice", 1),
            ("CL.THROTTLE api:alice 7", "api", "alice", 7),
            ("CL.THROTTLE api:alice 15 30 60", "api", "alice", 1),
            ("THROTTLE api:a:b 15 30 60 2", "api", "a:b", 2),
            ("CL.THROTTLE api: 3", "api", "", 3),
        ];
        for (line, policy, key, cost) in table {
            assert_eq!(read(line), Ok((policy.to_owned(), key.as_bytes().to_vec(), cost)), "{line}");
        }
    }

    #[test]
    fn malformed_arguments_are_errors_that_say_what_to_write() {
        let table = [
            ("CL.THROTTLE", "wrong number of arguments: got 0, expected policy:key [quantity], or"),
            ("CL.THROTTLE api:k 1 2", "wrong number of arguments: got 3"),
            ("CL.THROTTLE api:k 1 2 3 4 5", "wrong number of arguments: got 6"),
            ("CL.THROTTLE api:k 1 2 3 4 5 6 7 8 9", "wrong number of arguments: got 10"),
            ("CL.THROTTLE alice", "invalid key: expected policy:key"),
            ("CL.THROTTLE api:k x 2 3", "invalid max_burst"),
            ("CL.THROTTLE api:k 1 2.5 3", "invalid count"),
            ("CL.THROTTLE api:k 1 2 99999999999999999999", "invalid period"),
            ("CL.THROTTLE api:k 0", "invalid quantity"),
            ("CL.THROTTLE api:k -1", "invalid quantity"),
            ("CL.THROTTLE api:k 1 2 3 x", "invalid quantity"),
        ];
        for (line, why) in table {
            assert!(read(line).unwrap_err().starts_with(why), "{line}: {:?}", read(line));
        }
    }
}
