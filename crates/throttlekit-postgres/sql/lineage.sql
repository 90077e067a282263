-- Histories of the server. About p_now and words between at signs, see functions.sql.

-- The history that the rows of this schema belong to. A copy of the database has a copy of this row: so a server that
-- was promoted, or a database that was restored elsewhere, finds another system or timeline here than its own.
--
--   epoch   goes up each time that rows may have been lost
--   since   the instant when that was noticed, µs; 0 if never
CREATE TABLE IF NOT EXISTS @schema@.lineage (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    system bigint NOT NULL,
    timeline bigint NOT NULL,
    epoch bigint NOT NULL,
    since bigint NOT NULL
);

-- The timeline that the server writes. pg_control_checkpoint() has an old one until the first checkpoint after a
-- promotion.
CREATE OR REPLACE FUNCTION @schema@.timeline() RETURNS bigint
LANGUAGE sql STABLE AS $function$
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
$function$;

-- What each call through a pooler shows of the server that ran it: system, timeline, epoch, and how far its log was
-- flushed.
CREATE OR REPLACE FUNCTION @schema@.lineage_seen() RETURNS bigint[]
LANGUAGE sql STABLE AS $function$
    SELECT ARRAY[
        (SELECT system_identifier FROM pg_control_system()),
        @schema@.timeline(),
        coalesce((SELECT l.epoch FROM @schema@.lineage l), 0),
        (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint
    ]
$function$;

-- Compares the server with the row above and with what the caller remembers, and begins an epoch where they differ.
-- Mirrors nothing; Lineage::learn reads it.
--
--   p_system, p_timeline, p_epoch   the history that the caller knows; all 0 if none
--   p_started                       when its server was started, µs; 0 if that is not known
--   p_flushed                       how far that had flushed its log when it last answered
--
-- A server that was stopped and restored from an older copy is in the same system and on the same timeline. Its log
-- ends before p_flushed, or did so at its first checkpoint after it was started: what was written since may be longer
-- than what was lost, but a checkpoint is rare.
--
-- Result: system, timeline, epoch, since, now, started, flushed.
CREATE OR REPLACE FUNCTION @schema@.lineage_check(
    p_now bigint, p_system bigint, p_timeline bigint, p_epoch bigint, p_started bigint, p_flushed bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    row @schema@.lineage;
    now bigint := @clock@;
    here bigint := (SELECT system_identifier FROM pg_control_system());
    line bigint := @schema@.timeline();
    started bigint := (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint;
    flushed bigint := (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint;
    began bigint := (SELECT (checkpoint_lsn - '0/0'::pg_lsn)::bigint FROM pg_control_checkpoint());
    known boolean := p_system = here AND p_timeline = line;
    older boolean := known AND (flushed < p_flushed OR (p_started > 0 AND started <> p_started AND began < p_flushed));
BEGIN
    SELECT * INTO row FROM @schema@.lineage;
    IF NOT FOUND THEN
        INSERT INTO @schema@.lineage VALUES (true, here, line, 1, 0) ON CONFLICT DO NOTHING;
        SELECT * INTO row FROM @schema@.lineage;
    END IF;
    IF older OR row.system <> here OR row.timeline <> line OR (known AND row.epoch < p_epoch) THEN
        SELECT * INTO row FROM @schema@.lineage FOR UPDATE;
        -- Whoever was faster has begun the epoch, unless only the caller knows.
        IF older OR row.system <> here OR row.timeline <> line OR (known AND row.epoch < p_epoch) THEN
            UPDATE @schema@.lineage l SET
                system = here, timeline = line, epoch = greatest(row.epoch, p_epoch) + 1, since = now
            RETURNING * INTO row;
        END IF;
    END IF;
    RETURN ARRAY[here, line, row.epoch, row.since, now, started, flushed];
END
$function$;

-- One row for each store handle that has probed the server, so that no two wait for each other.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.probe (
    handle bigint PRIMARY KEY,
    at bigint NOT NULL
) WITH (fillfactor = 50);

-- Writes, so that its commit waits for whatever the commit of an admission waits for. Result: the instant.
CREATE OR REPLACE FUNCTION @schema@.probe_write(p_now bigint, p_handle bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $function$
    INSERT INTO @schema@.probe AS p VALUES (p_handle, @clock@)
    ON CONFLICT (handle) DO UPDATE SET at = greatest(p.at + 1, excluded.at) RETURNING p.at
$function$;
