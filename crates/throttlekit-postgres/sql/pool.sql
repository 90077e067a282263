-- Pools of regions. About p_now, words between at signs and the order of keys, see functions.sql.

-- What each pool has granted to which region in the window that ends at ends.
CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.pool (
    key text COLLATE "C" PRIMARY KEY,
    ends bigint NOT NULL,
    regions text[] NOT NULL,
    weights bigint[] NOT NULL,
    granted bigint[] NOT NULL
) WITH (fillfactor = 50);

-- Weight · units / total, rounded down. Level::share.
CREATE OR REPLACE FUNCTION @schema@.pool_share(weight bigint, units bigint, total bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $function$
    SELECT CASE WHEN total = 0 THEN 0 ELSE div(weight::numeric * units, total)::bigint END
$function$;

-- Grants a region more of the budget that it shares with others. Mirrors Pool::grant.
--
--   p_kind, c2 … c4           the window: numbers 2 to 4 of a charge, see SharedForm
--   p_region, p_weight        who asks, and its weight from now on
--   p_wants                   how many units more
--
-- Result: granted, instant, end of the window, held, share, others; see Sight. Or -2 where there are too many regions.
--
-- The row is taken first, so the instant is one at which it is held.
CREATE OR REPLACE FUNCTION @schema@.grant_region(
    p_now bigint, p_key text, p_kind int, c2 bigint, c3 bigint, c4 bigint,
    p_region text, p_weight bigint, p_wants bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    regions_max CONSTANT int := 256;
    exact_max CONSTANT bigint := 9007199254740991;
    row @schema@.pool;
    now bigint;
    own int;
    i int;
    count int;
    changes boolean;
    by_holding int[];
    had boolean[];
    again boolean := true;
    units_left bigint := c2;
    total bigint;
    held bigint;
    share bigint;
    others bigint;
    more bigint;
BEGIN
    LOOP
        SELECT * INTO row FROM @schema@.pool p WHERE p.key = p_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO @schema@.pool VALUES (p_key, 0, '{}', '{}', '{}') ON CONFLICT DO NOTHING;
    END LOOP;
    now := @clock@;
    count := cardinality(row.regions);
    IF row.ends < 0 OR cardinality(row.weights) <> count OR cardinality(row.granted) <> count
        OR NOT (1 <= ALL (row.weights) AND 0 <= ALL (row.granted) AND exact_max >= ALL (row.granted)) THEN
        RAISE EXCEPTION '%: no pool', p_key USING ERRCODE = 'TK001';
    END IF;
    -- The window in the row lasts until its end, however the clock went.
    IF row.ends <= now THEN
        row.ends := CASE abs(p_kind) WHEN 1 THEN ((now + c4) / c3 + 1) * c3 - c4 ELSE @schema@.period_end(now, c3, c4) END;
        row.regions := '{}';
        row.weights := '{}';
        row.granted := '{}';
        count := 0;
    END IF;
    own := array_position(row.regions, p_region);
    IF own IS NULL THEN
        IF count >= regions_max THEN
            RETURN ARRAY[-2, now];
        END IF;
        count := count + 1;
        own := count;
        row.regions[own] := p_region;
        row.granted[own] := 0;
    END IF;
    changes := row.weights[own] IS DISTINCT FROM p_weight;
    row.weights[own] := p_weight;

    -- Level::of. Doubles come close to the order, and any leads to the same level.
    SELECT sum(w), array_agg(place ORDER BY g::float8 / w DESC) INTO total, by_holding
    FROM unnest(row.weights, row.granted) WITH ORDINALITY AS part(w, g, place);
    had := array_fill(false, ARRAY[count]);
    WHILE again LOOP
        again := false;
        FOREACH i IN ARRAY by_holding LOOP
            CONTINUE WHEN had[i] OR row.granted[i] <= @schema@.pool_share(row.weights[i], units_left, total);
            had[i] := true;
            again := true;
            units_left := greatest(units_left - row.granted[i], 0);
            total := total - row.weights[i];
        END LOOP;
    END LOOP;

    held := row.granted[own];
    share := @schema@.pool_share(p_weight, units_left, total);
    SELECT coalesce(sum(greatest(g, @schema@.pool_share(w, units_left, total))), 0) INTO others
    FROM unnest(row.weights, row.granted) WITH ORDINALITY AS part(w, g, place) WHERE place <> own;
    more := CASE WHEN held > share THEN 0 ELSE greatest(least(p_wants, c2 - others - held), 0) END;
    IF changes OR more > 0 THEN
        row.granted[own] := held + more;
        UPDATE @schema@.pool p SET ends = row.ends, regions = row.regions, weights = row.weights, granted = row.granted
        WHERE p.key = p_key;
    END IF;
    RETURN ARRAY[more, now, row.ends, held, share, others];
END
$function$;
