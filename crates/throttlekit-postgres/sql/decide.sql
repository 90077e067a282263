-- Fragment: whether a charge passes. Mirrors Rule::decide of each rule in throttlekit-core.
--
--   in    kind, c1 … c6   the charge in the numbers of SharedForm::charge (c6 is missing where a program of an older version asks); a budget's kind is its window's, below zero
--         now             µs
--         has, s_a, s_b, s_list, s_since, s_unit, s_base   the row, if there is one
--   out   ok, seen        whether it passes, and the state before as SharedForm::seen reads it
--         what the fragment of charges goes on from
seen := '{}';
IF has AND (s_a < 0 OR s_b < 0 OR s_b > 9007199254740991 OR (kind > 2 AND s_list IS NULL)
    OR (kind = 0 AND s_unit IS NOT NULL AND NOT coalesce(
        s_unit > 0 AND s_b < s_base AND s_since BETWEEN 0 AND s_a AND greatest(s_unit, s_base) <= 4503599627370496, false))) THEN
    RAISE EXCEPTION '%: a number that is missing or out of range', the_key USING ERRCODE = 'TK001';
END IF;
IF kind = 0 THEN -- GCRA, in whole microseconds and ticks of which there are c5 in one and c6 in a unit
    f_a := now;
    f_b := 0;
    IF s_a >= now THEN
        IF c6 IS NULL THEN -- from a program that keeps no paces
            f_a := s_a;
            f_b := least(s_b, c5);
            seen := ARRAY[s_a, s_b];
        ELSIF s_unit IS NULL THEN -- by such a program
            s_a := s_a + least(s_b, 1);
            s_b := 0;
            f_a := s_a;
            seen := ARRAY[s_a, 0];
        ELSIF s_unit = c6 AND s_base = c5 THEN
            f_a := s_a;
            f_b := s_b;
            seen := ARRAY[s_a, s_b];
        ELSE
            f_a := greatest(@schema@.carried(now, s_a, s_b, s_since, s_unit, s_base, c6, c5), now);
            seen := ARRAY[s_a, s_b, s_since, s_unit, s_base];
        END IF;
    END IF;
    n_a := f_a + c1;
    n_b := f_b + c2;
    IF n_b >= c5 THEN
        n_a := n_a + 1;
        n_b := n_b - c5;
    END IF;
    ok := n_a < now + c3 OR (n_a = now + c3 AND n_b <= c4);
ELSIF kind <= 2 THEN -- windows: the one in the row lasts until its end, however the clock went
    IF s_a > now THEN
        n_a := s_a;
        n_b := s_b + c1;
        seen := ARRAY[s_a, s_b];
    ELSE
        n_a := CASE abs(kind) WHEN 1 THEN ((now + c4) / c3 + 1) * c3 - c4 ELSE @schema@.period_end(now, c3, c4) END;
        n_b := c1;
    END IF;
    -- A budget may be crossed while any unit is left.
    ok := CASE WHEN kind < 0 THEN n_b - c1 < c2 ELSE n_b <= c2 END OR c1 = 0;
ELSIF kind = 3 THEN -- sliding window of c4 buckets; a bucket is c3 long in 1/c4 µs
    places := c4 + 1;
    scaled := now * c4;
    used := 0;
    leaving := 0;
    IF s_list IS NOT NULL THEN
        IF cardinality(s_list) = places AND 0 <= ALL (s_list) AND 9007199254740991 >= ALL (s_list) THEN
            seen := s_a || s_list;
        ELSE
            RAISE EXCEPTION '%: no counts of % buckets', the_key, c4 USING ERRCODE = 'TK001';
        END IF;
        scaled := greatest(scaled, s_a * c3);
    END IF;
    tick := scaled / c3;
    IF s_list IS NOT NULL THEN
        FOR age IN least(tick - s_a, c4) .. least(tick, c4 - 1) LOOP
            used := used + s_list[((tick - age) % places + 1)::int];
        END LOOP;
        IF tick >= c4 AND tick - c4 <= s_a THEN
            leaving := s_list[((tick - c4) % places + 1)::int];
        END IF;
    END IF;
    -- What is leaving counts by the part still inside: leaving · (c3 − elapsed) ≤ room · c3. The product needs more
    -- than 63 bits, so it is only made where what is leaving does not fit as a whole.
    ok := used + c1 <= c2
        AND (leaving <= c2 - used - c1
            OR leaving::numeric * (c3 - scaled % c3) <= (c2 - used - c1)::numeric * c3);
ELSE -- sliding log over the last c3
    runs := coalesce(cardinality(s_list), 0) / 2;
    gone := 0;
    used := 0;
    latest := now;
    IF s_list IS NOT NULL THEN
        IF cardinality(s_list) = 2 * runs AND 0 <= ALL (s_list) AND s_list[2 * runs - 1] = s_a THEN
            latest := greatest(now, s_a);
            used := s_b;
        ELSE
            RAISE EXCEPTION '%: no log', the_key USING ERRCODE = 'TK001';
        END IF;
    END IF;
    WHILE gone < runs AND s_list[2 * gone + 1] + c3 <= latest LOOP
        used := used - s_list[2 * gone + 2];
        gone := gone + 1;
    END LOOP;
    ok := c1 <= greatest(c2 - used, 0);
    IF gone < runs THEN
        -- Of a denied ask also the run whose leaving makes room: the units before it, and with it.
        before := 0;
        through := 0;
        enough := 0;
        IF NOT ok AND c1 <= c2 THEN
            FOR run IN gone .. runs - 1 LOOP
                enough := s_list[2 * run + 1];
                before := through;
                through := through + s_list[2 * run + 2];
                EXIT WHEN through >= c1 + used - c2;
            END LOOP;
        END IF;
        seen := ARRAY[s_a, used, s_list[2 * gone + 1], enough, before, through];
    END IF;
END IF;
