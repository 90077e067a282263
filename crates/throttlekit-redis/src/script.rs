//! The scripts, assembled from their parts.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use crate::wire::{By, Preamble};

// `#!lua` declares a script that writes: a replica, or a server without memory for it, rejects it before it begins.
// Without it, the server would still return denials from whatever state it has. Peeking writes nothing, and is declared
// so all the same.
//
// If a script charges or settles, its rules are in a function `main`, and its reply includes the lineage record if the
// caller has not sent it: `lua/vouched.lua`. A fenced script checks the record before it charges: `lua/fence.lua`.

/// Concatenates these parts.
macro_rules! parts {
    ($($part:literal),+) => {
        concat!($(include_str!(concat!("lua/", $part, ".lua"))),+)
    };
}

/// A script that neither charges nor settles.
macro_rules! reading {
    ($($part:literal),+) => {
        concat!("#!lua\n", parts!("now", "state", $($part),+))
    };
}

/// A script that charges or settles.
macro_rules! charging {
    ($($part:literal),+) => {
        concat!(
            "#!lua\n",
            parts!("now", "tracked"),
            "ARGV[last] = nil\nlocal function main()\n",
            parts!("state", $($part),+),
            "end\n",
            parts!("vouched", "lineage", "unvouched")
        )
    };
}

/// The same for [`Failover::Fence`](crate::Failover::Fence).
macro_rules! fenced {
    ($($part:literal),+) => {
        concat!(
            "#!lua\n",
            parts!("now", "tracked", "lineage"),
            "ARGV[last] = nil\nlocal function main()\n",
            parts!("state", $($part),+),
            "end\n",
            parts!("vouched", "unvouched")
        )
    };
}

/// The text of the script that decides, to load or measure it separately. Its last argument is the lineage record, or
/// `?`.
pub const ADMIT: &str = concat!(
    "#!lua\n",
    parts!("now", "tracked", "digits", "one", "two"),
    "ARGV[last] = nil\nlocal function main()\n",
    parts!("state", "admit", "each"),
    "end\n",
    parts!("vouched", "lineage", "unvouched")
);
/// The same for [`Failover::Fence`](crate::Failover::Fence).
pub const FENCED_ADMIT: &str = fenced!("admit", "fence", "each");

/// The script that checks for evictions after decisions. It writes the record at most, also without memory for more.
static EVICTIONS: LazyLock<ScriptText> = LazyLock::new(|| {
    ScriptText::new(concat!(
        "#!lua flags=allow-oom\n",
        parts!("now", "tracked"),
        "ARGV[last] = nil\n",
        parts!("evictions", "vouched", "lineage", "unvouched")
    ))
});

/// Creates a call of the script that checks for evictions. The caller appends the lineage record.
pub(crate) fn eviction_check(by: By, record: &str, head: Preamble) -> Cmd {
    let mut cmd = by.call(&EVICTIONS);
    cmd.arg(1).arg(record);
    head.append(&mut cmd);
    cmd
}

/// A script with its hash.
pub(crate) struct ScriptText {
    pub(crate) text: &'static str,
    pub(crate) sha: String,
}

impl ScriptText {
    fn new(text: &'static str) -> Self {
        Self { text, sha: Script::new(text).get_hash().to_owned() }
    }
}

macro_rules! scripts {
    ($($name:ident: $text:expr,)+) => {
        pub(crate) struct Scripts {
            $(pub(crate) $name: ScriptText,)+
        }

        impl Scripts {
            pub(crate) fn new() -> Self {
                Self { $($name: ScriptText::new($text),)+ }
            }
        }
    };
}

scripts! {
    admit: ADMIT,
    fenced_admit: FENCED_ADMIT,
    peek: reading!("peek"),
    settle: charging!("settle"),
    lease: charging!("lease", "each_lease"),
    fenced_lease: fenced!("lease", "fence", "each_lease"),
    give_back: reading!("give_back"),
    debit: charging!("admit", "debit"),
    fenced_debit: fenced!("admit", "fence", "debit"),
    pool: charging!("pool", "each_pool"),
    fenced_pool: fenced!("pool", "fence", "each_pool"),
    acquire: charging!("slots", "acquire", "each_acquire"),
    fenced_acquire: fenced!("slots", "acquire", "fence", "each_acquire"),
    heartbeat: charging!("slots", "heartbeat", "each_heartbeat"),
    fenced_heartbeat: fenced!("slots", "heartbeat", "fence", "fenced_heartbeat", "each_heartbeat"),
    release: reading!("slots", "release"),
    occupancy: reading!("slots", "occupancy"),
    membership: charging!("membership", "each_membership"),
    fenced_membership: fenced!("membership", "fence", "fenced_membership", "each_membership"),
}
