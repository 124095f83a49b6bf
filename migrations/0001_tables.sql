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
--
-- Like every table here it has a primary key, or publications of all tables would make the server refuse deletes.
CREATE TABLE history_identity (
    id                uuid   PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Null if the server does not tell.
    system_identifier bigint,
    database          oid    NOT NULL,
    -- The xmin of this row. A dump and a logical replica insert the row anew, with another xmin; physical copies keep it.
    bound_by          xid
);

-- The transaction IDs of a logical replica are not the publisher's: what it applies gets those of its own transactions.
CREATE FUNCTION set_replicated_xid() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF tg_table_name = 'events' THEN
        new.xid := pg_current_xact_id();
    ELSE
        new.low_water_xid := pg_current_xact_id();
    END IF;
    RETURN new;
END
$$;

CREATE TRIGGER set_replicated_xid BEFORE INSERT OR UPDATE ON events
    FOR EACH ROW EXECUTE FUNCTION set_replicated_xid();
CREATE TRIGGER set_replicated_xid BEFORE INSERT OR UPDATE ON low_water_marks
    FOR EACH ROW EXECUTE FUNCTION set_replicated_xid();
-- Not for the publisher's own changes.
ALTER TABLE events ENABLE REPLICA TRIGGER set_replicated_xid;
ALTER TABLE low_water_marks ENABLE REPLICA TRIGGER set_replicated_xid;

-- Describes the installation: the migrations that have run, whether the tables are bound to this database (see
-- rebind_after_restore()), and the tables on which row-level security applies to the caller; if there are any, nothing else.
-- Raises RB004 if every role may create objects in the schema. The table migrations is created before the first migration runs.
CREATE FUNCTION installation(
    OUT versions bigint[],
    OUT checksums bytea[],
    OUT bound boolean,
    OUT restricted_tables text[]
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    -- The schema is on the search path of the functions, so what others have created in it must not be used here either.
    IF pg_catalog.has_schema_privilege('public', pg_catalog.current_schema()::pg_catalog.text, 'CREATE') THEN
        RAISE EXCEPTION 'every role may create objects in the schema' USING ERRCODE = 'RB004';
    END IF;
    restricted_tables := ARRAY(
        SELECT t.name FROM unnest(ARRAY['events', 'low_water_marks', 'history_identity', 'migrations']) AS t (name)
        WHERE row_security_active(t.name));
    IF cardinality(restricted_tables) = 0 THEN
        versions := ARRAY(SELECT m.version FROM migrations m WHERE m.success ORDER BY m.version);
        checksums := ARRAY(SELECT m.checksum FROM migrations m WHERE m.success ORDER BY m.version);
        bound := NOT pg_is_in_recovery() AND is_bound((SELECT s.system_identifier FROM server_identity() AS s));
    ELSE
        versions := '{}';
        checksums := '{}';
        bound := false;
    END IF;
END
$$;
