-- Slots under leases. About p_now, words between at signs and the order of keys, see functions.sql.

-- Of each key how many slots are held, the longest life in µs that a lease of it was given since none was, and from when
-- on the row says no more than no row. Whoever changes a lease holds the key's row: so the count is exact.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.slot_keys (
    key text COLLATE "C" PRIMARY KEY,
    held int NOT NULL,
    longest bigint NOT NULL,
    idle_at bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Before version 6 an instant stood in its place. Read as a life it is so long that it cuts no lease short.
DO $do$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('@schema@.slot_keys') AND attname = 'last') THEN
        ALTER TABLE @schema@.slot_keys RENAME COLUMN last TO longest;
    END IF;
END $do$;

-- The leases, each of one owner, each until an instant.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.slots (
    key text COLLATE "C",
    lease uuid,
    owner uuid,
    ends bigint NOT NULL,
    CONSTRAINT slots_pkey PRIMARY KEY (key, lease, owner)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS slots_by_end ON @schema@.slots (key, ends);

-- Brings the leases of a key to the instant: those that are over go, and those that end later than any may, since the
-- clock has stepped back, end a life from now. Says how many went, and whether anything was moved. To be called with the
-- key's row in hand. Mirrors SlotTable::advance.
DROP FUNCTION IF EXISTS @schema@.slots_purge(text, bigint);
CREATE OR REPLACE FUNCTION @schema@.slots_advance(p_key text, now bigint, p_longest bigint, OUT over int, OUT moved boolean)
LANGUAGE plpgsql VOLATILE AS $function$
BEGIN
    UPDATE @schema@.slots s SET ends = now + p_longest WHERE s.key = p_key AND s.ends > now + p_longest;
    moved := FOUND;
    DELETE FROM @schema@.slots s WHERE s.key = p_key AND s.ends <= now;
    GET DIAGNOSTICS over = ROW_COUNT;
END
$function$;

-- Writes a key's row after a change that leaves so many held. Where nothing is held, nothing is remembered.
DROP FUNCTION IF EXISTS @schema@.slots_changed(text, int, bigint);
CREATE OR REPLACE FUNCTION @schema@.slots_changed(p_key text, p_held int, now bigint, p_longest bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $function$
BEGIN
    UPDATE @schema@.slot_keys k SET
        held = p_held,
        longest = CASE WHEN p_held = 0 THEN 0 ELSE p_longest END,
        idle_at = CASE WHEN p_held = 0 THEN now ELSE (SELECT max(s.ends) FROM @schema@.slots s WHERE s.key = p_key) END
    WHERE k.key = p_key;
END
$function$;

-- Takes a slot under a lease. Mirrors SlotTable::acquire.
--
--   p_most    the ceiling
--   p_lives   how long it lives, in µs
--
-- Result: 1 or 0, instant, how many were held, end of the asker's own lease or 0, when there is room or 0; see SlotSight.
--
-- The row is taken first, so the instant is one at which it is held.
CREATE OR REPLACE FUNCTION @schema@.slot_acquire(
    p_now bigint, p_key text, p_lease uuid, p_owner uuid, p_most int, p_lives bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    row @schema@.slot_keys;
    now bigint;
    over int;
    moved boolean;
    own bigint;
    room bigint;
    taken boolean;
BEGIN
    LOOP
        SELECT * INTO row FROM @schema@.slot_keys k WHERE k.key = p_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO @schema@.slot_keys VALUES (p_key, 0, 0, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    now := @clock@;
    SELECT a.over, a.moved INTO over, moved FROM @schema@.slots_advance(p_key, now, row.longest) a;
    row.held := row.held - over;
    IF row.held < 0 OR row.longest < 0 THEN
        RAISE EXCEPTION '%: no slots', p_key USING ERRCODE = 'TK001';
    END IF;
    SELECT s.ends INTO own FROM @schema@.slots s WHERE s.key = p_key AND s.lease = p_lease AND s.owner = p_owner;
    taken := own IS NOT NULL OR row.held < p_most;
    IF own IS NULL AND taken THEN
        INSERT INTO @schema@.slots VALUES (p_key, p_lease, p_owner, now + p_lives);
    ELSIF own IS NULL AND p_most > 0 THEN
        -- As many as are too many have to go, and one more.
        SELECT s.ends INTO room FROM @schema@.slots s WHERE s.key = p_key
        ORDER BY s.ends OFFSET row.held - p_most LIMIT 1;
    END IF;
    IF taken OR over > 0 OR moved THEN
        PERFORM @schema@.slots_changed(
            p_key, row.held + (taken AND own IS NULL)::int, now,
            CASE WHEN taken THEN greatest(row.longest, p_lives) ELSE row.longest END);
    END IF;
    RETURN ARRAY[taken::int, now, row.held, coalesce(own, 0), coalesce(room, 0)];
END
$function$;

-- Takes the rows of keys, in order, and says of each whether it is in hand. A row that comes while others are waited for
-- is not: whoever calls has to leave it alone.
CREATE OR REPLACE FUNCTION @schema@.slots_take(p_keys text[]) RETURNS boolean[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    taken boolean[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(p_keys) LOOP
        PERFORM 1 FROM @schema@.slot_keys k WHERE k.key = p_keys[i] FOR UPDATE;
        taken := taken || FOUND;
    END LOOP;
    RETURN taken;
END
$function$;

-- Lets leases live as long again. Mirrors SlotTable::heartbeat.
--
--   p_keys    every key, in order
--   p_slots   per lease: its key's place in p_keys
--
-- Result: per lease the instant, and its end or 0 where it is lost.
CREATE OR REPLACE FUNCTION @schema@.slot_beat(
    p_now bigint, p_keys text[], p_slots int[], p_leases text[], p_owners text[], p_lives bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    row @schema@.slot_keys;
    taken boolean[];
    now bigint;
    over int;
    moved boolean;
    new_end bigint;
    reply bigint[] := '{}';
BEGIN
    taken := @schema@.slots_take(p_keys);
    now := @clock@;
    FOR i IN 1 .. cardinality(p_slots) LOOP
        SELECT * INTO row FROM @schema@.slot_keys k WHERE k.key = p_keys[p_slots[i]] AND taken[p_slots[i]];
        new_end := NULL;
        IF row.held > 0 THEN
            SELECT a.over, a.moved INTO over, moved FROM @schema@.slots_advance(row.key, now, row.longest) a;
            UPDATE @schema@.slots s SET ends = greatest(s.ends, now + p_lives)
            WHERE s.key = row.key AND s.lease = p_leases[i]::uuid AND s.owner = p_owners[i]::uuid
            RETURNING s.ends INTO new_end;
            IF over > 0 OR moved OR new_end IS NOT NULL THEN
                PERFORM @schema@.slots_changed(
                    row.key, row.held - over, now,
                    CASE WHEN new_end IS NULL THEN row.longest ELSE greatest(row.longest, p_lives) END);
            END IF;
        END IF;
        reply := reply || ARRAY[now, coalesce(new_end, 0)];
    END LOOP;
    RETURN reply;
END
$function$;

-- Gives slots back. Mirrors SlotTable::release. Arguments as above. Result: per lease 1, or 0 where it was not held.
CREATE OR REPLACE FUNCTION @schema@.slot_release(
    p_now bigint, p_keys text[], p_slots int[], p_leases text[], p_owners text[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    row @schema@.slot_keys;
    taken boolean[];
    now bigint;
    over int;
    moved boolean;
    freed int;
    reply bigint[] := '{}';
BEGIN
    taken := @schema@.slots_take(p_keys);
    now := @clock@;
    FOR i IN 1 .. cardinality(p_slots) LOOP
        SELECT * INTO row FROM @schema@.slot_keys k WHERE k.key = p_keys[p_slots[i]] AND taken[p_slots[i]];
        freed := 0;
        IF row.held > 0 THEN
            SELECT a.over, a.moved INTO over, moved FROM @schema@.slots_advance(row.key, now, row.longest) a;
            DELETE FROM @schema@.slots s
            WHERE s.key = row.key AND s.lease = p_leases[i]::uuid AND s.owner = p_owners[i]::uuid;
            GET DIAGNOSTICS freed = ROW_COUNT;
            IF over > 0 OR moved OR freed > 0 THEN
                PERFORM @schema@.slots_changed(row.key, row.held - over - freed, now, row.longest);
            END IF;
        END IF;
        reply := reply || freed::bigint;
    END LOOP;
    RETURN reply;
END
$function$;

-- How many slots of each key are held. Mirrors SlotTable::occupancy. Result: per key the instant, and how many.
CREATE OR REPLACE FUNCTION @schema@.slot_occupancy(p_now bigint, p_keys text[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    now bigint := @clock@;
    count bigint;
    reply bigint[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(p_keys) LOOP
        SELECT count(*) INTO count FROM @schema@.slots s WHERE s.key = p_keys[i] AND s.ends > now;
        reply := reply || ARRAY[now, count];
    END LOOP;
    RETURN reply;
END
$function$;
