//! Tests against a real PostgreSQL.

mod admission;
mod common;
mod debits;
mod disturbed;
mod fleet_slots;
mod hung_commits;
mod killed;
mod laws;
mod lending;
mod lineage;
mod regions;
mod reload;
mod rolls;
mod same_everywhere;
mod server;
mod slots;
