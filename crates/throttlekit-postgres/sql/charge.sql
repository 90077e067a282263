-- Fragment: the row after a charge. Mirrors Rule::charge; goes on from the fragment that decides.
--
--   out   n_a, n_b, n_list, n_idle, n_since, n_unit, n_base
n_list := NULL;
n_since := NULL;
n_unit := NULL;
n_base := NULL;
IF kind = 0 THEN
    n_idle := CASE WHEN n_b = 0 THEN n_a ELSE n_a + 1 END;
    -- Time does not move back for a bucket: it is not written before it was.
    IF c6 IS NOT NULL THEN
        n_since := least(greatest(now, coalesce(s_since, 0)), n_a);
        n_unit := c6;
        n_base := c5;
    END IF;
ELSIF kind <= 2 THEN
    n_idle := n_a;
ELSIF kind = 3 THEN
    IF s_list IS NULL THEN
        n_list := array_fill(0::bigint, ARRAY[places::int]);
    ELSE
        n_list := s_list;
        FOR age IN 0 .. least(tick - s_a, places) - 1 LOOP
            n_list[((tick - age) % places + 1)::int] := 0;
        END LOOP;
    END IF;
    n_list[(tick % places + 1)::int] := least(n_list[(tick % places + 1)::int] + c1, 9007199254740991);
    n_a := tick;
    n_b := 0;
    n_idle := ((tick + 1 + c4) * c3 + c4 - 1) / c4;
ELSE
    n_list := s_list[2 * gone + 1 :];
    IF gone < runs AND s_a = latest THEN
        n_list[2 * (runs - gone)] := n_list[2 * (runs - gone)] + c1;
    ELSE
        -- One that was handed back in full stood only for its instant, which this one is not before.
        IF gone < runs AND n_list[2 * (runs - gone)] = 0 THEN
            n_list := n_list[: 2 * (runs - gone) - 2];
        END IF;
        n_list := n_list || ARRAY[latest, c1];
    END IF;
    n_a := latest;
    n_b := used + c1;
    n_idle := latest + c3;
END IF;
