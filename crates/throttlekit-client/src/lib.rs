//! A ThrottleKit server from Rust: ask it, or lease from it and decide in process.
