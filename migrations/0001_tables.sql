-- Tables. Names are unqualified: objects are created in the first schema of the search path.

-- Every event of every stream. Within a stream, sequence numbers are 1, 2, 3, without gaps, in commit order.
CREATE TABLE events (
    stream_key  text COLLATE "C" NOT NULL,
    seq         bigint      NOT NULL CHECK (seq > 0),
    -- Never reused, so a stream that was rewritten to the same length can be told from the original.
    event_id    uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- The transaction that appended the event; changed_since() compares it with snapshots.
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    -- Set while the stream is locked, so it never decreases within a stream unless the server's clock is set back.
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload     jsonb       NOT NULL,
    PRIMARY KEY (stream_key, seq)
);

CREATE INDEX events_by_xid ON events (xid);

-- What retention has removed: one row per stream that was ever trimmed. Rows outlive the events, so numbering continues after a
-- stream was emptied, and readers can detect that events are gone.
CREATE TABLE low_water_marks (
    stream_key    text COLLATE "C" PRIMARY KEY,
    -- Events up to this number have been removed.
    low_water     bigint NOT NULL CHECK (low_water >= 0),
    -- The transaction that had appended the last removed event; null if none was removed.
    low_water_xid xid8
);

CREATE INDEX low_water_marks_by_xid ON low_water_marks (low_water_xid);

-- The cluster and database that issued the transaction IDs in the tables above: one row. In a restored dump those IDs are
-- meaningless until rebind_after_restore() is called.
CREATE TABLE history_identity (
    id                uuid   NOT NULL DEFAULT gen_random_uuid(),
    system_identifier bigint NOT NULL,
    database          oid    NOT NULL
);

-- The version of the last migration that has run. The table is created before the first of them runs.
CREATE FUNCTION last_migration() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT max(m.version) FROM migrations m WHERE m.success);
END
$$;
