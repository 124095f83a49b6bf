-- Reading. Each place is found by a probe of the primary key: the planner is not asked, since a plan that was made when the tables
-- were small is kept while they grow.

-- Stretches of several streams in one snapshot: of each at most max_events with numbers above its own of after. There is at least
-- one row for each stretch, in the order of the arrays: without events it has the floor only, and nulls.
CREATE FUNCTION replay_many(
    stream_keys text[],
    after bigint[],
    max_events bigint,
    OUT place bigint,
    OUT low_water bigint,
    OUT seq bigint,
    OUT event_id uuid,
    OUT appended_at timestamptz,
    OUT payload jsonb
) RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT r.place, coalesce(f.low_water, 0), e.seq, e.event_id, e.appended_at, e.payload
    FROM unnest(replay_many.stream_keys, replay_many.after) WITH ORDINALITY AS r (stream_key, after, place)
    LEFT JOIN LATERAL (
        SELECT low_water_marks.low_water FROM low_water_marks WHERE low_water_marks.stream_key = r.stream_key LIMIT 1) AS f ON true
    LEFT JOIN LATERAL (
        SELECT events.seq, events.event_id, events.appended_at, events.payload FROM events
        WHERE events.stream_key = r.stream_key AND events.seq > r.after ORDER BY events.seq LIMIT max_events) AS e ON true
    ORDER BY r.place, e.seq;
END
$$;

-- The highest number of each stream, removed events included, in the order of the array; 0 where there is none.
CREATE FUNCTION high_waters(stream_keys text[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT coalesce(
            (SELECT e.seq FROM events e WHERE e.stream_key = r.stream_key ORDER BY e.seq DESC LIMIT 1),
            (SELECT f.low_water FROM low_water_marks f WHERE f.stream_key = r.stream_key LIMIT 1),
            0)
        FROM unnest(high_waters.stream_keys) WITH ORDINALITY AS r (stream_key, place)
        ORDER BY r.place);
END
$$;

-- The identity of the event at each place, in the order of the arrays; null where there is none.
CREATE FUNCTION identities(stream_keys text[], seqs bigint[]) RETURNS uuid[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT (SELECT e.event_id FROM events e WHERE e.stream_key = r.stream_key AND e.seq = r.seq LIMIT 1)
        FROM unnest(identities.stream_keys, identities.seqs) WITH ORDINALITY AS r (stream_key, seq, place)
        ORDER BY r.place);
END
$$;
