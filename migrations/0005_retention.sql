-- Retention: removing old events.

-- Removes the oldest events of a stream, at most max_events and none with a number above through, and returns how many it
-- removed. Raises the stream's low-water mark in the same transaction.
--
-- One call is one bounded step that blocks appends to the stream. Call it again for as long as it returns max_events.
CREATE FUNCTION @schema@.trim_stream(
    stream_key text,
    through bigint,
    max_events integer DEFAULT 1000,
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET row_security = off SET enable_seqscan = off SET enable_indexscan = on AS $$
DECLARE
    last_seq bigint;
    last_xid xid8;
    last_id uuid;
    removed bigint;
    previous_timeout text;
BEGIN
    IF trim_stream.lock_timeout_ms IS NOT NULL THEN
        previous_timeout := current_setting('lock_timeout');
        PERFORM set_config('lock_timeout', trim_stream.lock_timeout_ms::text, true);
    END IF;
    PERFORM @schema@.lock_stream(trim_stream.stream_key, any_key => true);
    SELECT max(oldest.seq) INTO last_seq
    FROM (
        SELECT e.seq FROM @schema@.events e
        WHERE e.stream_key = trim_stream.stream_key AND e.seq <= trim_stream.through
        ORDER BY e.seq LIMIT trim_stream.max_events
    ) AS oldest;
    IF last_seq IS NULL THEN
        IF trim_stream.lock_timeout_ms IS NOT NULL THEN
            PERFORM set_config('lock_timeout', previous_timeout, true);
        END IF;
        RETURN 0;
    END IF;
    SELECT e.xid, e.event_id INTO last_xid, last_id FROM @schema@.events e WHERE e.stream_key = trim_stream.stream_key AND e.seq = last_seq;
    DELETE FROM @schema@.events e WHERE e.stream_key = trim_stream.stream_key AND e.seq <= last_seq;
    GET DIAGNOSTICS removed = ROW_COUNT;
    INSERT INTO @schema@.low_water_marks AS m (stream_key, low_water, low_water_xid, low_water_id)
    VALUES (trim_stream.stream_key, last_seq, last_xid, last_id)
    ON CONFLICT ON CONSTRAINT low_water_marks_pkey DO UPDATE
    SET low_water = greatest(m.low_water, excluded.low_water), low_water_xid = excluded.low_water_xid,
        low_water_id = CASE WHEN m.low_water > excluded.low_water THEN m.low_water_id ELSE excluded.low_water_id END;
    IF trim_stream.lock_timeout_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', previous_timeout, true);
    END IF;
    RETURN removed;
END
$$;
REVOKE EXECUTE ON FUNCTION @schema@.trim_stream FROM PUBLIC;

-- Calls trim_stream for several streams, with the element of throughs for each, and returns how many events it removed in all. If
-- there is more than one, never waits for a lock, which would delay appends to those that it has locked already: streams that
-- another transaction has locked are skipped and returned in locked_keys.
CREATE FUNCTION @schema@.trim_streams(
    IN stream_keys text[],
    IN throughs bigint[],
    IN max_events integer DEFAULT 1000,
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT removed bigint,
    OUT locked_keys text[]
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    stream record;
BEGIN
    removed := 0;
    locked_keys := '{}';
    FOR stream IN
        SELECT s.k, s.through FROM unnest(trim_streams.stream_keys, trim_streams.throughs) AS s (k, through)
    LOOP
        IF cardinality(trim_streams.stream_keys) = 1 OR @schema@.try_lock_stream(stream.k) THEN
            removed := removed
                + @schema@.trim_stream(stream.k, stream.through, trim_streams.max_events, trim_streams.lock_timeout_ms);
        ELSE
            locked_keys := locked_keys || stream.k;
        END IF;
    END LOOP;
END
$$;

-- Lists at most max_streams streams with keys above after_key, in key order, with the oldest event of each, its age in seconds, and
-- the last event.
CREATE FUNCTION @schema@.stream_extents(
    after_key text,
    max_streams integer,
    OUT stream_key text,
    OUT oldest_seq bigint,
    OUT oldest_age double precision,
    OUT last_seq bigint
) RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s' SET enable_seqscan = off SET enable_indexscan = on SET jit = off AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE oldest AS (
        (SELECT e.stream_key, e.seq, e.appended_at FROM @schema@.events e
            WHERE e.stream_key > after_key ORDER BY e.stream_key, e.seq LIMIT 1)
        UNION ALL
        SELECT above.stream_key, above.seq, above.appended_at
        FROM oldest o
        CROSS JOIN LATERAL (
            SELECT e.stream_key, e.seq, e.appended_at FROM @schema@.events e
            WHERE e.stream_key > o.stream_key ORDER BY e.stream_key, e.seq LIMIT 1) AS above
    )
    -- The difference of two numbers: that of two times fails if one of them is infinite.
    SELECT o.stream_key, o.seq, date_part('epoch', clock_timestamp()) - date_part('epoch', o.appended_at),
        (SELECT e.seq FROM @schema@.events e WHERE e.stream_key = o.stream_key ORDER BY e.seq DESC LIMIT 1)
    FROM oldest o LIMIT max_streams;
END
$$;

-- Examines the oldest max_events events of a stream, and returns the number of the last one that was appended before cutoff, with
-- all its predecessors; null if there is none.
CREATE FUNCTION @schema@.last_seq_before(stream_key text, cutoff timestamptz, max_events integer) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s' SET enable_seqscan = off SET enable_indexscan = on AS $$
BEGIN
    -- Stops at the first younger event: the server's clock may have been set back, but events are removed in order.
    RETURN (
        SELECT max(w.seq)
        FROM (
            SELECT e.seq, bool_and(e.appended_at < cutoff) OVER (ORDER BY e.seq) AS old
            FROM (
                SELECT e.seq, e.appended_at FROM @schema@.events e
                WHERE e.stream_key = last_seq_before.stream_key ORDER BY e.seq LIMIT max_events
            ) AS e
        ) AS w
        WHERE w.old);
END
$$;

-- Calls last_seq_before for several streams, with the time that lies age seconds back, and returns the results in array order.
CREATE FUNCTION @schema@.last_seqs_before(stream_keys text[], age double precision, max_events integer) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    cutoff timestamptz := clock_timestamp() - make_interval(secs => last_seqs_before.age);
BEGIN
    RETURN ARRAY(
        SELECT @schema@.last_seq_before(s.k, cutoff, last_seqs_before.max_events)
        FROM unnest(last_seqs_before.stream_keys) WITH ORDINALITY AS s (k, i) ORDER BY s.i);
END
$$;
