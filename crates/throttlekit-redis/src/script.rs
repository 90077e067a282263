//! The scripts, put together from their parts.

use redis::Script;

/// A script with its name at the server.
pub(crate) struct ScriptText {
    pub(crate) text: &'static str,
    pub(crate) sha: String,
}

pub(crate) struct Scripts {
    pub(crate) admit: ScriptText,
    pub(crate) fenced_admit: ScriptText,
    pub(crate) peek: ScriptText,
    pub(crate) settle: ScriptText,
    pub(crate) lease: ScriptText,
    pub(crate) fenced_lease: ScriptText,
    pub(crate) give_back: ScriptText,
    pub(crate) debit: ScriptText,
    pub(crate) fenced_debit: ScriptText,
    pub(crate) pool: ScriptText,
    pub(crate) fenced_pool: ScriptText,
    pub(crate) acquire: ScriptText,
    pub(crate) fenced_acquire: ScriptText,
    pub(crate) beat: ScriptText,
    pub(crate) fenced_beat: ScriptText,
    pub(crate) release: ScriptText,
    pub(crate) occupancy: ScriptText,
    pub(crate) roll: ScriptText,
    pub(crate) fenced_roll: ScriptText,
}

// `#!lua` declares a script that writes: a replica, or a server without memory for it, refuses it before it begins.
// Without, it would still answer denials from whatever it remembers. Peeking writes nothing, and is declared so all the
// same.
//
// Where a script charges or settles, its rules stand in a function `main`, and its answer carries the lineage record where
// the caller does not know it: `lua/vouched.lua`. A fenced script looks at the record before it charges: `lua/fence.lua`.

/// The text of the script that decides, to load or measure it alone. Its last argument is the lineage record, or `?`.
pub const ADMIT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/one.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/two.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/admit.lua"),
    include_str!("lua/each.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
/// The same for [`Failover::Fence`](crate::Failover::Fence).
pub const FENCED_ADMIT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/admit.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/each.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);
const PEEK: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/peek.lua")
);
const SETTLE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/settle.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);

const LEASE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/lease.lua"),
    include_str!("lua/each_lease.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_LEASE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/lease.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/each_lease.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);
const GIVE_BACK: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/give_back.lua")
);
const POOL: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/pool.lua"),
    include_str!("lua/each_pool.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_POOL: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/pool.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/each_pool.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);

const ROLL: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/roll.lua"),
    include_str!("lua/each_roll.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_ROLL: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/roll.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/fenced_roll.lua"),
    include_str!("lua/each_roll.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);

const DEBIT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/admit.lua"),
    include_str!("lua/debit.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_DEBIT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/admit.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/debit.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);

const ACQUIRE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/acquire.lua"),
    include_str!("lua/each_acquire.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_ACQUIRE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/acquire.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/each_acquire.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);
const BEAT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/beat.lua"),
    include_str!("lua/each_beat.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/lineage.lua"),
    include_str!("lua/unvouched.lua")
);
const FENCED_BEAT: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/tracked.lua"),
    include_str!("lua/lineage.lua"),
    "ARGV[last] = nil\nlocal function main()\n",
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/beat.lua"),
    include_str!("lua/fence.lua"),
    include_str!("lua/fenced_beat.lua"),
    include_str!("lua/each_beat.lua"),
    "end\n",
    include_str!("lua/vouched.lua"),
    include_str!("lua/unvouched.lua")
);
const RELEASE: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/release.lua")
);
const OCCUPANCY: &str = concat!(
    "#!lua\n",
    include_str!("lua/now.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/occupancy.lua")
);

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            admit: ScriptText::new(ADMIT),
            fenced_admit: ScriptText::new(FENCED_ADMIT),
            peek: ScriptText::new(PEEK),
            settle: ScriptText::new(SETTLE),
            lease: ScriptText::new(LEASE),
            fenced_lease: ScriptText::new(FENCED_LEASE),
            give_back: ScriptText::new(GIVE_BACK),
            debit: ScriptText::new(DEBIT),
            fenced_debit: ScriptText::new(FENCED_DEBIT),
            pool: ScriptText::new(POOL),
            fenced_pool: ScriptText::new(FENCED_POOL),
            acquire: ScriptText::new(ACQUIRE),
            fenced_acquire: ScriptText::new(FENCED_ACQUIRE),
            beat: ScriptText::new(BEAT),
            fenced_beat: ScriptText::new(FENCED_BEAT),
            release: ScriptText::new(RELEASE),
            occupancy: ScriptText::new(OCCUPANCY),
            roll: ScriptText::new(ROLL),
            fenced_roll: ScriptText::new(FENCED_ROLL),
        }
    }
}

impl ScriptText {
    fn new(text: &'static str) -> Self {
        Self { text, sha: Script::new(text).get_hash().to_owned() }
    }
}
