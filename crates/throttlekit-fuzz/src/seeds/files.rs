//! Policy files, and files to import.

use super::Seeds;

const FILES: [&str; 16] = [
    "version: 1\npolicies:\n  api:\n    rate: {limit: 100, per: 1m, burst: 20}\n",
    "version: 1\ndefaults: {on_outage: {local: {nodes: 3}}}\npolicies:\n  api:\n    rate: [{name: a, limit: 100, per: 1m, burst: 20}, {name: b, algorithm: quota, limit: 9, per: month}]\n    cost: {budget: 1000, per: day, utc_offset_minutes: 60}\n    overrides: {'vip-*': {rate: {limit: 5, per: 1s}}, \"root\": {unlimited: true}}\n",
    "version: 1\npolicies:\n  q:\n    rate: {algorithm: quota, limit: 9, per: week, week_starts: sunday, time_zone: America/New_York}\n    cost: {budget: 1000, per: month, month_starts: 31, time_zone: Europe/Berlin}\n",
    "version: 1\nlimiters:\n  api: {strategy: gcra, limit: 100, period: 1m, burst: 20}\n  b: {strategy: tokenBucket, capacity: 9, refillPerSec: 0.5, twoTier: {mode: leased, batch: 3}}\n  f: {fairEscrow: {limit: 9, windowMs: 1000, weights: {a: 2}}}\n",
    "version: 1\npolicies:\n  slots: {concurrency: {limit: 8, scope: key, lease_for: 5s}, price: {rate: 0.5, cost: 1e-3}}\n",
    "version: 1\npolicies:\n  up:\n    concurrency: {limit: 50, scope: fleet, adaptive: {min: 10, max: 200, algorithm: aimd}}\n    cost: {budget: 1000000, per: 1m}\n",
    "version: 1\npolicies: {s: {fair: {limit: 10000, per: 10s, weights: {acme: 5, umbrella: 3}, tenants_max: 9}, on_outage: open}}\n",
    "version: 1\npolicies: {e: {rate: {algorithm: fixed_window, limit: 1000000, per: 1m, lease: {mode: leased, batch: 7, hold: 2s}}}, l: {rate: {limit: 9, per: 1s}, fleet: {lease_max: 5, share: 2}}}\n",
    "version: 1\npolicies: {w: {rate: {algorithm: sliding_window, limit: 9, per: 1s, buckets: 6, early_retry: true}, shadow: true}, l: {rate: {algorithm: sliding_log, limit: 5, per: 15m}}, x: {disabled: true}}\n",
    "version: 1\npolicies: {a: {rate: {limit: 5, per: 1s}}}\nenvoy:\n  - domain: shop\n    tree: true\n    headers: all\n    rules:\n      - {entries: [{key: remote_address}], policy: a}\n      - {entries: [{key: plan, value: free}, {key: path, value: /s*, shared: true, by: 0}], policy: a}\n      - {entries: [{key: remote_address, value: 10.0.0.1}], unlimited: true}\n",
    "version: 1\npolicies: {chat: {rate: {limit: 9, per: 1m}}}\naccess:\n  anonymous: []\n  principals:\n    billing:\n      token_sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n      certificate: spiffe://mesh/billing\n      allow: [{endpoints: [check, debit], policies: [chat, \"api-*\"], keys: acme/}]\n",
    "{\"version\":1,\"policies\":{\"api\":{\"description\":\"a\\tb\\u00e9\",\"rate\":[{\"limit\":100,\"per\":\"1m\"}]}}}",
    "domain: d\ndescriptors:\n  - key: k\n    value: v\n    rate_limit: {unit: minute, requests_per_unit: 20}\n    descriptors:\n      - {key: l, rate_limit: {unit: hour, requests_per_unit: 5, unit_multiplier: 3, name: n}}\n",
    "domain: mongo\ndescriptors:\n  - {key: db, value: 'u*', share_threshold: true, shadow_mode: true, rate_limit: {requests_per_unit: 9, unit: second}}\n  - {key: db, value: x, rate_limit: {unlimited: true}}\n  - {key: db, quota_mode: true, detailed_metric: true}\n",
    "# only\n---\nversion: 1\npolicies:\n  ? api\n  : rate: {limit: 1, per: 1s}\n    description: |\n      text\n       more\n  b:\n    disabled: true\n    description: >-\n      folded\n      lines\n...\n",
    "\u{feff}version: 1\r\npolicies:\r\n  \"a\\u00e9\": {disabled: true, description: 'it''s'}\r\n",
];

const WORDS: [&str; 91] = [
    "\n",
    "\n  ",
    "\n    ",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "#",
    "&a ",
    "*a",
    "!!str ",
    "|\n",
    ">-\n",
    "'",
    "\"",
    "\\",
    "%",
    "@",
    "`",
    "? ",
    "~",
    "null",
    "true",
    ".nan",
    ".inf",
    "1e3",
    "0x1f",
    "0o7",
    "-1",
    "\t",
    "\r\n",
    "---\n",
    "...\n",
    "\u{feff}",
    "\u{200b}",
    "\u{2028}",
    "\u{85}",
    "\u{0}",
    "é",
    "*",
    "ms",
    "s",
    "1d",
    "day",
    "week",
    "month",
    "version",
    "defaults",
    "policies",
    "envoy",
    "access",
    "rate",
    "cost",
    "concurrency",
    "fair",
    "price",
    "fleet",
    "on_outage",
    "shadow",
    "overrides",
    "unlimited",
    "algorithm",
    "limit",
    "per",
    "burst",
    "buckets",
    "utc_offset_minutes",
    "month_starts",
    "time_zone",
    "Europe/Berlin",
    "limiters",
    "strategy",
    "refillPerSec",
    "twoTier",
    "by",
    "lease",
    "hold",
    "scope",
    "adaptive",
    "weights",
    "regions",
    "entries",
    "domain",
    "descriptors",
    "rate_limit",
    "unit_multiplier",
    "99999999999999999",
    "18446744073709551615",
];

pub(super) fn seeds() -> Seeds {
    let inputs = FILES.iter().map(|file| file.as_bytes().to_vec()).collect();
    Seeds { inputs, words: WORDS.iter().map(|word| word.as_bytes()).collect() }
}

#[cfg(test)]
mod tests {
    use throttlekit_server::policy::{import_envoy, import_limiters, load};

    #[test]
    fn every_file_is_one_of_ours_or_one_to_import() {
        for file in super::FILES {
            let (ours, theirs) = (load(file), import_envoy(file).or_else(|_| import_limiters(file)));
            assert!(
                ours.is_ok() || theirs.is_ok(),
                "{file}\n{}\n{}",
                ours.unwrap_err()[0],
                theirs.unwrap_err()[0]
            );
        }
    }
}
