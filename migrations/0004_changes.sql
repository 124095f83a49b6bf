-- What has changed since a point in the history, for readers that cannot rely on notifications alone.

-- What a watermark's transaction numbers belong to: this server, this timeline, this start of it, this database. Null where they
-- mean nothing: on a standby, whose snapshots list no running transactions, and in a restored dump until rebind_after_restore() is called.
CREATE FUNCTION history_identity() RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT concat_ws('/', i.id, i.system_identifier, i.database, left(pg_walfile_name(pg_current_wal_lsn()), 8),
            extract(epoch FROM pg_postmaster_start_time()))
        FROM history_identity i
        WHERE i.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
            AND i.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$$;

-- Makes this database the home of the tables, if it is not: after the migrations, and after a dump was restored. Returns whether
-- something had to be done.
CREATE FUNCTION rebind_after_restore() RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    IF history_identity() IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Nobody appends while the numbers are looked at; reading goes on.
    LOCK TABLE events, low_water_marks, history_identity IN SHARE ROW EXCLUSIVE MODE;
    IF history_identity() IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Another server's numbers may lie in this one's future, and would be taken for invisible. The past does no harm.
    UPDATE events SET xid = pg_current_xact_id() WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());
    UPDATE low_water_marks SET low_water_xid = pg_current_xact_id() WHERE low_water_xid >= pg_snapshot_xmin(pg_current_snapshot());
    DELETE FROM history_identity;
    INSERT INTO history_identity (system_identifier, database)
    SELECT c.system_identifier, d.oid FROM pg_control_system() c, pg_database d WHERE d.datname = current_database();
    RETURN true;
END
$$;

SELECT rebind_after_restore();

-- Which streams have events that became visible after the watermark since, at most max_streams of them; without a watermark, or
-- where it means nothing, all streams (complete). Goes on from the watermark that it returns: with the next page, if there is
-- more. What becomes visible while the pages are read is on one of them or above the last watermark.
--
-- Stable, so the snapshot that a watermark names is the one that everything here is read with.
CREATE FUNCTION changed_since(
    IN since jsonb,
    IN max_streams integer,
    OUT stream_keys text[],
    OUT high_waters bigint[],
    OUT watermark jsonb,
    OUT more boolean,
    OUT complete boolean
)
-- Every step is a probe of an index, however little the planner knows of the numbers to come.
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
    here text := history_identity();
    -- What was visible then.
    lower pg_snapshot;
    -- What all pages of this answer describe.
    upper pg_snapshot;
    -- Transactions that were running then.
    running xid8[];
    -- Where this page begins.
    from_xid xid8;
    from_key text;
    xids text[];
BEGIN
    -- On a standby a list of all streams can be read page by page, and nothing else can.
    IF since ->> 'history_identity' IS DISTINCT FROM here OR since IS NULL THEN
        since := '{}';
    END IF;
    complete := since ->> 'since' IS NULL;
    upper := coalesce((since ->> 'upto')::pg_snapshot, CASE WHEN here IS NOT NULL THEN pg_current_snapshot() END);
    IF complete THEN
        from_key := coalesce(
            since ->> 'from_key',
            greatest((SELECT max(e.stream_key) FROM events e), (SELECT max(f.stream_key) FROM low_water_marks f)));
        -- From the highest key to the lowest: so one probe of the primary key finds a stream and its last event.
        WITH RECURSIVE heads AS (
            (SELECT e.stream_key, e.seq FROM events e
                WHERE e.stream_key <= from_key ORDER BY e.stream_key DESC, e.seq DESC LIMIT 1)
            UNION ALL
            SELECT below.stream_key, below.seq
            FROM heads h
            CROSS JOIN LATERAL (
                SELECT e.stream_key, e.seq FROM events e
                WHERE e.stream_key < h.stream_key ORDER BY e.stream_key DESC, e.seq DESC LIMIT 1) AS below
        ), page AS (
            (SELECT h.stream_key, h.seq FROM heads h LIMIT max_streams + 1)
            UNION ALL
            -- Streams of which retention has left nothing but the numbers.
            (SELECT f.stream_key, f.low_water FROM low_water_marks f
                WHERE f.stream_key <= from_key AND f.low_water > 0
                    AND (SELECT e.seq FROM events e WHERE e.stream_key = f.stream_key LIMIT 1) IS NULL
                ORDER BY f.stream_key DESC LIMIT max_streams + 1)
            ORDER BY stream_key DESC LIMIT max_streams + 1
        )
        SELECT array_agg(p.stream_key ORDER BY p.stream_key DESC), array_agg(p.seq ORDER BY p.stream_key DESC)
        INTO stream_keys, high_waters FROM page p;
        more := coalesce(cardinality(stream_keys) > max_streams, false);
        IF more THEN
            watermark := jsonb_build_object('history_identity', here, 'upto', upper::text, 'from_key', stream_keys[max_streams + 1]);
        END IF;
    ELSE
        lower := (since ->> 'since')::pg_snapshot;
        from_xid := coalesce((since ->> 'after_xid')::xid8, '0');
        from_key := coalesce(since ->> 'after_key', '');
        running := ARRAY(SELECT x FROM pg_snapshot_xip(lower) AS x WHERE x >= from_xid);
        -- Whatever was not visible then has the number of a transaction that was running or had not begun; it may have begun long
        -- before. A stream is listed at its last event that upper shows, so once.
        SELECT array_agg(p.stream_key ORDER BY p.xid, p.stream_key), array_agg(p.seq ORDER BY p.xid, p.stream_key),
            array_agg(p.xid::text ORDER BY p.xid, p.stream_key)
        INTO stream_keys, high_waters, xids
        FROM (
            SELECT c.xid, c.stream_key, c.seq
            FROM (
                SELECT e.xid, e.stream_key, e.seq FROM events e WHERE e.xid = ANY (running)
                UNION ALL
                SELECT e.xid, e.stream_key, e.seq FROM events e
                WHERE e.xid >= greatest(pg_snapshot_xmax(lower), from_xid) AND e.xid < pg_snapshot_xmax(upper)
                UNION ALL
                -- An event that was removed meanwhile: its stream has changed all the same.
                SELECT f.low_water_xid, f.stream_key, f.low_water FROM low_water_marks f WHERE f.low_water_xid = ANY (running)
                UNION ALL
                SELECT f.low_water_xid, f.stream_key, f.low_water FROM low_water_marks f
                WHERE f.low_water_xid >= greatest(pg_snapshot_xmax(lower), from_xid) AND f.low_water_xid < pg_snapshot_xmax(upper)
            ) AS c
            WHERE pg_visible_in_snapshot(c.xid, upper)
                AND (c.xid, c.stream_key) > (from_xid, from_key COLLATE "C")
                AND NOT coalesce((
                    SELECT pg_visible_in_snapshot(s.xid, upper) FROM events s
                    WHERE s.stream_key = c.stream_key AND s.seq = c.seq + 1), false)
            ORDER BY c.xid, c.stream_key
            LIMIT max_streams + 1
        ) AS p;
        more := coalesce(cardinality(stream_keys) > max_streams, false);
        IF more THEN
            watermark := jsonb_build_object('history_identity', here, 'since', lower::text, 'upto', upper::text,
                'after_xid', xids[max_streams], 'after_key', stream_keys[max_streams]);
        END IF;
    END IF;
    IF NOT more THEN
        watermark := jsonb_build_object('history_identity', here, 'since', upper::text);
    END IF;
    stream_keys := coalesce(stream_keys[:max_streams], '{}');
    high_waters := coalesce(high_waters[:max_streams], '{}');
END
$$;
