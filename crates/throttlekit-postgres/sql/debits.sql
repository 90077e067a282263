-- Debits by name. About p_now, words between at signs and the order of keys, see functions.sql.

-- Charges debits, each once: of each stream of a key the last debit is kept, and what it found. Mirrors Debit::repeats.
--
--   p_keys     all keys, of windows and budgets
--   p_slots    of each debit its key, as a place in p_keys
--   p_kinds    of each its rule
--   p_nums     of each the numbers of a charge, filled up to six (five by programs of a version below 6), then its number, its cost, and for how many µs it is
--              remembered
--   p_streams  of each its stream
--
-- Result, one after another for each debit: 1 or 0, whether it passes, or 2, where it comes again and is answered as
-- then; its instant; its cost, and whether it passed; how many numbers of the state before follow, these numbers. Or 3
-- alone where a later one came first, and -1 alone where its row holds something foreign.
--
-- The rows of all keys are held, whatever the answer: whoever debits a key is then alone with its streams too.
CREATE OR REPLACE FUNCTION @schema@.debit(
    p_now bigint, p_keys text[], p_slots int[], p_kinds int[], p_nums bigint[], p_streams text[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    exact_max CONSTANT bigint := 9007199254740991;
    w_a bigint[] := '{}';
    w_b bigint[] := '{}';
    w_idle bigint[] := '{}';
    placed boolean[] := array_fill(false, ARRAY[cardinality(p_keys)]);
    written boolean[] := placed;
    last @schema@.debits;
    slot int;
    reply bigint[] := '{}';
    kind int;
    c1 bigint;
    c2 bigint;
    c3 bigint;
    c4 bigint;
    c5 CONSTANT bigint := 0;
    c6 CONSTANT bigint := 0;
    size CONSTANT int := cardinality(p_nums) / greatest(cardinality(p_slots), 1);
@declare@
BEGIN
    FOR slot IN 1 .. cardinality(p_keys) LOOP
        LOOP
            SELECT s.a, s.b INTO s_a, s_b FROM @schema@.state s WHERE s.key = p_keys[slot] FOR UPDATE;
            EXIT WHEN FOUND;
            -- A place to hold. Whoever has it and does not write it takes it away again.
            INSERT INTO @schema@.state VALUES (p_keys[slot], 0, 0, NULL, 0) ON CONFLICT DO NOTHING;
            placed[slot] := FOUND;
            EXIT WHEN FOUND;
        END LOOP;
        w_a[slot] := s_a;
        w_b[slot] := s_b;
    END LOOP;
    now := @clock@;

    FOR i IN 1 .. cardinality(p_slots) LOOP
        slot := p_slots[i];
        the_key := p_keys[slot];
        SELECT * INTO last FROM @schema@.debits d WHERE d.key = the_key AND d.stream = p_streams[i]::uuid;
        IF FOUND AND now < last.expires AND p_nums[size * i - 2] <= last.number THEN
            IF p_nums[size * i - 2] < last.number THEN
                reply := reply || 3::bigint;
            ELSE
                seen := CASE WHEN last.a IS NULL THEN '{}' ELSE ARRAY[last.a, last.b] END;
                reply := reply || ARRAY[2, last.at, last.cost, last.charged::int, cardinality(seen)] || seen;
            END IF;
            CONTINUE;
        END IF;
        s_a := w_a[slot];
        s_b := w_b[slot];
        has := s_a IS NOT NULL;
        IF s_a NOT BETWEEN 0 AND exact_max OR s_b NOT BETWEEN 0 AND exact_max THEN
            reply := reply || -1::bigint;
            CONTINUE;
        END IF;
        kind := p_kinds[i];
        c1 := p_nums[size * (i - 1) + 1];
        c2 := p_nums[size * (i - 1) + 2];
        c3 := p_nums[size * (i - 1) + 3];
        c4 := p_nums[size * (i - 1) + 4];
        @decide@
        reply := reply || ARRAY[ok::int, now, p_nums[size * i - 1], ok::int, cardinality(seen)] || seen;
        IF ok AND c1 > 0 THEN
            @charge@
            w_a[slot] := n_a;
            w_b[slot] := n_b;
            w_idle[slot] := n_idle;
            written[slot] := true;
        END IF;
        INSERT INTO @schema@.debits VALUES (
            the_key, p_streams[i]::uuid, p_nums[size * i - 2], p_nums[size * i - 1], now, ok, seen[1], seen[2],
            now + p_nums[size * i]
        ) ON CONFLICT ON CONSTRAINT debits_pkey DO UPDATE SET number = excluded.number, cost = excluded.cost,
            at = excluded.at, charged = excluded.charged, a = excluded.a, b = excluded.b,
            expires = excluded.expires;
    END LOOP;

    FOR slot IN 1 .. cardinality(p_keys) LOOP
        IF written[slot] THEN
            n_a := w_a[slot];
            n_b := w_b[slot];
            n_idle := w_idle[slot];
            UPDATE @schema@.state SET a = n_a, b = n_b, idle_at = n_idle WHERE key = p_keys[slot];
        ELSIF placed[slot] THEN
            DELETE FROM @schema@.state WHERE key = p_keys[slot];
        END IF;
    END LOOP;
    RETURN reply;
END
$function$;
