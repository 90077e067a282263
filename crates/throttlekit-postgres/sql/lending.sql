-- Lending. About p_now, words between at signs and the order of keys, see functions.sql.

-- Lends units to nodes that spend them by themselves: as many as an ask wants, as its share of what is left, and as are
-- left, but at least the fewest it takes, or none; a budget of which any are left lends the fewest though that crosses
-- its edge. Each ask is answered by itself, in order. Mirrors Authority::lend.
--
--   p_keys   all keys
--   p_slots  of each ask its key, as a place in p_keys
--   p_kinds  of each its rule: GCRA or a window
--   p_nums   of each the numbers of SharedForm::lending, filled up to six (five by programs of a version below 6), then how many it wants, the fewest, and one
--            part in how many
--
-- Result, one after another for each ask: the units lent, or -1 where its row holds something foreign; its instant; how
-- many numbers of the state before follow, these numbers.
--
-- The first pass looks without locks. If it would lend nothing its answers stand, as in admit_one, so a refusal takes no
-- lock and writes nothing. Otherwise the rows are taken, and a second pass lends at an instant at which they are held.
CREATE OR REPLACE FUNCTION @schema@.lend(
    p_now bigint, p_keys text[], p_slots int[], p_kinds int[], p_nums bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    -- No function of ours writes more, until the year 2255.
    exact_max CONSTANT bigint := 9007199254740991;
    -- Of each key: its row as it is after the asks so far. Where there is none, a is missing.
    w_a bigint[] := '{}';
    w_b bigint[] := '{}';
    w_idle bigint[] := '{}';
    w_since bigint[] := '{}';
    w_unit bigint[] := '{}';
    w_base bigint[] := '{}';
    placed boolean[] := array_fill(false, ARRAY[cardinality(p_keys)]);
    written boolean[] := placed;
    lends boolean := false;
    slot int;
    one numeric;
    tat numeric;
    room bigint;
    wants bigint;
    fewest bigint;
    parts bigint;
    granted bigint;
    reply bigint[];
    kind int;
    c1 CONSTANT bigint := 0;
    c2 bigint;
    c3 bigint;
    c4 bigint;
    c5 bigint;
    c6 bigint;
    size CONSTANT int := cardinality(p_nums) / greatest(cardinality(p_slots), 1);
    at_num int;
@declare@
BEGIN
    FOR pass IN 1 .. 2 LOOP
        FOR slot IN 1 .. cardinality(p_keys) LOOP
            IF pass = 1 THEN
                SELECT s.a, s.b, s.since, s.unit, s.base INTO s_a, s_b, s_since, s_unit, s_base
                FROM @schema@.state s WHERE s.key = p_keys[slot];
            ELSE
                LOOP
                    SELECT s.a, s.b, s.since, s.unit, s.base INTO s_a, s_b, s_since, s_unit, s_base
                    FROM @schema@.state s WHERE s.key = p_keys[slot] FOR UPDATE;
                    EXIT WHEN FOUND;
                    -- A place to hold. Whoever has it and does not write it takes it away again.
                    INSERT INTO @schema@.state VALUES (p_keys[slot], 0, 0, NULL, 0) ON CONFLICT DO NOTHING;
                    placed[slot] := FOUND;
                    EXIT WHEN FOUND;
                END LOOP;
            END IF;
            w_a[slot] := s_a;
            w_b[slot] := s_b;
            w_since[slot] := s_since;
            w_unit[slot] := s_unit;
            w_base[slot] := s_base;
            written[slot] := false;
        END LOOP;
        now := @clock@;
        reply := '{}';
        FOR i IN 1 .. cardinality(p_slots) LOOP
            slot := p_slots[i];
            the_key := p_keys[slot];
            s_a := w_a[slot];
            s_b := w_b[slot];
            s_since := w_since[slot];
            s_unit := w_unit[slot];
            s_base := w_base[slot];
            has := s_a IS NOT NULL;
            IF s_a NOT BETWEEN 0 AND exact_max OR s_b NOT BETWEEN 0 AND exact_max THEN
                reply := reply || ARRAY[-1, now, 0];
                CONTINUE;
            END IF;
            -- What a charge of nothing leaves: the state as it stands now.
            kind := p_kinds[i];
            at_num := size * (i - 1);
            c2 := CASE kind WHEN 0 THEN 0 ELSE p_nums[at_num + 2] END;
            c3 := p_nums[at_num + 3];
            c4 := p_nums[at_num + 4];
            c5 := p_nums[at_num + 5];
            c6 := CASE size WHEN 9 THEN p_nums[at_num + 6] END;
            @decide@
            IF kind = 0 THEN
                one := p_nums[at_num + 1]::numeric * c5 + p_nums[at_num + 2];
                room := greatest(div((now + c3 - n_a)::numeric * c5 + c4 - n_b, one), 0);
            ELSE
                room := greatest(c2 - n_b, 0);
            END IF;
            wants := p_nums[size * i - 2];
            fewest := p_nums[size * i - 1];
            parts := p_nums[size * i];
            granted := least(wants, greatest((room + parts - 1) / parts, fewest), room);
            IF granted < fewest THEN
                granted := CASE WHEN kind < 0 AND room > 0 THEN fewest ELSE 0 END;
            END IF;
            reply := reply || ARRAY[granted, now, cardinality(seen)] || seen;
            CONTINUE WHEN granted = 0;
            IF kind = 0 THEN
                tat := n_a::numeric * c5 + n_b + granted * one;
                n_a := div(tat, c5);
                n_b := mod(tat, c5);
            ELSE
                n_b := n_b + granted;
            END IF;
            @charge@
            w_a[slot] := n_a;
            w_b[slot] := n_b;
            w_idle[slot] := n_idle;
            w_since[slot] := n_since;
            w_unit[slot] := n_unit;
            w_base[slot] := n_base;
            written[slot] := true;
            lends := true;
        END LOOP;
        EXIT WHEN NOT lends;
    END LOOP;

    FOR slot IN 1 .. cardinality(p_keys) LOOP
        IF written[slot] THEN
            n_a := w_a[slot];
            n_b := w_b[slot];
            n_idle := w_idle[slot];
            n_since := w_since[slot];
            n_unit := w_unit[slot];
            n_base := w_base[slot];
            UPDATE @schema@.state SET a = n_a, b = n_b, idle_at = n_idle,
                since = n_since, unit = n_unit, base = n_base WHERE key = p_keys[slot];
        ELSIF placed[slot] THEN
            DELETE FROM @schema@.state WHERE key = p_keys[slot];
        END IF;
    END LOOP;
    RETURN reply;
END
$function$;

-- Takes lent units back into the windows they came from, while those last. Each return counts once, whatever its key has
-- gone through since. Mirrors Account::take_back, which does not look at the time either.
--
--   p_keys   all keys
--   p_slots  of each return its key, as a place in p_keys
--   p_names  of each its name, sorted: who gives back the same at once waits at the first of them
--   p_nums   of each the end of its window and its units
CREATE OR REPLACE FUNCTION @schema@.give_back(
    p_keys text[], p_slots int[], p_names text[], p_nums bigint[]
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    exact_max CONSTANT bigint := 9007199254740991;
    held boolean[] := '{}';
    row @schema@.state;
    slot int;
BEGIN
    FOR slot IN 1 .. cardinality(p_keys) LOOP
        SELECT * INTO row FROM @schema@.state s WHERE s.key = p_keys[slot] FOR UPDATE;
        held[slot] := FOUND;
        IF row.a NOT BETWEEN 0 AND exact_max OR row.b NOT BETWEEN 0 AND exact_max THEN
            RAISE EXCEPTION '%: a number that is out of range', p_keys[slot] USING ERRCODE = 'TK001';
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(p_slots) LOOP
        slot := p_slots[i];
        INSERT INTO @schema@.returned VALUES (p_names[i]::uuid, p_nums[2 * i - 1]) ON CONFLICT DO NOTHING;
        -- A key without a row has nothing to take back from, and one that has come since is not held.
        CONTINUE WHEN NOT FOUND OR NOT held[slot];
        UPDATE @schema@.state SET b = greatest(b - p_nums[2 * i], 0)
        WHERE key = p_keys[slot] AND a = p_nums[2 * i - 1];
    END LOOP;
END
$function$;
