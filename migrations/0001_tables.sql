-- Tables. The placeholders in the migrations stand for the store's schema: one for the quoted identifier, one for the name as a
-- string literal. They never stand in a comment, which a line feed in the name would end.
--
-- Everything of the store is written with its schema, and everything else is of pg_catalog: the migrations run with that schema alone
-- on the search path, before pg_temp, and the functions keep this path. So neither the caller's path nor another object in the
-- store's schema decides what a name means: the server would prefer a function or an operator that fits the arguments better than
-- pg_catalog's, wherever it is on the path.

-- Every event of every stream. Within a stream, sequence numbers are 1, 2, 3, without gaps, in commit order.
--
-- Only append_record() and append_records() insert rows, and only trim_stream() removes them; they run with the rights of the
-- owner. An owner or a superuser can insert any row by hand, and logical replication can apply it. So functions that concern several
-- streams must not fail for any key, number or time that the columns can hold. (More constraints would not do: the server parses
-- them for each statement, which takes microseconds per append, and dumps may contain what older ones allowed.)
CREATE TABLE @schema@.events (
    stream_key  text COLLATE "C" NOT NULL,
    seq         bigint      NOT NULL CHECK (seq > 0),
    -- Never reused, so a stream that was rewritten to the same length can be told from the original.
    event_id    uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- The event_id of the stream's event before this one, whether or not that one has been removed since. A reader that
    -- has that event can verify that this one follows it. Null for a stream's first event, and in a row that was inserted by hand without it.
    previous_id uuid,
    -- The transaction that appended the event; changed_since() compares it with snapshots.
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    -- Set while the stream is locked, so it never decreases within a stream unless the server's clock is set back.
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload     jsonb       NOT NULL,
    PRIMARY KEY (stream_key, seq)
);

CREATE INDEX events_by_xid ON @schema@.events (xid);

-- What retention has removed: one row per stream that was ever trimmed, and one with the mark 0 per stream to which a transaction that
-- keeps one snapshot has appended. Rows outlive the events, so numbering continues after a
-- stream was emptied, and readers can detect that events are gone.
CREATE TABLE @schema@.low_water_marks (
    stream_key    text COLLATE "C" PRIMARY KEY,
    -- Events up to this number have been removed. Of no effect above the stream's last event.
    low_water     bigint NOT NULL DEFAULT 0 CHECK (low_water >= 0),
    -- The transaction that had appended the last removed event; null if none was removed.
    low_water_xid xid8,
    -- The event_id of the last removed event; null if none was removed.
    low_water_id  uuid
);

CREATE INDEX low_water_marks_by_xid ON @schema@.low_water_marks (low_water_xid);

-- The cluster and database that issued the transaction IDs in the tables above: one row. In a restored dump those IDs are
-- meaningless until rebind_after_restore() is called.
--
-- Like every table here it has a primary key, or publications of all tables would make the server refuse deletes.
CREATE TABLE @schema@.history_identity (
    id                uuid   PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Null if the server does not tell.
    system_identifier bigint,
    database          oid    NOT NULL,
    -- The xmin of this row. A dump and a logical replica insert the row anew, with another xmin; physical copies keep it.
    bound_by          xid
);

-- The transaction IDs of a logical replica are not the publisher's: what it applies gets those of its own transactions.
CREATE FUNCTION @schema@.set_replicated_xid() RETURNS trigger
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

CREATE TRIGGER set_replicated_xid BEFORE INSERT OR UPDATE ON @schema@.events
    FOR EACH ROW EXECUTE FUNCTION @schema@.set_replicated_xid();
CREATE TRIGGER set_replicated_xid BEFORE INSERT OR UPDATE ON @schema@.low_water_marks
    FOR EACH ROW EXECUTE FUNCTION @schema@.set_replicated_xid();
-- Not for the publisher's own changes.
ALTER TABLE @schema@.events ENABLE REPLICA TRIGGER set_replicated_xid;
ALTER TABLE @schema@.low_water_marks ENABLE REPLICA TRIGGER set_replicated_xid;

-- Describes the installation: the migrations that have run, with their checksums in hexadecimal; whether the tables are bound to this
-- database (see rebind_after_restore()); and the tables on which row-level security applies to the caller; if there are any, nothing
-- else. Raises RB004 if the caller's schema is not the one that these functions use: it was renamed, and theirs may be another role's.
-- The table migrations is created before the first migration runs.
CREATE FUNCTION @schema@.installation(
    IN schema_name text,
    OUT versions bigint[],
    OUT checksums text[],
    OUT bound boolean,
    OUT restricted_tables text[]
)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF schema_name IS DISTINCT FROM @schema_name@ THEN
        RAISE EXCEPTION 'the schema was renamed, its functions use the schema %', quote_ident(@schema_name@)
            USING ERRCODE = 'RB004', HINT = 'Nothing was changed. Rename the schema back.';
    END IF;
    restricted_tables := ARRAY(
        SELECT t.name FROM unnest(ARRAY['events', 'low_water_marks', 'history_identity', 'migrations']) AS t (name)
        WHERE row_security_active(format('%I.%I', @schema_name@, t.name)));
    IF cardinality(restricted_tables) = 0 THEN
        versions := ARRAY(SELECT m.version FROM @schema@.migrations m WHERE m.success ORDER BY m.version);
        checksums := ARRAY(SELECT encode(m.checksum, 'hex') FROM @schema@.migrations m WHERE m.success ORDER BY m.version);
        bound := NOT pg_is_in_recovery() AND @schema@.is_bound((SELECT s.system_identifier FROM @schema@.server_identity() AS s));
    ELSE
        versions := '{}';
        checksums := '{}';
        bound := false;
    END IF;
END
$$;
