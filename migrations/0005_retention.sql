-- Removing old events. Each call is one bounded step, which locks the stream against appends; call it again while it removes as many as it may.

-- Removes events of a stream up to number through, the oldest first and at most max_events, and returns how many it removed. The
-- floor moves in the same transaction.
CREATE FUNCTION trim_stream(
    stream_key text,
    through bigint,
    max_events integer DEFAULT 1000,
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    last bigint;
    last_xid xid8;
    removed bigint;
BEGIN
    PERFORM lock_stream(trim_stream.stream_key, trim_stream.lock_timeout_ms);
    SELECT max(oldest.seq) INTO last
    FROM (
        SELECT e.seq FROM events e
        WHERE e.stream_key = trim_stream.stream_key AND e.seq <= trim_stream.through
        ORDER BY e.seq LIMIT trim_stream.max_events
    ) AS oldest;
    IF last IS NULL THEN
        RETURN 0;
    END IF;
    SELECT e.xid INTO last_xid FROM events e WHERE e.stream_key = trim_stream.stream_key AND e.seq = last;
    DELETE FROM events e WHERE e.stream_key = trim_stream.stream_key AND e.seq <= last;
    GET DIAGNOSTICS removed = ROW_COUNT;
    INSERT INTO low_water_marks AS f (stream_key, low_water, low_water_xid)
    VALUES (trim_stream.stream_key, last, last_xid)
    ON CONFLICT ON CONSTRAINT low_water_marks_pkey DO UPDATE
    SET low_water = greatest(f.low_water, excluded.low_water), low_water_xid = excluded.low_water_xid;
    RETURN removed;
END
$$;

-- The streams with keys above after_key, at most max_streams: what retention decides by.
CREATE FUNCTION stream_ages(
    after_key text,
    max_streams integer,
    OUT stream_key text,
    OUT oldest_seq bigint,
    OUT oldest_appended_at timestamptz,
    OUT last_seq bigint
) RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE oldest AS (
        (SELECT e.stream_key, e.seq, e.appended_at FROM events e
            WHERE e.stream_key > after_key ORDER BY e.stream_key, e.seq LIMIT 1)
        UNION ALL
        SELECT above.stream_key, above.seq, above.appended_at
        FROM oldest o
        CROSS JOIN LATERAL (
            SELECT e.stream_key, e.seq, e.appended_at FROM events e
            WHERE e.stream_key > o.stream_key ORDER BY e.stream_key, e.seq LIMIT 1) AS above
    )
    SELECT o.stream_key, o.seq, o.appended_at,
        (SELECT e.seq FROM events e WHERE e.stream_key = o.stream_key ORDER BY e.seq DESC LIMIT 1)
    FROM oldest o LIMIT max_streams;
END
$$;

-- The last of the oldest events of a stream that were appended before cutoff, looking at no more than max_events; null if none was.
CREATE FUNCTION last_before(stream_key text, cutoff timestamptz, max_events integer) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    -- Up to the first that is younger: the clock may have been set back, and numbers are removed in their order.
    RETURN (
        SELECT max(w.seq)
        FROM (
            SELECT e.seq, bool_and(e.appended_at < cutoff) OVER (ORDER BY e.seq) AS old
            FROM (
                SELECT e.seq, e.appended_at FROM events e
                WHERE e.stream_key = last_before.stream_key ORDER BY e.seq LIMIT max_events
            ) AS e
        ) AS w
        WHERE w.old);
END
$$;
