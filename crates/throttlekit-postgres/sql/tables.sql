-- What a store keeps. Every column but the key is written only by the functions beside it.
--
--   rule            a                      b                  list
--   GCRA            instant when full, µs  rest in ticks      (since, unit and base as well: see Bucket)
--   window, month   end of the window, µs  units used, of budgets too
--   sliding window  newest bucket          0                  counts, bucket t at t % (buckets + 1)
--   sliding log     newest instant, µs     units in the list  instant, units, instant, units, … oldest first
--
-- From idle_at on a row says no more than no row. It has no index: a write that changes an indexed column leaves a
-- dead index entry behind, and every admission changes it. Half-empty pages let a new version stay on its page.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.state (
    key text COLLATE "C" PRIMARY KEY,
    a bigint NOT NULL,
    b bigint NOT NULL,
    list bigint[],
    idle_at bigint NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
-- Of a bucket: when it was last written, and at which pace, in ticks of a unit and of a microsecond. Without them it is of
-- the pace that asks. Other rules have none.
ALTER TABLE @schema@.state
    ADD COLUMN IF NOT EXISTS since bigint,
    ADD COLUMN IF NOT EXISTS unit bigint,
    ADD COLUMN IF NOT EXISTS base bigint;

-- Names of returns that were counted, each until the window is over into which it counted.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.returned (
    name uuid PRIMARY KEY,
    expires bigint NOT NULL
);

-- Of each stream of a key its last debit: what it found at which instant, and whether it was charged. Without a and b there
-- was no row.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.debits (
    key text COLLATE "C",
    stream uuid,
    number bigint NOT NULL,
    cost bigint NOT NULL,
    at bigint NOT NULL,
    charged boolean NOT NULL,
    a bigint,
    b bigint,
    expires bigint NOT NULL,
    CONSTRAINT debits_pkey PRIMARY KEY (key, stream)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
