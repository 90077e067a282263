//! The server as strangers meet it: over sockets, encrypted or not, while it stops, and under attack.

mod abuse;
mod attack;
mod callers;
mod client;
mod drain;
mod figures;
mod limits;
mod target;
mod tls;
