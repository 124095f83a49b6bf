-- Reading. Every row is found by a probe of the primary key. The plan settings leave the planner no other choice: a plan that is
-- cached while the tables are small is still used after they have grown. A read waits for a lock of a whole table for 5 s at most: the
-- process of the server would wait on after the client has given up.

-- Returns argument if this is the expected server: a primary that was started at this time, in UTC, to the microsecond.
-- Otherwise raises RB003. Any server is the expected one if expected is null. As an argument of the other functions' calls, it runs
-- before they read or write anything.
CREATE FUNCTION @schema@.require_server(expected text, argument anyelement) RETURNS anyelement
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF expected IS NOT NULL THEN
        IF pg_is_in_recovery() THEN
            RAISE EXCEPTION 'the server is a standby' USING ERRCODE = 'RB003', DETAIL = 'standby';
        ELSIF to_char(timezone('UTC', pg_postmaster_start_time()), 'YYYY-MM-DD HH24:MI:SS.US') <> expected THEN
            RAISE EXCEPTION 'the server is not the one that the listening connection reaches'
                USING ERRCODE = 'RB003', DETAIL = 'other';
        END IF;
    END IF;
    RETURN argument;
END
$$;

-- Reads several streams in one snapshot: from each, at most max_events events with numbers above its element of after. Returns at
-- least one row per requested range, in array order, numbered by ordinal from 1; a range without events has one row, with nulls
-- for the event. A low-water mark above the last event, which takes a row that was changed by hand, is returned as the number of that
-- event: the stream continues there. Where the mark is above after, low_water_id is the ID of the last removed event.
--
-- Ends early once the payloads have max_bytes in all: then more is true in the last row, its range may have more events, and the ranges
-- after it have no row. So neither a page of large events nor many pages take longer than a server or a link allows. The payload of an
-- event is null if payload_text() returns null.
CREATE FUNCTION @schema@.replay_many(
    stream_keys text[],
    after bigint[],
    max_events bigint,
    max_bytes bigint DEFAULT 9223372036854775807,
    OUT ordinal bigint,
    OUT low_water bigint,
    OUT low_water_id bytea,
    OUT seq bigint,
    OUT event_id bytea,
    OUT previous_id bytea,
    OUT appended_at double precision,
    OUT payload text,
    OUT more boolean
) RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    stored jsonb;
    bytes bigint := 0;
BEGIN
    more := false;
    -- The loop fetches rows ahead, so it fetches payloads as they are stored. Without a sort, which would read all rows before the first:
    -- a nested loop keeps the order of the ranges, and of the index within each.
    FOR ordinal, low_water, low_water_id, seq, event_id, previous_id, appended_at, stored IN
        SELECT r.ordinal,
            CASE
                WHEN m.low_water > r.after THEN least(m.low_water, (
                    SELECT events.seq FROM @schema@.events WHERE events.stream_key = r.stream_key ORDER BY events.seq DESC LIMIT 1))
                ELSE coalesce(m.low_water, 0)
            END,
            CASE WHEN m.low_water > r.after THEN uuid_send(m.low_water_id) END,
            e.seq, uuid_send(e.event_id), uuid_send(e.previous_id), date_part('epoch', e.appended_at), e.payload
        FROM unnest(replay_many.stream_keys, replay_many.after) WITH ORDINALITY AS r (stream_key, after, ordinal)
        LEFT JOIN LATERAL (
            SELECT low_water_marks.low_water, low_water_marks.low_water_id FROM @schema@.low_water_marks
            WHERE low_water_marks.stream_key = r.stream_key LIMIT 1) AS m ON true
        LEFT JOIN LATERAL (
            SELECT events.seq, events.event_id, events.previous_id, events.appended_at, events.payload FROM @schema@.events
            WHERE events.stream_key = r.stream_key AND events.seq > r.after ORDER BY events.seq LIMIT max_events) AS e ON true
    LOOP
        IF pg_column_size(stored) <= 4096 AND pg_column_compression(stored) IS NULL THEN
            payload := stored::text;
        ELSE
            payload := @schema@.payload_text(stored);
        END IF;
        bytes := bytes + coalesce(octet_length(payload), 0);
        more := bytes >= max_bytes;
        RETURN NEXT;
        EXIT WHEN more;
    END LOOP;
END
$$;

-- Returns the highest sequence number of each stream, in array order, counting removed events; 0 for a stream that does not exist.
CREATE FUNCTION @schema@.high_waters(stream_keys text[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT coalesce(
            (SELECT e.seq FROM @schema@.events e WHERE e.stream_key = r.stream_key ORDER BY e.seq DESC LIMIT 1),
            (SELECT m.low_water FROM @schema@.low_water_marks m WHERE m.stream_key = r.stream_key LIMIT 1),
            0)
        FROM unnest(high_waters.stream_keys) WITH ORDINALITY AS r (stream_key, ordinal)
        ORDER BY r.ordinal);
END
$$;

-- Returns the ID of the event with each stream key and sequence number, in array order; null where there is no event. That of the last
-- removed event of a stream is known as well.
CREATE FUNCTION @schema@.event_ids(stream_keys text[], seqs bigint[]) RETURNS bytea[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT uuid_send(coalesce(
            (SELECT e.event_id FROM @schema@.events e WHERE e.stream_key = r.stream_key AND e.seq = r.seq LIMIT 1),
            (SELECT m.low_water_id FROM @schema@.low_water_marks m WHERE m.stream_key = r.stream_key AND m.low_water = r.seq LIMIT 1)))
        FROM unnest(event_ids.stream_keys, event_ids.seqs) WITH ORDINALITY AS r (stream_key, seq, ordinal)
        ORDER BY r.ordinal);
END
$$;
