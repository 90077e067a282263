//! The APIs of the servers: how each encodes a request, and where its response says "allowed".
//!
//! Requests have the usual form of their API. throttlecrab's carry the limit; ours and Limitador's name one from a file.

use anyhow::{Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use throttlekit_proto::envoy::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::{CheckRequest, CheckResponse, SessionCall, SessionRequest};

use crate::servers::{Limit, PERIOD_S};

#[derive(Clone, Copy)]
pub struct Api {
    /// Returns the bytes of a request for one unit of a key.
    pub encode: fn(Limit, &str) -> Bytes,
    pub wire: Wire,
}

#[derive(Clone, Copy)]
pub enum Wire {
    Grpc {
        path: &'static str,
        /// Reads the response message.
        allowed: fn(&[u8]) -> Result<bool>,
    },
    /// Our stream of many calls.
    Session {
        /// Calls in one message.
        calls: usize,
    },
    Http {
        /// Reads the status and the body.
        allowed: fn(u16, &[u8]) -> Result<bool>,
    },
    Resp {
        /// The first integer of a reply that allows.
        allowed: &'static [u8],
        /// Commands that a connection sends at once.
        pipeline: usize,
    },
}

/// Envoy's rate limit service, ours and Limitador's.
pub const RLS: Api = Api {
    encode: |limit, key| {
        let entries = vec![Entry { key: "user".into(), value: Bytes::copy_from_slice(key.as_bytes()) }];
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        grpc(&RateLimitRequest { domain: limit.name.into(), descriptors, ..RateLimitRequest::default() })
    },
    wire: Wire::Grpc {
        path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        allowed: |message| match RateLimitResponse::decode(message)?.overall_code() {
            Code::Ok => Ok(true),
            Code::OverLimit => Ok(false),
            code => bail!("no decision: {code:?}"),
        },
    },
};

pub const OURS_GRPC: Api = Api {
    encode: |limit, key| {
        grpc(&CheckRequest { policy: limit.name.into(), key: key.into(), cost: 1, keys: Vec::new() })
    },
    wire: Wire::Grpc {
        path: "/throttlekit.v1.RateLimiter/Check",
        allowed: |message| match CheckResponse::decode(message)?.decision {
            Some(decision) => Ok(decision.allowed),
            None => bail!("a response without a decision"),
        },
    },
};

/// Encodes a call without gRPC's frame: the calls of a message follow each other.
pub const OURS_SESSION: Api = Api {
    encode: |limit, key| {
        let check = CheckRequest { policy: limit.name.into(), key: key.into(), cost: 1, keys: Vec::new() };
        let calls = vec![SessionCall { id: 1, call: Some(Call::Check(check)) }];
        SessionRequest { calls, deadline_ms: 0 }.encode_to_vec().into()
    },
    wire: Wire::Session { calls: 1 },
};

pub const CRAB_GRPC: Api = Api {
    encode: |limit, key| {
        let (units, period) = (limit.units as i32, PERIOD_S as i32);
        grpc(&CrabRequest { key: key.into(), max_burst: units, count_per_period: units, period, quantity: 1 })
    },
    wire: Wire::Grpc {
        path: "/throttlecrab.RateLimiter/Throttle",
        allowed: |message| Ok(CrabResponse::decode(message)?.allowed),
    },
};

pub const OURS_HTTP: Api = Api {
    encode: |limit, key| http("/v1/check", &format!(r#"{{"policy":"{}","key":"{key}"}}"#, limit.name)),
    wire: Wire::Http { allowed: allowed_in_json },
};

pub const CRAB_HTTP: Api = Api {
    encode: |limit, key| {
        let units = limit.units;
        let body = format!(
            r#"{{"key":"{key}","max_burst":{units},"count_per_period":{units},"period":{PERIOD_S},"quantity":1}}"#
        );
        http("/throttle", &body)
    },
    wire: Wire::Http { allowed: allowed_in_json },
};

pub const LIMITADOR_HTTP: Api = Api {
    encode: |limit, key| {
        let body = format!(r#"{{"namespace":"{}","values":{{"user":"{key}"}},"delta":1}}"#, limit.name);
        http("/check_and_report", &body)
    },
    wire: Wire::Http {
        allowed: |status, _| match status {
            200 => Ok(true),
            429 => Ok(false),
            _ => bail!("no decision: status {status}"),
        },
    },
};

pub const OURS_RESP: Api = Api {
    encode: |limit, key| resp(&["CL.THROTTLE", &format!("{}:{key}", limit.name)]),
    wire: Wire::Resp { allowed: b":0\r\n", pipeline: 1 },
};

pub const CRAB_RESP: Api = Api {
    encode: |limit, key| {
        let (units, period) = (limit.units.to_string(), PERIOD_S.to_string());
        resp(&["THROTTLE", key, &units, &units, &period, "1"])
    },
    wire: Wire::Resp { allowed: b":1\r\n", pipeline: 1 },
};

impl Api {
    /// Sends several requests at once, with RESP and in sessions.
    pub const fn pipelined(mut self, requests: usize) -> Self {
        match &mut self.wire {
            Wire::Resp { pipeline: at_once, .. } | Wire::Session { calls: at_once } => *at_once = requests,
            Wire::Grpc { .. } | Wire::Http { .. } => {}
        }
        self
    }
}

/// The messages of throttlecrab's `throttlecrab.proto`.
#[derive(Clone, PartialEq, Message)]
struct CrabRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

#[derive(Clone, PartialEq, Message)]
struct CrabResponse {
    #[prost(bool, tag = "1")]
    allowed: bool,
}

/// A message in gRPC's frame: not compressed, and its length.
fn grpc(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).expect("the buffer grows");
    bytes.freeze()
}

fn http(path: &str, body: &str) -> Bytes {
    let length = body.len();
    Bytes::from(format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

fn resp(words: &[&str]) -> Bytes {
    let strings: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    Bytes::from(format!("*{}\r\n{strings}", words.len()))
}

fn allowed_in_json(status: u16, body: &[u8]) -> Result<bool> {
    let body = String::from_utf8_lossy(body);
    match (status, body.contains(r#""allowed":true"#), body.contains(r#""allowed":false"#)) {
        (200, true, false) => Ok(true),
        (200, false, true) => Ok(false),
        _ => bail!("no decision: status {status}, {body}"),
    }
}
