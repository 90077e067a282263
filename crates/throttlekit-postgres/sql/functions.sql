-- Every function that looks at the time takes p_now first: the instant to decide at, for tests. NULL is the server's
-- clock. Words between at signs are replaced: by the schema, by the expression that reads the clock, and by the
-- fragments beside this file.
--
-- Keys come sorted and without repetition, and rows are taken in their order, so that no two calls wait for each other.

-- The end of the calendar month that now lies in, offset µs east of UTC. Mirrors Grid::end of Grid::index.
-- Years begin in March, so that February is last and months are linear: five are 153 days. An era of 400 years has
-- 146097 days, the epoch is day 719468 of era 0, and no instant lies before it by more than a day.
CREATE OR REPLACE FUNCTION @schema@.month_end(now bigint, "offset" bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $function$
DECLARE
    day bigint := (now + "offset" + 86400000000) / 86400000000 - 1 + 719468;
    era bigint := day / 146097;
    day_of_era bigint := day % 146097;
    year bigint := (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    day_of_year bigint := day_of_era - (365 * year + year / 4 - year / 100);
    next bigint := (era * 400 + year) * 12 + (5 * day_of_year + 2) / 153 + 1;
BEGIN
    era := next / 4800;
    year := next / 12 % 400;
    day := era * 146097 + year * 365 + year / 4 - year / 100 + (153 * (next % 12) + 2) / 5 - 719468;
    RETURN day * 86400000000 - "offset";
END
$function$;

-- The end of the period that now lies in: of a calendar month in an offset, or, where next is given, of a period that ends
-- at c3 and the next, which ends at next. Whoever asks knows these; past both, periods of the length of the next one.
-- Mirrors Grid::end of Grid::index.
CREATE OR REPLACE FUNCTION @schema@.period_end(now bigint, c3 bigint, next bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $function$
    SELECT CASE
        WHEN next = 0 THEN @schema@.month_end(now, c3)
        WHEN now < c3 THEN c3
        WHEN now < next THEN next
        ELSE now - (now - next) % greatest(next - c3, 1) + (next - c3)
    END
$function$;

-- How long the units that take this time to come back at one pace take at another: whole microseconds, rounded up. Mirrors
-- SharedPace::time_at.
CREATE OR REPLACE FUNCTION @schema@.time_at(
    "time" bigint, ticks bigint, own_unit bigint, own_base bigint, unit bigint, base bigint
) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $function$
DECLARE
    debt_max CONSTANT numeric := 100::bigint * 366 * 86400 * 1000000;
    units_max CONSTANT numeric := 9007199254740991;
    all_ticks numeric := "time"::numeric * own_base + ticks;
    units numeric := div(all_ticks, own_unit);
    part numeric := mod(all_ticks, own_unit);
BEGIN
    IF units > units_max THEN
        units := units_max;
        part := 0;
    END IF;
    RETURN least(div(units * unit + div(part * unit + own_unit - 1, own_unit) + base - 1, base), debt_max);
END
$function$;

-- When a bucket that was last written at one pace is full again at another, as it stands now. Mirrors Bucket::full_at.
CREATE OR REPLACE FUNCTION @schema@.carried(
    now bigint, "full" bigint, rest bigint, since bigint, own_unit bigint, own_base bigint, unit bigint, base bigint
) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $function$
DECLARE
    at bigint := greatest(now, since);
    by_new bigint := since + @schema@.time_at("full" - since, rest, own_unit, own_base, unit, base);
BEGIN
    RETURN least(greatest(by_new, at), at + CASE WHEN at > "full" THEN 0
        ELSE @schema@.time_at("full" - at, rest, own_unit, own_base, unit, base) END);
END
$function$;

-- One ask of one charge: the way most asks go, so it is short.
--
-- Result: whether it passes, the instant, how many numbers of the state before follow, these numbers.
--
-- It looks without a lock first. A denial ends there: what the row said was true at that instant, and nobody takes
-- debts back but a settlement, so a denial costs neither a lock nor a write. An admission is written over the very
-- version that was looked at. If someone is at the row or was faster, the row is taken first and decided on again, at
-- an instant at which it is held.
CREATE OR REPLACE FUNCTION @schema@.admit_one(
    p_now bigint, p_key text, kind int, c1 bigint, c2 bigint, c3 bigint, c4 bigint, c5 bigint, c6 bigint
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    version xid;
    busy boolean := false;
    held boolean := false;
    written boolean := false;
@declare@
BEGIN
    the_key := p_key;
    FOR attempt IN 1 .. 100 LOOP
        IF attempt = 1 THEN
            SELECT s.a, s.b, s.list, s.since, s.unit, s.base, s.xmin, s.xmax <> '0'::xid
            INTO s_a, s_b, s_list, s_since, s_unit, s_base, version, busy
            FROM @schema@.state s WHERE s.key = p_key;
            has := FOUND;
        ELSIF NOT written THEN
            SELECT s.a, s.b, s.list, s.since, s.unit, s.base, s.xmin
            INTO s_a, s_b, s_list, s_since, s_unit, s_base, version
            FROM @schema@.state s WHERE s.key = p_key FOR UPDATE;
            has := FOUND;
            held := FOUND;
        END IF;
        now := @clock@;
        @decide@
        IF NOT ok OR (c1 = 0 AND (kind <> 0 OR c2 = 0)) THEN
            RETURN ARRAY[ok::int, now, cardinality(seen)] || seen;
        END IF;
        CONTINUE WHEN busy AND attempt = 1;
        @charge@
        IF written THEN
            UPDATE @schema@.state SET a = n_a, b = n_b, list = n_list, idle_at = n_idle,
                since = n_since, unit = n_unit, base = n_base WHERE key = p_key;
        ELSIF has THEN
            UPDATE @schema@.state SET a = n_a, b = n_b, list = n_list, idle_at = n_idle,
                since = n_since, unit = n_unit, base = n_base WHERE key = p_key AND xmin = version;
        ELSE
            INSERT INTO @schema@.state VALUES (p_key, n_a, n_b, n_list, n_idle, n_since, n_unit, n_base)
            ON CONFLICT DO NOTHING;
        END IF;
        CONTINUE WHEN NOT FOUND;
        -- A write to a row that was not held may have waited for someone who then changed nothing, past the end of a
        -- window even. If so the same charge is made once more, at the present instant: what passed earlier passes.
        IF held OR @clock@ - now < 1000 THEN
            RETURN ARRAY[1, now, cardinality(seen)] || seen;
        END IF;
        written := true;
        held := true;
    END LOOP;
    RAISE EXCEPTION '%: the row came and went', p_key USING ERRCODE = '40001';
END
$function$;

-- The same for programs that keep no paces: those of a version below 6, while they run.
CREATE OR REPLACE FUNCTION @schema@.admit_one(
    p_now bigint, p_key text, kind int, c1 bigint, c2 bigint, c3 bigint, c4 bigint, c5 bigint
) RETURNS bigint[]
LANGUAGE sql VOLATILE AS $function$
    SELECT @schema@.admit_one(p_now, p_key, kind, c1, c2, c3, c4, c5, NULL)
$function$;

-- Several asks, each answered by itself and in order, of one to sixteen charges each.
--
--   p_keys   all keys
--   p_asks   of each ask how many charges it has, negative where any may allow
--   p_slots  of each charge its key, as a place in p_keys
--   p_kinds  of each charge its rule
--   p_nums   of each charge its numbers, filled up to six; up to five by programs of a version below 6
--
-- Result, one after another for each ask: whether it passes, its instant, and of each of its charges how many numbers
-- of the state before follow, these numbers.
--
-- The first pass looks without locks and tries all asks in order. If none would write, its answers stand, as in
-- admit_one. Otherwise the keys of those that would, and of all asks that share keys with them, are held. If the rows
-- are still as they were a moment ago the answers stand; if not, a second pass decides these asks again. The others
-- write nothing, and keep the answer of the first pass.
CREATE OR REPLACE FUNCTION @schema@.admit(
    p_now bigint, p_keys text[], p_asks int[], p_slots int[], p_kinds int[], p_nums bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    looked_at bigint;
    held_at bigint;
    version xid;
    -- Of each key: its row as it is after the asks so far, and the version of it that was looked at. Where there is no
    -- row, a is missing. A list has to stand in a row, since arrays of arrays are all of one length.
    w_a bigint[] := '{}';
    w_b bigint[] := '{}';
    w_list @schema@.state[] := '{}';
    w_idle bigint[] := '{}';
    w_since bigint[] := '{}';
    w_unit bigint[] := '{}';
    w_base bigint[] := '{}';
    versions xid[] := '{}';
    -- Of each key: the row that was taken, whether it is held, put there to be held, or to be written.
    t_a bigint[] := '{}';
    t_b bigint[] := '{}';
    t_list @schema@.state[] := '{}';
    t_since bigint[] := '{}';
    t_unit bigint[] := '{}';
    t_base bigint[] := '{}';
    held boolean[] := array_fill(false, ARRAY[cardinality(p_keys)]);
    placed boolean[] := held;
    written boolean[] := held;
    same boolean := true;
    -- Of each charge of one ask: its row if the ask passes, and whether it is written then.
    x_a bigint[] := '{}';
    x_b bigint[] := '{}';
    x_list @schema@.state[] := '{}';
    x_idle bigint[] := '{}';
    x_since bigint[] := '{}';
    x_unit bigint[] := '{}';
    x_base bigint[] := '{}';
    x_writes boolean[] := '{}';
    -- Of each ask: whether it was charged.
    charged boolean[] := '{}';
    boxed @schema@.state;
    writes boolean;
    passes boolean;
    grew boolean;
    any_held boolean;
    all_held boolean;
    ask int;
    first int;
    slot int;
    answer bigint[];
    reply bigint[];
    kind int;
    c1 bigint;
    c2 bigint;
    c3 bigint;
    c4 bigint;
    c5 bigint;
    c6 bigint;
    size CONSTANT int := cardinality(p_nums) / greatest(cardinality(p_slots), 1);
    at_num int;
@declare@
BEGIN
    FOR slot IN 1 .. cardinality(p_keys) LOOP
        SELECT s.a, s.b, s.list, s.since, s.unit, s.base, s.xmin
        INTO s_a, s_b, s_list, s_since, s_unit, s_base, version
        FROM @schema@.state s WHERE s.key = p_keys[slot];
        w_a[slot] := s_a;
        w_b[slot] := s_b;
        w_since[slot] := s_since;
        w_unit[slot] := s_unit;
        w_base[slot] := s_base;
        versions[slot] := version;
        IF s_list IS NOT NULL THEN
            boxed.list := s_list;
            w_list[slot] := boxed;
        END IF;
    END LOOP;
    looked_at := @clock@;
    FOR pass IN 1 .. 2 LOOP
        reply := '{}';
        writes := false;
        first := 0;
        FOR i IN 1 .. cardinality(p_asks) LOOP
            ask := p_asks[i];
            now := CASE WHEN held[p_slots[first + 1]] THEN held_at ELSE looked_at END;
            answer := '{}';
            passes := ask > 0;
            FOR c IN first + 1 .. first + abs(ask) LOOP
                slot := p_slots[c];
                the_key := p_keys[slot];
                s_a := w_a[slot];
                s_b := w_b[slot];
                s_since := w_since[slot];
                s_unit := w_unit[slot];
                s_base := w_base[slot];
                has := s_a IS NOT NULL;
                kind := p_kinds[c];
                s_list := NULL;
                IF kind > 2 AND has THEN
                    boxed := w_list[slot];
                    s_list := boxed.list;
                END IF;
                at_num := size * (c - 1);
                c1 := p_nums[at_num + 1];
                c2 := p_nums[at_num + 2];
                c3 := p_nums[at_num + 3];
                c4 := p_nums[at_num + 4];
                c5 := p_nums[at_num + 5];
                c6 := CASE size WHEN 6 THEN p_nums[at_num + 6] END;
                @decide@
                answer := answer || cardinality(seen)::bigint || seen;
                passes := CASE WHEN ask > 0 THEN passes AND ok ELSE passes OR ok END;
                x_writes[c - first] := ok AND (c1 > 0 OR (kind = 0 AND c2 > 0));
                IF x_writes[c - first] THEN
                    @charge@
                    x_a[c - first] := n_a;
                    x_b[c - first] := n_b;
                    x_idle[c - first] := n_idle;
                    x_since[c - first] := n_since;
                    x_unit[c - first] := n_unit;
                    x_base[c - first] := n_base;
                    IF kind > 2 THEN
                        boxed.list := n_list;
                        x_list[c - first] := boxed;
                    END IF;
                END IF;
            END LOOP;
            reply := reply || ARRAY[passes::int, now] || answer;
            charged[i] := false;
            FOR c IN first + 1 .. first + abs(ask) LOOP
                IF passes AND x_writes[c - first] THEN
                    slot := p_slots[c];
                    w_a[slot] := x_a[c - first];
                    w_b[slot] := x_b[c - first];
                    w_idle[slot] := x_idle[c - first];
                    w_since[slot] := x_since[c - first];
                    w_unit[slot] := x_unit[c - first];
                    w_base[slot] := x_base[c - first];
                    IF p_kinds[c] > 2 THEN
                        w_list[slot] := x_list[c - first];
                    END IF;
                    written[slot] := true;
                    charged[i] := true;
                    writes := true;
                END IF;
            END LOOP;
            first := first + abs(ask);
        END LOOP;
        EXIT WHEN pass = 2 OR NOT writes;

        -- Which keys to hold: those of asks that are charged, and of asks that have one of them, and so on.
        grew := true;
        WHILE grew LOOP
            grew := false;
            first := 0;
            FOR i IN 1 .. cardinality(p_asks) LOOP
                any_held := charged[i];
                all_held := true;
                FOR c IN first + 1 .. first + abs(p_asks[i]) LOOP
                    any_held := any_held OR held[p_slots[c]];
                    all_held := all_held AND held[p_slots[c]];
                END LOOP;
                IF any_held AND NOT all_held THEN
                    -- Of one ask alone no other has keys.
                    grew := cardinality(p_asks) > 1;
                    FOR c IN first + 1 .. first + abs(p_asks[i]) LOOP
                        held[p_slots[c]] := true;
                    END LOOP;
                END IF;
                first := first + abs(p_asks[i]);
            END LOOP;
        END LOOP;
        FOR slot IN 1 .. cardinality(p_keys) LOOP
            CONTINUE WHEN NOT held[slot];
            LOOP
                SELECT s.a, s.b, s.list, s.since, s.unit, s.base, s.xmin
                INTO s_a, s_b, s_list, s_since, s_unit, s_base, version
                FROM @schema@.state s WHERE s.key = p_keys[slot] FOR UPDATE;
                EXIT WHEN FOUND;
                -- A place to hold. Whoever has it and does not write it takes it away again.
                INSERT INTO @schema@.state VALUES (p_keys[slot], 0, 0, NULL, 0) ON CONFLICT DO NOTHING;
                placed[slot] := FOUND;
                EXIT WHEN FOUND;
            END LOOP;
            same := same AND version IS NOT DISTINCT FROM versions[slot];
            t_a[slot] := s_a;
            t_b[slot] := s_b;
            t_since[slot] := s_since;
            t_unit[slot] := s_unit;
            t_base[slot] := s_base;
            boxed.list := s_list;
            t_list[slot] := boxed;
        END LOOP;
        held_at := @clock@;
        EXIT WHEN same AND held_at - looked_at < 1000;
        FOR slot IN 1 .. cardinality(p_keys) LOOP
            IF held[slot] THEN
                w_a[slot] := t_a[slot];
                w_b[slot] := t_b[slot];
                w_list[slot] := t_list[slot];
                w_since[slot] := t_since[slot];
                w_unit[slot] := t_unit[slot];
                w_base[slot] := t_base[slot];
                written[slot] := false;
            END IF;
        END LOOP;
    END LOOP;

    FOR slot IN 1 .. cardinality(p_keys) LOOP
        IF held[slot] AND written[slot] THEN
            n_a := w_a[slot];
            n_b := w_b[slot];
            n_idle := w_idle[slot];
            n_since := w_since[slot];
            n_unit := w_unit[slot];
            n_base := w_base[slot];
            boxed := w_list[slot];
            UPDATE @schema@.state SET a = n_a, b = n_b, list = boxed.list, idle_at = n_idle,
                since = n_since, unit = n_unit, base = n_base WHERE key = p_keys[slot];
        ELSIF placed[slot] THEN
            DELETE FROM @schema@.state WHERE key = p_keys[slot];
        END IF;
    END LOOP;
    RETURN reply;
END
$function$;

-- What lies under some keys, of one snapshot.
--
-- Result: the instant, then of each key how many numbers follow, these numbers as SharedForm::state reads them. A bucket is
-- asked for by kind 5, and by kind 0 by programs of a version below 6, which know no paces.
CREATE OR REPLACE FUNCTION @schema@.peek(p_now bigint, p_keys text[], p_kinds int[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $function$
DECLARE
    row @schema@.state;
    now bigint := @clock@;
    seen bigint[];
    reply bigint[] := ARRAY[now];
BEGIN
    FOR i IN 1 .. cardinality(p_keys) LOOP
        SELECT * INTO row FROM @schema@.state s WHERE s.key = p_keys[i];
        seen := CASE
            WHEN NOT FOUND THEN '{}'
            WHEN p_kinds[i] = 0 THEN ARRAY[row.a, row.b]
            WHEN p_kinds[i] = 5 AND row.unit IS NULL THEN ARRAY[row.a + least(row.b, 1), 0]
            WHEN p_kinds[i] = 5 THEN ARRAY[row.a, row.b, row.since, row.unit, row.base]
            -- A window that is over says nothing, also where windows have been made longer since.
            WHEN p_kinds[i] <= 2 THEN CASE WHEN row.a > now THEN ARRAY[row.a, row.b] ELSE '{}' END
            WHEN row.list IS NULL THEN '{}'
            WHEN p_kinds[i] = 3 THEN row.a || row.list
            ELSE row.list
        END;
        reply := reply || cardinality(seen)::bigint || seen;
    END LOOP;
    RETURN reply;
END
$function$;

-- Corrects charges, in order. Mirrors Settle::refund and Settle::owe.
--
--   p_keys   all keys
--   p_slots  of each correction its key, as a place in p_keys
--   p_kinds  of each its rule
--   p_owes   of each whether it takes more, rather than hands back
--   p_nums   of each the numbers of SharedForm::correction, filled up to seven; up to six by programs of a version below 6
CREATE OR REPLACE FUNCTION @schema@.settle(
    p_now bigint, p_keys text[], p_slots int[], p_kinds int[], p_owes boolean[], p_nums bigint[]
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    units_max CONSTANT bigint := 9007199254740991;
    debt_max CONSTANT bigint := 100::bigint * 366 * 86400 * 1000000;
    row @schema@.state;
    work @schema@.state[] := '{}';
    owes boolean[] := array_fill(false, ARRAY[cardinality(p_keys)]);
    placed boolean[] := owes;
    written boolean[] := owes;
    slot int;
    kind int;
    c1 bigint;
    c2 bigint;
    c3 bigint;
    c4 bigint;
    c5 bigint;
    c6 bigint;
    c7 bigint;
    size CONSTANT int := cardinality(p_nums) / greatest(cardinality(p_slots), 1);
    at_num int;
    tat numeric;
    back numeric;
    elapsed numeric;
@declare@
BEGIN
    FOR i IN 1 .. cardinality(p_slots) LOOP
        owes[p_slots[i]] := owes[p_slots[i]] OR p_owes[i];
    END LOOP;
    FOR slot IN 1 .. cardinality(p_keys) LOOP
        LOOP
            SELECT * INTO row FROM @schema@.state s WHERE s.key = p_keys[slot] FOR UPDATE;
            EXIT WHEN FOUND OR NOT owes[slot];
            INSERT INTO @schema@.state VALUES (p_keys[slot], 0, 0, NULL, 0) ON CONFLICT DO NOTHING;
            placed[slot] := FOUND;
            EXIT WHEN FOUND;
        END LOOP;
        work[slot] := row;
    END LOOP;
    now := @clock@;

    FOR i IN 1 .. cardinality(p_slots) LOOP
        slot := p_slots[i];
        the_key := p_keys[slot];
        row := work[slot];
        has := row.key IS NOT NULL;
        s_a := row.a;
        s_b := row.b;
        s_list := row.list;
        s_since := row.since;
        s_unit := row.unit;
        s_base := row.base;
        kind := p_kinds[i];
        at_num := size * (i - 1);
        c1 := p_nums[at_num + 1];
        c2 := p_nums[at_num + 2];
        c3 := p_nums[at_num + 3];
        c4 := p_nums[at_num + 4];
        c5 := p_nums[at_num + 5];
        c6 := p_nums[at_num + 6];
        c7 := CASE size WHEN 7 THEN p_nums[at_num + 7] END;
        -- A debt has the numbers of a charge.
        IF p_owes[i] AND size < 7 THEN
            c6 := NULL;
        END IF;
        IF p_owes[i] THEN
            @decide@
            IF kind = 0 THEN
                IF n_a >= now + debt_max THEN
                    n_a := now + debt_max;
                    n_b := 0;
                END IF;
                CONTINUE WHEN (f_a, f_b) >= (n_a, n_b);
            ELSIF kind <= 2 THEN
                n_b := least(n_b, units_max);
            ELSIF kind = 4 THEN
                -- What has left the window no longer counts towards the largest debt.
                c1 := least(c1, units_max - used);
                CONTINUE WHEN c1 = 0;
            END IF;
            @charge@
        ELSE
            -- A key without a row has nothing to take back from.
            CONTINUE WHEN NOT has;
            n_a := s_a;
            n_b := s_b;
            n_list := s_list;
            n_idle := row.idle_at;
            n_since := s_since;
            n_unit := s_unit;
            n_base := s_base;
            IF kind = 0 THEN
                tat := CASE
                    WHEN c7 IS NULL THEN s_a::numeric * c6 + least(s_b, c6)
                    WHEN s_unit IS NULL THEN (s_a::numeric + least(s_b, 1)) * c6
                    WHEN s_unit = c7 AND s_base = c6 THEN s_a::numeric * c6 + s_b
                    ELSE @schema@.carried(now, s_a, s_b, s_since, s_unit, s_base, c7, c6)::numeric * c6
                END;
                -- What has come back by itself since, at either pace, is not handed back a second time.
                elapsed := greatest(greatest(now::numeric * c6, tat - (c4::numeric * c6 + c5)) - c1::numeric * c6, 0);
                IF s_unit <> c7 OR s_base <> c6 THEN
                    elapsed := greatest(elapsed, c6::numeric * @schema@.time_at(
                        div(elapsed + c6 - 1, c6)::bigint, 0, s_unit, s_base, c7, c6));
                END IF;
                back := c2::numeric * c6 + c3 - elapsed;
                CONTINUE WHEN back <= 0;
                tat := greatest(tat - back, 0);
                n_a := div(tat, c6);
                n_b := mod(tat, c6);
                n_since := CASE WHEN c7 IS NOT NULL THEN least(greatest(now, coalesce(s_since, 0)), n_a) END;
                n_unit := c7;
                n_base := CASE WHEN c7 IS NOT NULL THEN c6 END;
                n_idle := CASE WHEN n_b = 0 THEN n_a ELSE n_a + 1 END;
            ELSIF kind <= 2 THEN
                CONTINUE WHEN s_a <> c1;
                n_b := greatest(s_b - c2, 0);
            ELSIF kind = 3 THEN
                CONTINUE WHEN s_list IS NULL OR c1 > s_a OR s_a - c1 > c3;
                IF cardinality(s_list) <> c3 + 1 THEN
                    RAISE EXCEPTION '%: no counts of % buckets', the_key, c3 USING ERRCODE = 'TK001';
                END IF;
                gone := c1 % (c3 + 1) + 1;
                n_list[gone] := greatest(s_list[gone] - c2, 0);
            ELSE
                gone := (SELECT 2 * r FROM generate_series(1, cardinality(s_list) / 2) r
                    WHERE s_list[2 * r - 1] = c1 LIMIT 1);
                CONTINUE WHEN gone IS NULL;
                used := least(c2, s_list[gone]);
                n_list[gone] := s_list[gone] - used;
                -- Nothing left of it: it goes, unless its instant is the newest, which holds the log's time.
                IF n_list[gone] = 0 AND gone < cardinality(s_list) THEN
                    n_list := n_list[: gone - 2] || n_list[gone + 1 :];
                END IF;
                n_b := s_b - used;
            END IF;
        END IF;
        work[slot] := ROW(the_key, n_a, n_b, n_list, n_idle, n_since, n_unit, n_base);
        written[slot] := true;
    END LOOP;

    FOR slot IN 1 .. cardinality(p_keys) LOOP
        IF written[slot] THEN
            row := work[slot];
            UPDATE @schema@.state SET a = row.a, b = row.b, list = row.list, idle_at = row.idle_at,
                since = row.since, unit = row.unit, base = row.base WHERE key = p_keys[slot];
        ELSIF placed[slot] THEN
            DELETE FROM @schema@.state WHERE key = p_keys[slot];
        END IF;
    END LOOP;
END
$function$;

-- Forgets keys.
CREATE OR REPLACE FUNCTION @schema@.forget(p_keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $function$
BEGIN
    FOR i IN 1 .. cardinality(p_keys) LOOP
        DELETE FROM @schema@.state WHERE key = p_keys[i];
        DELETE FROM @schema@.pool WHERE key = p_keys[i];
        DELETE FROM @schema@.roll WHERE key = p_keys[i];
        DELETE FROM @schema@.slot_keys WHERE key = p_keys[i];
        -- Without the key's row in hand, leases that came meanwhile would go and stay counted.
        IF FOUND THEN
            DELETE FROM @schema@.slots WHERE key = p_keys[i];
        END IF;
    END LOOP;
END
$function$;

-- Deletes rows that have been idle for p_grace µs, and pools, membership records, leases and names of returns and debits that have
-- been over for as long, at most p_max together, and tells how many. Rows that are held are not idle, so it waits for
-- none.
CREATE OR REPLACE FUNCTION @schema@.sweep(p_now bigint, p_grace bigint, p_max bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    now bigint := @clock@;
    deleted bigint;
    names bigint;
    debits bigint;
    pools bigint;
    slots bigint;
    room bigint;
    idle text;
    over int;
    memberships bigint;
    probes bigint;
BEGIN
    DELETE FROM @schema@.returned WHERE name IN (
        SELECT r.name FROM @schema@.returned r WHERE r.expires < now - p_grace LIMIT p_max FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS names = ROW_COUNT;
    DELETE FROM @schema@.debits WHERE (key, stream) IN (
        SELECT d.key, d.stream FROM @schema@.debits d WHERE d.expires < now - p_grace
        LIMIT p_max - names FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS debits = ROW_COUNT;
    DELETE FROM @schema@.pool WHERE key IN (
        SELECT p.key FROM @schema@.pool p WHERE p.ends < now - p_grace
        LIMIT p_max - names - debits FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS pools = ROW_COUNT;
    -- A key's row goes after its leases, which are all over when it is idle, and stays while some are left.
    room := p_max - names - debits - pools;
    FOR idle IN SELECT k.key FROM @schema@.slot_keys k WHERE k.idle_at < now - p_grace LIMIT room FOR UPDATE SKIP LOCKED LOOP
        EXIT WHEN room = 0;
        DELETE FROM @schema@.slots WHERE key = idle AND (lease, owner) IN (
            SELECT s.lease, s.owner FROM @schema@.slots s WHERE s.key = idle LIMIT room
        );
        GET DIAGNOSTICS over = ROW_COUNT;
        room := room - over;
        IF room > 0 THEN
            DELETE FROM @schema@.slot_keys WHERE key = idle;
            room := room - 1;
        ELSE
            UPDATE @schema@.slot_keys SET held = held - over WHERE key = idle;
        END IF;
    END LOOP;
    slots := p_max - names - debits - pools - room;
    DELETE FROM @schema@.roll WHERE key IN (
        SELECT r.key FROM @schema@.roll r WHERE r.expires < now - p_grace
        LIMIT p_max - names - debits - pools - slots FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS memberships = ROW_COUNT;
    -- Of handles that are gone, as a rule: one that is not writes its row again.
    DELETE FROM @schema@.probe WHERE handle IN (
        SELECT p.handle FROM @schema@.probe p WHERE p.at < now - p_grace - 86400000000
        LIMIT p_max - names - debits - pools - slots - memberships FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS probes = ROW_COUNT;
    -- Last, since it is the largest to search and its rows are waited for.
    DELETE FROM @schema@.state WHERE key IN (
        SELECT s.key FROM @schema@.state s WHERE s.idle_at < now - p_grace
        LIMIT p_max - names - debits - pools - slots - memberships - probes FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted + names + debits + pools + slots + memberships + probes;
END
$function$;
