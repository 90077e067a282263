//! Responses of providers.

use super::Seeds;

const INPUTS: [&str; 14] = [
    "200\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s\nx-ratelimit-limit-tokens: 150000\nx-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-tokens: 6ms",
    "429\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1m0s\nretry-after-ms: 1500",
    "200\ndate: Tue, 14 Nov 2023 22:13:20 GMT\nanthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2023-11-14T22:14:20Z",
    "200\nanthropic-ratelimit-tokens-limit: 50000\nanthropic-ratelimit-tokens-remaining: 1000\nanthropic-ratelimit-tokens-reset: 2023-11-14T22:14:20Z\nanthropic-ratelimit-input-tokens-remaining: 5",
    "200\nratelimit-policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400\nratelimit: \"burst\";r=50;t=30",
    "200\nratelimit: limit=100, remaining=50, reset=5\nratelimit-policy: 100;w=60",
    "200\nratelimit-limit: 100, 100;w=60\nratelimit-remaining: 50\nratelimit-reset: 5",
    "403\nx-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1700000030",
    "503\nretry-after: Tue, 14 Nov 2023 22:13:27 GMT",
    "429\nretry-after: 7\n\n{\"error\":{\"message\":\"Rate limit reached. Please try again in 1.2s. Visit us.\"}}",
    "429\n\n{\"error\":{\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"37s\"}]}}",
    "200\n\n{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"total_tokens\":12}}",
    "200\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
    "200\n\nevent: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n",
];

pub(super) fn seeds() -> Seeds {
    let words: [&[u8]; 14] = [
        b"\n\n",
        b"\nretry-after: ",
        b"\ndate: ",
        b"-1",
        b"NaN",
        b"1e9",
        b"99999999999999999999",
        b"6m0s",
        b"2023-11-14T22:14:20Z",
        b"9999-12-31T23:59:59Z",
        b"1893456000000",
        b";r=0;t=99",
        b"\"usage\":{",
        b"\xff",
    ];
    Seeds { inputs: INPUTS.iter().map(|input| input.as_bytes().to_vec()).collect(), words: words.to_vec() }
}
