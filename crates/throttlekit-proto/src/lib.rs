//! The wire types of ThrottleKit, and of Envoy's rate limit service: messages, clients and servers.
//!
//! * [`v1`] is what ThrottleKit's own clients speak. Its fields below 100 are a frozen contract: clients written
//!   against them, in any language, work unchanged. Its fields from 100 on are additions that nobody has to know.
//! * [`envoy`] is what a proxy calls: the rate limit service, version 3, and the few messages that it needs.
//! * [`DESCRIPTORS`] describes both, for servers that offer reflection.
//!
//! Nothing here decides anything. A server converts these types into those of the library once, where bad input is
//! refused; a field that is absent on the wire is the default of its type here, so what 0 or an empty string means is
//! said at the field.
//!
//! The code is written by `cargo xtask proto` from the `.proto` files beside it and checked in, so building this crate
//! needs no `protoc` and runs no build script. Clients and servers are generic over their transport, which is the
//! user's to choose:
//!
//! ```
//! use throttlekit_proto::v1::{CheckRequest, Decision, Retry};
//!
//! let request = CheckRequest { policy: "api".into(), key: "alice".into(), cost: 3, ..Default::default() };
//! assert!(request.keys.is_empty());
//!
//! let mut denied = Decision { limit: 2, ..Default::default() };
//! denied.set_retry(Retry::Never);
//! assert_eq!(denied.retry(), Retry::Never);
//! ```

/// Every file of the wire and what these import, as an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// The metadata of a status that says why a request got no answer.
pub const CAUSE: &str = "throttlekit-cause";
/// The [cause](CAUSE) of an UNAVAILABLE where the server's store is away and the policy refuses until it is back.
pub const STORE_OUTAGE: &str = "store_outage";

// Laid out as the packages are, because generated code names its neighbours by way of their parents.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    pub mod throttlekit {
        pub mod v1 {
            include!("generated/throttlekit.v1.rs");
        }
    }
    pub mod envoy {
        pub mod config {
            pub mod core {
                pub mod v3 {
                    include!("generated/envoy.config.core.v3.rs");
                }
            }
        }
        pub mod extensions {
            pub mod common {
                pub mod ratelimit {
                    pub mod v3 {
                        include!("generated/envoy.extensions.common.ratelimit.v3.rs");
                    }
                }
            }
        }
        pub mod service {
            pub mod ratelimit {
                pub mod v3 {
                    include!("generated/envoy.service.ratelimit.v3.rs");
                }
            }
        }
        pub mod r#type {
            pub mod v3 {
                include!("generated/envoy.r#type.v3.rs");
            }
        }
    }
}

/// The package `throttlekit.v1`: asks and answers, fleets of holders, and what a server tells about itself.
///
/// Implement [`RateLimiter`](v1::rate_limiter_server::RateLimiter), [`Fleet`](v1::fleet_server::Fleet) and
/// [`Monitor`](v1::monitor_server::Monitor) to serve; call through the clients beside them.
pub mod v1 {
    pub use crate::generated::throttlekit::v1::*;
}

/// Envoy's rate limit service, version 3, under short names.
///
/// `UInt64Value` is an `Option<u64>`; `Duration` and `Struct` are those of `prost_types`.
pub mod envoy {
    pub use crate::generated::envoy::config::core::v3::HeaderValue;
    pub use crate::generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    pub use crate::generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
        Entry, RateLimitOverride,
    };
    pub use crate::generated::envoy::service::ratelimit::v3::rate_limit_response::{
        Code, DescriptorStatus, RateLimit, rate_limit::Unit,
    };
    pub use crate::generated::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_service_client, rate_limit_service_server,
    };
    pub use crate::generated::envoy::r#type::v3::RateLimitUnit;
}

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
