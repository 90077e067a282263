//! The server as strangers meet it: over sockets, encrypted or not, while it stops, and under attack.

mod abuse;
mod assault;
mod attack;
mod bombs;
mod burn;
mod callers;
mod client;
mod cost;
mod drain;
mod fair;
mod fast_path;
mod figures;
mod fuzz;
mod http2;
mod learned;
mod limits;
mod measure;
mod operations;
#[path = "../own_redis/mod.rs"]
mod own_redis;
mod resp;
mod service;
mod session;
mod session_end;
mod session_stream;
mod siege;
mod target;
mod tls;
mod waits;
