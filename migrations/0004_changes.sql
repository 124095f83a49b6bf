-- Which streams have changed since a watermark, for readers that cannot rely on notifications alone.

-- Returns what the server tells about itself, null for what it does not tell: managed services lack some of these functions.
CREATE FUNCTION @schema@.server_identity(OUT system_identifier bigint, OUT started_at timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    BEGIN
        SELECT c.system_identifier INTO server_identity.system_identifier FROM pg_control_system() c;
    EXCEPTION
        WHEN OTHERS THEN NULL;
    END;
    BEGIN
        started_at := pg_postmaster_start_time();
    EXCEPTION
        WHEN OTHERS THEN NULL;
    END;
END
$$;

-- Whether the transaction IDs in the tables are this cluster's. They are not in a restored dump, and after pg_upgrade nobody knows,
-- until rebind_after_restore() is called.
CREATE FUNCTION @schema@.is_bound(system_identifier bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s' AS $$
BEGIN
    -- Every row must be of this cluster. A second one comes with the data of a dump, or from a publisher.
    RETURN coalesce((
        SELECT bool_and(i.bound_by IS NOT DISTINCT FROM i.xmin
            AND i.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND coalesce(i.system_identifier = is_bound.system_identifier, true))
        FROM @schema@.history_identity i), false);
END
$$;

-- Identifies what a watermark's transaction IDs belong to: this cluster, database and server start, and so this timeline. Null where
-- transaction IDs are meaningless: on a standby, whose snapshots do not list running transactions; in a restored dump until
-- rebind_after_restore() is called; and on a server that does not tell when it was started.
CREATE FUNCTION @schema@.history_identity() RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s' AS $$
DECLARE
    server record;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    server := @schema@.server_identity();
    IF server.started_at IS NULL OR NOT @schema@.is_bound(server.system_identifier) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT concat_ws('/', i.id, i.system_identifier, i.database, i.bound_by, extract(epoch FROM server.started_at))
        FROM @schema@.history_identity i);
END
$$;

-- Binds the tables to this cluster and database, if they are bound to another one or to none: after the migrations, and after a
-- dump was restored. Returns whether anything was changed.
CREATE FUNCTION @schema@.rebind_after_restore() RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET row_security = off AS $$
DECLARE
    current_system bigint := (SELECT s.system_identifier FROM @schema@.server_identity() AS s);
    inserted_by xid;
BEGIN
    IF @schema@.is_bound(current_system) THEN
        RETURN false;
    END IF;
    -- Block appends while transaction IDs are rewritten; readers are not blocked.
    LOCK TABLE @schema@.events, @schema@.low_water_marks, @schema@.history_identity IN SHARE ROW EXCLUSIVE MODE;
    IF @schema@.is_bound(current_system) THEN
        RETURN false;
    END IF;
    -- Transaction IDs of another cluster may lie in this one's future, and their rows would count as invisible. IDs in the past
    -- do no harm.
    UPDATE @schema@.events SET xid = pg_current_xact_id() WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());
    UPDATE @schema@.low_water_marks SET low_water_xid = pg_current_xact_id() WHERE low_water_xid >= pg_snapshot_xmin(pg_current_snapshot());
    DELETE FROM @schema@.history_identity;
    INSERT INTO @schema@.history_identity (system_identifier, database)
    SELECT current_system, d.oid FROM pg_database d WHERE d.datname = current_database()
    RETURNING xmin INTO inserted_by;
    -- The new version of the row has the same xmin: it is not written by another subtransaction.
    UPDATE @schema@.history_identity SET bound_by = inserted_by;
    RETURN true;
END
$$;

SELECT @schema@.rebind_after_restore();

-- Lists at most max_streams streams with events that became visible after the watermark since. Without a watermark, or with one
-- that is meaningless here, lists all streams and sets complete. The returned watermark continues the list if more is set, and
-- is the starting point for later changes otherwise. What becomes visible while the pages are read is on one of them, or above
-- the last watermark, or both.
--
-- STABLE, so that everything here is read with the snapshot that the watermark names.
CREATE FUNCTION @schema@.changed_since(
    IN since text,
    IN max_streams integer,
    OUT stream_keys text[],
    OUT high_waters bigint[],
    OUT event_ids bytea[],
    OUT watermark text,
    OUT more boolean,
    OUT complete boolean
)
-- Every step is an index probe, whatever the planner estimates.
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s' SET enable_seqscan = off SET enable_indexscan = on SET jit = off AS $$
DECLARE
    start jsonb := changed_since.since::jsonb;
    current_identity text := @schema@.history_identity();
    -- What was visible at the watermark.
    since_snapshot pg_snapshot;
    -- What all pages of this list describe.
    upto_snapshot pg_snapshot;
    -- Transactions that were running at the watermark.
    running_xids xid8[];
    -- Where this page starts.
    from_key text;
    after_xid xid8;
    after_key text;
    xids text[];
BEGIN
    -- On a standby, a watermark can only continue a list of all streams.
    IF start ->> 'history_identity' IS DISTINCT FROM current_identity OR start IS NULL THEN
        start := '{}';
    END IF;
    complete := start ->> 'since' IS NULL;
    upto_snapshot := coalesce(
        (start ->> 'upto')::pg_snapshot,
        CASE WHEN current_identity IS NOT NULL THEN pg_current_snapshot() END);
    IF complete THEN
        from_key := coalesce(
            start ->> 'from_key',
            greatest((SELECT max(e.stream_key) FROM @schema@.events e), (SELECT max(m.stream_key) FROM @schema@.low_water_marks m)));
        -- In descending order of keys, one probe of the primary key finds both a stream and its last event.
        WITH RECURSIVE heads AS (
            (SELECT e.stream_key, e.seq, e.event_id FROM @schema@.events e
                WHERE e.stream_key <= from_key ORDER BY e.stream_key DESC, e.seq DESC LIMIT 1)
            UNION ALL
            SELECT below.stream_key, below.seq, below.event_id
            FROM heads h
            CROSS JOIN LATERAL (
                SELECT e.stream_key, e.seq, e.event_id FROM @schema@.events e
                WHERE e.stream_key < h.stream_key ORDER BY e.stream_key DESC, e.seq DESC LIMIT 1) AS below
        ), page AS (
            (SELECT h.stream_key, h.seq, h.event_id FROM heads h LIMIT max_streams + 1)
            UNION ALL
            -- Streams whose events have all been removed.
            (SELECT m.stream_key, m.low_water, m.low_water_id FROM @schema@.low_water_marks m
                WHERE m.stream_key <= from_key AND m.low_water > 0
                    AND (SELECT e.seq FROM @schema@.events e WHERE e.stream_key = m.stream_key LIMIT 1) IS NULL
                ORDER BY m.stream_key DESC LIMIT max_streams + 1)
            ORDER BY stream_key DESC LIMIT max_streams + 1
        )
        SELECT array_agg(p.stream_key ORDER BY p.stream_key DESC), array_agg(p.seq ORDER BY p.stream_key DESC),
            array_agg(uuid_send(p.event_id) ORDER BY p.stream_key DESC)
        INTO stream_keys, high_waters, event_ids FROM page p;
        more := coalesce(cardinality(stream_keys) > max_streams, false);
        IF more THEN
            watermark := jsonb_build_object('history_identity', current_identity, 'upto', upto_snapshot::text,
                'from_key', stream_keys[max_streams + 1])::text;
        END IF;
    ELSE
        since_snapshot := (start ->> 'since')::pg_snapshot;
        after_xid := coalesce((start ->> 'after_xid')::xid8, '0');
        after_key := coalesce(start ->> 'after_key', '');
        running_xids := ARRAY(SELECT x FROM pg_snapshot_xip(since_snapshot) AS x WHERE x >= after_xid);
        -- An event that was invisible at the watermark was appended by a transaction that was running then, perhaps for a long
        -- time, or that had not begun. Each stream is listed once, at its last event that upto_snapshot shows.
        SELECT array_agg(p.stream_key ORDER BY p.xid, p.stream_key), array_agg(p.seq ORDER BY p.xid, p.stream_key),
            array_agg(uuid_send(p.event_id) ORDER BY p.xid, p.stream_key), array_agg(p.xid::text ORDER BY p.xid, p.stream_key)
        INTO stream_keys, high_waters, event_ids, xids
        FROM (
            SELECT c.xid, c.stream_key, c.seq, c.event_id
            FROM (
                SELECT e.xid, e.stream_key, e.seq, e.event_id FROM @schema@.events e WHERE e.xid = ANY (running_xids)
                UNION ALL
                SELECT e.xid, e.stream_key, e.seq, e.event_id FROM @schema@.events e
                WHERE e.xid >= greatest(pg_snapshot_xmax(since_snapshot), after_xid) AND e.xid < pg_snapshot_xmax(upto_snapshot)
                UNION ALL
                -- If the last event was removed since, its stream has changed all the same.
                SELECT m.low_water_xid, m.stream_key, m.low_water, m.low_water_id FROM @schema@.low_water_marks m
                WHERE m.low_water_xid = ANY (running_xids)
                UNION ALL
                SELECT m.low_water_xid, m.stream_key, m.low_water, m.low_water_id FROM @schema@.low_water_marks m
                WHERE m.low_water_xid >= greatest(pg_snapshot_xmax(since_snapshot), after_xid)
                    AND m.low_water_xid < pg_snapshot_xmax(upto_snapshot)
            ) AS c
            WHERE pg_visible_in_snapshot(c.xid, upto_snapshot)
                AND (c.xid, c.stream_key) > (after_xid, after_key COLLATE "C")
                AND NOT coalesce((
                    SELECT pg_visible_in_snapshot(s.xid, upto_snapshot) FROM @schema@.events s
                    WHERE s.stream_key = c.stream_key AND s.seq > c.seq ORDER BY s.seq LIMIT 1), false)
            ORDER BY c.xid, c.stream_key
            LIMIT max_streams + 1
        ) AS p;
        more := coalesce(cardinality(stream_keys) > max_streams, false);
        IF more THEN
            watermark := jsonb_build_object('history_identity', current_identity, 'since', since_snapshot::text,
                'upto', upto_snapshot::text, 'after_xid', xids[max_streams], 'after_key', stream_keys[max_streams])::text;
        END IF;
    END IF;
    IF NOT more THEN
        watermark := jsonb_build_object('history_identity', current_identity, 'since', upto_snapshot::text)::text;
    END IF;
    stream_keys := coalesce(stream_keys[:max_streams], '{}');
    high_waters := coalesce(high_waters[:max_streams], '{}');
    event_ids := coalesce(event_ids[:max_streams], '{}');
END
$$;

-- Returns the number and the ID of the last event of each stream, in array order, whether or not the event has been removed: 0 and null
-- for a stream that does not exist. Also returns a watermark for first_recent(), null where transaction IDs are meaningless, and whether the
-- server is a standby, which may not have all events yet.
--
-- STABLE, so that the watermark names the snapshot with which the numbers are read.
CREATE FUNCTION @schema@.heads(
    IN stream_keys text[],
    OUT seqs bigint[],
    OUT event_ids bytea[],
    OUT watermark text,
    OUT is_standby boolean
)
-- Without JIT: history_identity() reads its one row sequentially, which costs so much while that is disabled that it would be compiled.
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    current_identity text := @schema@.history_identity();
BEGIN
    is_standby := pg_is_in_recovery();
    SELECT coalesce(array_agg(coalesce(e.seq, m.low_water, 0) ORDER BY r.ordinal), '{}'),
        coalesce(array_agg(uuid_send(CASE WHEN e.seq IS NULL THEN m.low_water_id ELSE e.event_id END) ORDER BY r.ordinal), '{}')
    INTO seqs, event_ids
    FROM unnest(heads.stream_keys) WITH ORDINALITY AS r (stream_key, ordinal)
    LEFT JOIN LATERAL (
        SELECT events.seq, events.event_id FROM @schema@.events
        WHERE events.stream_key = r.stream_key ORDER BY events.seq DESC LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (
        SELECT low_water_marks.low_water, low_water_marks.low_water_id FROM @schema@.low_water_marks
        WHERE low_water_marks.stream_key = r.stream_key AND e.seq IS NULL LIMIT 1) AS m ON true;
    IF current_identity IS NOT NULL THEN
        watermark := jsonb_build_object('history_identity', current_identity, 'since', pg_current_snapshot()::text)::text;
    END IF;
END
$$;

-- Returns the lowest number of each stream's recent events above after and up to through, in array order; null for a stream that has
-- none. An event is recent if it was not yet visible at the watermark, however long ago it was appended. Without a watermark, or with
-- one that is meaningless here, it is recent if it was appended at most max_age seconds ago.
CREATE FUNCTION @schema@.first_recent(
    stream_keys text[],
    after bigint[],
    through bigint[],
    watermarks text[],
    max_ages double precision[]
) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET row_security = off SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    current_identity text := @schema@.history_identity();
BEGIN
    RETURN ARRAY(
        SELECT (
            SELECT e.seq FROM @schema@.events e
            WHERE e.stream_key = r.stream_key AND e.seq > r.after AND e.seq <= r.through
                AND CASE
                    WHEN w.since IS NULL THEN e.appended_at >= clock_timestamp() - make_interval(secs => r.max_age)
                    ELSE NOT pg_visible_in_snapshot(e.xid, w.since)
                END
            ORDER BY e.seq LIMIT 1)
        FROM unnest(
            first_recent.stream_keys, first_recent.after, first_recent.through, first_recent.watermarks, first_recent.max_ages
        ) WITH ORDINALITY AS r (stream_key, after, through, watermark, max_age, ordinal)
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN r.watermark::jsonb ->> 'history_identity' = current_identity
                THEN (r.watermark::jsonb ->> 'since')::pg_snapshot
            END AS since
            OFFSET 0) AS w -- computed once per range, not per event
        ORDER BY r.ordinal);
END
$$;
