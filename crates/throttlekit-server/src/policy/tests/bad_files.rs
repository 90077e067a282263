//! Error messages verbatim: the cause, the location and the fix.

use super::{api, refused, warned};

#[test]
fn the_caret_stands_under_what_is_wrong() {
    let errors = crate::policy::load(&api("rate:\n  limit: 5\n  per: 1m\n  burts: 3")).unwrap_err();
    let expected = "policies.api.rate: unknown key `burts`; did you mean `burst`? Known keys: name, algorithm, limit, per, \
                    burst, buckets, early_retry, utc_offset_minutes, week_starts, month_starts, time_zone, anchor, by, lease
 at line 7, column 7
 7 |       burts: 3
   |       ^";
    assert_eq!(errors[0].to_string(), expected);
}

#[test]
fn a_leased_rate_goes_by_the_key_of_the_limits_beside_it() {
    let leased = "rate: {algorithm: fixed_window, limit: 1000, per: 1h, lease: {}}\n";
    let beside = |by: &str| api(&format!("{leased}cost: {{budget: 100, per: 1h{by}}}"));
    assert!(crate::policy::load(&beside("")).is_ok());
    let errors = crate::policy::load(&beside(", by: 1")).unwrap_err();
    assert_eq!((errors[0].path.as_str(), errors.len()), ("policies.api.rate[0].lease", 1));
}

#[test]
fn files_of_the_wrong_form_are_refused_with_the_place_and_a_remedy() {
    let table = [
        ("", "the file is empty: start with `version: 1`"),
        ("# nothing\n", "the file is empty: start with `version: 1`"),
        ("version: 2", "1:10 version: unsupported version 2: write `version: 1`"),
        ("policies: {}", "1:1 missing key `version`: add it"),
        ("version: 1\npolicies: [", "2:11 invalid YAML: unclosed bracket '['"),
        ("version: 1\nversion: 1\n", "2:1 duplicate key `version`: keep one of them"),
        ("version: 1\n---\nversion: 1\n", "2:1 more than one YAML document: keep one"),
        (
            "version: 1\npolicies: &all {a: *all}\n",
            "2:20 the alias is part of the value that it stands for: write it out",
        ),
        (
            "version: 1\npolicies: *all\n",
            "2:11 no anchor `&all` is above the alias `*all`: define it first, or quote it if it is text",
        ),
        ("version: !!int 1\n", "1:16 tags (`!…`) are not supported: remove it"),
        ("version: '1'\n", "1:10 version: expected an integer, found the quoted text \"1\""),
        ("version: one\n", "1:10 version: expected an integer, found `one`"),
        (
            "version: 1\npolices: {}\n",
            "2:1 unknown key `polices`; did you mean `policies`? Known keys: version, defaults, policies, envoy, access",
        ),
        ("version: 1\npolicies: 3\n", "2:11 policies: expected a mapping, found `3`"),
        ("version: 1\n[a]: 3\n", "2:1 a key must be text, not a mapping or a list"),
        (
            "- version: 1\n",
            "1:1 expected a mapping with version, defaults, policies, envoy, access, found a list",
        ),
        ("version: 1\n\tpolicies: {}\n", "1:10 invalid YAML: while scanning a plain scalar, found a tab"),
        (
            "{\"version\": 1, \"policies\": {\"api\": {\"rate\": {\"limit\": 5, \"per\": \"1q\"}}}}",
            "1:65 policies.api.rate.per: invalid duration `1q`: expected an integer and a unit (ms, s, m, h, d), such as `1m`",
        ),
    ];
    for (text, says) in table {
        assert_eq!(refused(text), says, "{text}");
    }
}

#[test]
fn policies_that_make_no_sense_are_refused_with_the_place_and_a_remedy() {
    let table = [
        (
            "rate: {limit: 5, per: 1m, burts: 3}",
            "4:31 policies.api.rate: unknown key `burts`; did you mean `burst`? Known keys: name, algorithm, limit, per, burst, buckets, early_retry, utc_offset_minutes, week_starts, month_starts, time_zone, anchor, by, lease",
        ),
        ("rate: {limit: 5}", "4:11 policies.api.rate: missing key `per`: add it"),
        ("rate: {limit: -5, per: 1s}", "4:19 policies.api.rate.limit: expected an integer, found `-5`"),
        ("rate: {limit: 5.5, per: 1s}", "4:19 policies.api.rate.limit: expected an integer, found `5.5`"),
        ("rate: 5", "4:11 policies.api.rate: expected a mapping, or a list of mappings, found `5`"),
        (
            "rate: [5]",
            "4:12 policies.api.rate[0]: expected a mapping with name, algorithm, limit, per, burst, buckets, early_retry, utc_offset_minutes, week_starts, month_starts, time_zone, anchor, by, lease, found `5`",
        ),
        (
            "rate:\n  - {limit: 5, per: 1s}\n  - {limit: 5, per: mnth}",
            "6:25 policies.api.rate[1].per: invalid duration `mnth`: expected an integer and a unit (ms, s, m, h, d), such as `1m`; did you mean `month`?",
        ),
        ("rate: {limit: 5, per: minute}", "4:27 policies.api.rate.per: invalid period `minute`: write `1m`"),
        (
            "rate: {limit: 5, per: 60}",
            "4:27 policies.api.rate.per: invalid duration `60`: missing unit, such as `60s` (ms, s, m, h, d)",
        ),
        (
            "rate: {limit: 5, per: 1s, algorithm: token_buket}",
            "4:42 policies.api.rate.algorithm: unknown value `token_buket`; did you mean `token_bucket`? Expected one of: gcra, token_bucket, fixed_window, sliding_window, sliding_log, quota",
        ),
        (
            "rate: {limit: 5, per: 1s, by: 300}",
            "4:35 policies.api.rate.by: expected an integer from 0 to 255, found `300`",
        ),
        (
            "rate: {limit: 5, per: 1s, by: 8}",
            "4:35 policies.api.rate[0].by: invalid key index: a call has at most 8 keys, so `by` is 0 to 7",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: local",
            "5:16 policies.api.on_outage: `local` needs nodes: write `{local: {nodes: …}}`",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: {local: {nodes: 0}}",
            "5:32 policies.api.on_outage.local.nodes: expected an integer of at least 1, found `0`",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: {local: {node: 3}}",
            "5:25 policies.api.on_outage.local: unknown key `node`; did you mean `nodes`? Known keys: nodes",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: {open: {}}",
            "5:17 policies.api.on_outage: `open` takes no value: write `open` alone",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: opne",
            "5:16 policies.api.on_outage: unknown value `opne`; did you mean `open`? Expected one of: closed, open, local",
        ),
        (
            "rate: {limit: 5, per: 1s}\nshadow: yes",
            "5:13 policies.api.shadow: expected `true` or `false`, found `yes`",
        ),
        (
            "rate: {limit: 0, per: 1s}",
            "4:19 policies.api.rate[0].limit: 0 allows nothing: expected at least 1",
        ),
        (
            "rate: {limit: 9007199254740992, per: 1s}",
            "4:19 policies.api.rate[0].limit: invalid limit, burst or capacity 9007199254740992: expected 1 to 9007199254740991",
        ),
        (
            "rate: {limit: 5, per: 1s, burst: 0}",
            "4:38 policies.api.rate[0].burst: 0 allows nothing: expected at least 1",
        ),
        (
            "rate: {limit: 5, per: 1s, burst: 9, algorithm: fixed_window}",
            "4:38 policies.api.rate[0].burst: a window has no burst: remove it, or use gcra or token_bucket",
        ),
        (
            "rate: {limit: 5, per: 1s, buckets: 9}",
            "4:40 policies.api.rate[0].buckets: only a sliding_window has buckets: remove it",
        ),
        (
            "rate: {limit: 5, per: 1s, buckets: 1001, algorithm: sliding_window}",
            "4:40 policies.api.rate[0].buckets: invalid number of buckets 1001: expected 1 to 1000 in a sliding window, each at least 1 ns",
        ),
        (
            "rate: {limit: 10001, per: 1s, algorithm: sliding_log}",
            "4:19 policies.api.rate[0].limit: sliding log too long: 10001 entries per key, at most 10000; use a sliding window",
        ),
        (
            "rate: {limit: 5, per: 1s, algorithm: quota}",
            "4:27 policies.api.rate[0].per: a quota counts per `day`, `week` or `month`: for 1s use fixed_window",
        ),
        (
            "rate: {limit: 5, per: month}",
            "4:27 policies.api.rate[0].per: only a quota uses calendar periods: set `algorithm: quota`, or write `1d`, `7d`, `30d`",
        ),
        (
            "rate: {limit: 5, per: 40000d}",
            "4:27 policies.api.rate[0].per: invalid period or window 3456000000s: expected 1 ns to 100 years",
        ),
        (
            "rate: {limit: 5, per: 40000d, algorithm: fixed_window}",
            "4:27 policies.api.rate[0].per: invalid period or window 3456000000s: expected 1 ns to 100 years",
        ),
        (
            "rate: {limit: 5, per: month, algorithm: quota, utc_offset_minutes: 900}",
            "4:72 policies.api.rate[0].utc_offset_minutes: invalid UTC offset of 900 minutes: expected -840 to 840",
        ),
        (
            "rate: {limit: 5, per: month, algorithm: quota, utc_offset_minutes: -2147483648}",
            "4:72 policies.api.rate[0].utc_offset_minutes: invalid UTC offset of -2147483648 minutes: expected -840 to 840",
        ),
        (
            "rate: {limit: 5, per: day, algorithm: quota, time_zone: Europe/Atlantis}",
            "4:61 policies.api.rate[0].time_zone: unknown time zone `Europe/Atlantis`: expected a name of the IANA database, such as Europe/Berlin",
        ),
        (
            "rate: {limit: 5, per: day, algorithm: quota, time_zone: Europe/Berlin, utc_offset_minutes: 60}",
            "4:96 policies.api.rate[0].utc_offset_minutes: a time zone has its own offsets: remove this, or `time_zone`",
        ),
        (
            "rate: {limit: 5, per: 1d, algorithm: fixed_window, time_zone: Europe/Berlin}",
            "4:67 policies.api.rate[0].time_zone: applies only to a quota: remove it",
        ),
        (
            "rate: {limit: 5, per: day, algorithm: quota, month_starts: 15}",
            "4:64 policies.api.rate[0].month_starts: applies only to a quota per `month`: remove it",
        ),
        (
            "rate: {limit: 5, per: month, algorithm: quota, month_starts: 32}",
            "4:66 policies.api.rate[0].month_starts: invalid day of the month 32: expected 1 to 31",
        ),
        (
            "cost: {budget: 5, per: month, month_starts: 0}",
            "4:49 policies.api.cost.month_starts: invalid day of the month 0: expected 1 to 31",
        ),
        (
            "cost: {budget: 5, per: 30d, time_zone: Europe/Berlin}",
            "4:44 policies.api.cost.time_zone: applies only to `day`, `week` and `month`: remove it",
        ),
        (
            "rate: [{limit: 5, per: 1s}, {limit: 50, per: 1m}]",
            "4:33 policies.api.rate[1].name: only the first rate may have no name: add a `name` to this one",
        ),
        (
            "rate: [{limit: 5, per: 1s, name: a}, {limit: 50, per: 1m, name: a}]",
            "4:69 policies.api.rate[1].name: duplicate rate name `a`: give each rate its own `name`",
        ),
        (
            "rate: [{limit: 5, per: 1s, name: a, lease: {}}, {limit: 50, per: 1m, name: b, lease: {}}]",
            "4:83 policies.api.rate[1].lease: only one rate of a policy can be leased: remove this lease",
        ),
        (
            "rate: {limit: 5, per: 1s, lease: {}}\ncost: {budget: 5, per: 1m}",
            "4:31 policies.api.rate[0].lease: a leased smooth rate refunds nothing, so no limit may deny after it: use fixed_window or quota, or remove the lease, the cost or the fair budget",
        ),
        (
            "rate: {limit: 5, per: 1s, algorithm: sliding_log, lease: {}}",
            "4:55 policies.api.rate[0].lease: a sliding window cannot be leased: set `mode: cached_deny`, or use another algorithm",
        ),
        (
            "rate: {limit: 5, per: 1ms, algorithm: fixed_window, lease: {}}",
            "4:57 policies.api.rate[0].lease: units leased for 1ms expire before they can be spent: use a longer hold or window, or a finer clock",
        ),
        (
            "rate: {limit: 5, per: 1s}\nfleet: {share: 0, lease_max: 0}\ncost: {budget: 5, per: 1m}",
            "5:5 policies.api.fleet: clients lease units of a rate only: move cost, concurrency and fair to another policy\n5:34 policies.api.fleet.lease_max: nothing could be reserved: expected at least 1\n5:20 policies.api.fleet.share: invalid share 0: write 1 for all units, 4 for a quarter",
        ),
        (
            "rate: {limit: 5, per: 1s, algorithm: sliding_window}\nfleet: {}",
            "5:5 policies.api.fleet: a sliding window cannot be leased: use gcra, token_bucket, fixed_window or quota",
        ),
        (
            "cost: {budget: 0, per: month}",
            "4:20 policies.api.cost.budget: a budget of 0 allows nothing: expected at least 1",
        ),
        (
            "cost: {budget: 4503599627370497, per: month}",
            "4:20 policies.api.cost.budget: invalid token budget 4503599627370497: expected 1 to 4503599627370496",
        ),
        (
            "concurrency: {limit: 5, adaptive: {min: 6, max: 4}}",
            "4:29 policies.api.concurrency.adaptive: the initial limit 5 is not between min 6 and max 4",
        ),
        (
            "concurrency: {limit: 0, lease_for: 2d}",
            "4:26 policies.api.concurrency.limit: invalid limit 0: expected 1 to 100000\n4:40 policies.api.concurrency.lease_for: invalid duration 2d: expected 10ms to 1d",
        ),
        (
            "concurrency: {limit: 5, scope: key, lease_for: 12h}",
            "4:52 policies.api.concurrency.lease_for: invalid duration 12h: expected at most 11h for slots counted on the store",
        ),
        (
            "concurrency: {limit: 5, scope: key, adaptive: {min: 1, max: 10}}",
            "4:41 policies.api.concurrency.adaptive: slots counted on the store cannot be adaptive: use scope instance, instance_key or fleet",
        ),
        (
            "fair: {limit: 5, per: 1s, weights: {acme: 0}, tenants_max: 0}",
            "4:47 policies.api.fair.weights.acme: a key of weight 0 would never be allowed: expected at least 1\n4:64 policies.api.fair.tenants_max: invalid number 0: expected 1 to 8388608",
        ),
        (
            "fair: {limit: 5, per: 1s, weights: {acme: -1}}",
            "4:47 policies.api.fair.weights.acme: expected an integer, found `-1`",
        ),
        (
            "rate: {limit: 5, per: 1s}\nprice: {rate: -1, cost: .nan}",
            "5:29 policies.api.price.cost: expected a number, found `.nan`",
        ),
        (
            "rate: {limit: 5, per: 1s}\nprice: {rate: -1}",
            "5:19 policies.api.price.rate: invalid price -1: expected a number of at least 0",
        ),
        (
            "rate: {limit: 5, per: 1s}\nlearn: {max: 0}",
            "5:5 policies.api.learn: applies only to a token budget: add `cost`, or remove it\n5:18 policies.api.learn.max: invalid number 0: expected 1 to 16777216",
        ),
        (
            "description: nothing else",
            "3:3 policies.api: the policy has no limit: add rate, cost, concurrency or fair, or set `disabled: true` or `deny: true`",
        ),
        (
            "rate: {limit: 5, per: 1s}\noverrides: {\"\": {unlimited: true, rate: {limit: 0, per: 1s}}}",
            "5:17 policies.api.overrides.\"\": an override needs a key, or a prefix that ends in `*`\n5:17 policies.api.overrides.\"\": `unlimited` and limits contradict each other: keep one\n5:53 policies.api.overrides.\"\".rate[0].limit: 0 allows nothing: expected at least 1",
        ),
        ("rate: {limit: 010, per: 1s}", "4:19 policies.api.rate.limit: expected an integer, found `010`"),
        (
            "rate: {name: cost, limit: 10, per: 1s}\ncost: {budget: 5, per: 1m}",
            "4:18 policies.api.rate[0].name: the name `cost` is reserved for the policy's cost: choose another name",
        ),
    ];
    for (lines, says) in table {
        assert_eq!(refused(&api(lines)), says, "{lines}");
    }
}

#[test]
fn what_works_and_is_hardly_meant_is_warned_about() {
    let table = [
        (
            "rate: {limit: 5, per: 1s}\noverrides: {a*b: {}, \"*\": {unlimited: true}}",
            "warning: policies.api.overrides.*: the override matches every key: change the policy instead\nwarning: policies.api.overrides.a*b: only a `*` at the end is a wildcard: others are matched literally\nwarning: policies.api.overrides.a*b: the override has no effect: add rate, cost, `unlimited: true` or `deny: true`",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: {local: {nodes: 1}}",
            "warning: policies.api.on_outage: with one node, each server has the whole limit: several servers together allow a multiple of it",
        ),
        (
            "rate: {limit: 5, per: 1s}\non_outage: {local: {nodes: 6}}",
            "warning: policies.api.rate[0]: divided by 6 nodes, each share is less than one unit: while the store is unavailable, nothing is allowed",
        ),
        (
            "rate: {limit: 5, per: 1s}\nprice: {}",
            "warning: policies.api.price: every price is 0, so no call is denied by it: remove `price`",
        ),
        (
            "disabled: true\nshadow: true",
            "warning: policies.api.shadow: the policy is disabled, so shadow mode has no effect",
        ),
        (
            "rate: {limit: 5, per: 1s, lease: {mode: cached_deny, batch: 9}}",
            "warning: policies.api.rate[0].lease.batch: a batch never exceeds the limit of 5 units\nwarning: policies.api.rate[0].lease: cached_deny fetches no batches: `batch` and `hold` have no effect",
        ),
        (
            "rate: {limit: 5, per: 1s, algorithm: fixed_window, lease: {hold: 9s}}",
            "warning: policies.api.rate[0].lease.hold: units of a window expire with it: `hold` has no effect",
        ),
    ];
    for (lines, says) in table {
        assert_eq!(warned(&api(lines)), says, "{lines}");
    }
}

#[test]
fn rules_for_descriptors_lead_to_policies_that_exist() {
    let text = "version: 1
policies:
  api: {rate: {limit: 1, per: 1s}}
  \"a b\": {rate: {limit: 0, per: 1s}}
  budget: {cost: {budget: 1, per: 1s}}
  slots: {concurrency: {limit: 1}, rate: {limit: 1, per: 1s, by: 1}}
envoy:
  - domain: d
    rules:
      - {entries: [{key: a}], policy: apo}
      - {entries: [{key: a}]}
      - {entries: [], unlimited: true, policy: api}
      - {entries: [{key: b, shared: true}], policy: slots}
      - {entries: [{key: c, by: 8}, {key: d, value: exact, by: 1}], policy: budget}
  - domain: d
";
    let says = r#"4:3 policies."a b": the name of a policy must not contain spaces or invisible characters: `a b`
4:25 policies."a b".rate[0].limit: 0 allows nothing: expected at least 1
10:39 envoy[0].rules[0].policy: unknown policy `apo`; did you mean `api`?
11:9 envoy[0].rules[1]: the rule has no policy: set `policy` or `unlimited: true`
11:9 envoy[0].rules[1]: another rule matches the same descriptors: keep one of them
12:10 envoy[0].rules[2].entries: a rule has 1 to 16 entries, found 0
12:48 envoy[0].rules[2].policy: `unlimited` and a policy contradict each other: keep one
13:37 envoy[0].rules[3].entries[0].shared: only the values of a prefix, such as `abc*`, can be counted together
13:53 envoy[0].rules[3].policy: this policy holds slots, which Envoy never releases: use one without concurrency
13:53 envoy[0].rules[3].policy: this policy counts by key 1 of a call, which no entry sets: add `by: 1` to one
14:33 envoy[0].rules[4].entries[0].by: invalid key index: a call has 8 keys, counted from 0
14:64 envoy[0].rules[4].entries[1].by: its value is not counted separately, so it is not part of a key: remove `by`
15:13 envoy[1].domain: duplicate domain `d`: merge its rules"#;
    assert_eq!(refused(text), says);
}
