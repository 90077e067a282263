//! Tests against a real PostgreSQL.

mod admission;
mod common;
mod debits;
mod disturbed;
mod hung_commits;
mod invariants;
mod killed;
mod lending;
mod lineage;
mod membership;
mod nodes_divided;
mod outbound;
mod regions;
mod reload;
mod same_everywhere;
mod server;
mod slots;
mod time_zones;
