-- Membership records, in the table `roll`. About p_now and words between at signs, see functions.sql.

-- What nodes put here and take from here. Only they know what it says.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.roll (
    key text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    body bytea NOT NULL,
    expires bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Swaps a membership record for the next, or returns the current one. Mirrors MembershipRecords::swap.
--
--   p_version  the version that must be there, 0 for none; NULL to load
--   p_body     the next record
--   p_keeps    for how many µs it is kept
--
-- Result: 1 if it was swapped, else 0; the instant; the version that is there, and the record. Numbers of eight bytes.
-- Of a swap that is done, the last two are left out.
CREATE OR REPLACE FUNCTION @schema@.swap_roll(p_now bigint, p_key text, p_version bigint, p_body bytea, p_keeps bigint)
RETURNS bytea
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    row @schema@.roll;
    now bigint := @clock@;
BEGIN
    IF p_version > 0 THEN
        UPDATE @schema@.roll r SET version = greatest(p_version + 1, now), body = p_body, expires = now + p_keeps
        WHERE r.key = p_key AND r.version = p_version;
    ELSIF p_version = 0 THEN
        INSERT INTO @schema@.roll VALUES (p_key, now, p_body, now + p_keeps) ON CONFLICT DO NOTHING;
    END IF;
    IF p_version IS NOT NULL AND FOUND THEN
        RETURN int8send(1) || int8send(now);
    END IF;
    SELECT * INTO row FROM @schema@.roll r WHERE r.key = p_key;
    now := @clock@;
    RETURN int8send(0) || int8send(now) || int8send(coalesce(row.version, 0)) || coalesce(row.body, '');
END
$function$;
