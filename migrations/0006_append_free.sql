-- Appending without waiting: a process that appends to many streams at once does so in few transactions, and a stream whose lock
-- somebody else has does not hold up the others.

-- Appends the events whose streams are free, as a whole, as append_records does. Those whose stream's lock is taken are left out:
-- their numbers and identities are null.
CREATE FUNCTION append_free(
    IN stream_keys text[],
    IN payloads jsonb[],
    IN expected_seqs bigint[] DEFAULT NULL,
    OUT seqs bigint[],
    OUT event_ids uuid[],
    OUT appended_at timestamptz
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    -- The lock of lock_stream().
    schema_hash bigint := hashtextextended(current_schema(), 0);
    taken text[];
    free integer[];
    appended record;
BEGIN
    IF cardinality(append_free.stream_keys) = 1 AND cardinality(append_free.payloads) = 1 THEN
        IF pg_try_advisory_xact_lock(hashtextextended(append_free.stream_keys[1] COLLATE "C", schema_hash)) THEN
            SELECT r.seq, r.event_id, r.appended_at INTO appended
            FROM append_record(append_free.stream_keys[1], append_free.payloads[1], append_free.expected_seqs[1]) AS r;
            seqs := ARRAY[appended.seq];
            event_ids := ARRAY[appended.event_id];
            appended_at := appended.appended_at;
        ELSE
            seqs := ARRAY[NULL::bigint];
            event_ids := ARRAY[NULL::uuid];
        END IF;
        RETURN;
    END IF;
    taken := ARRAY(
        SELECT s.k FROM (SELECT DISTINCT u.k COLLATE "C" AS k FROM unnest(append_free.stream_keys) AS u (k)) AS s
        WHERE NOT pg_try_advisory_xact_lock(hashtextextended(s.k, schema_hash)));
    IF cardinality(taken) = 0 THEN
        SELECT r.seqs, r.event_ids, r.appended_at INTO seqs, event_ids, appended_at
        FROM append_records(append_free.stream_keys, append_free.payloads, append_free.expected_seqs) AS r;
        RETURN;
    END IF;
    free := ARRAY(
        SELECT u.i FROM unnest(append_free.stream_keys) WITH ORDINALITY AS u (k, i)
        WHERE u.k COLLATE "C" <> ALL (taken) ORDER BY u.i);
    SELECT r.seqs, r.event_ids, r.appended_at INTO appended
    FROM append_records(
        ARRAY(SELECT append_free.stream_keys[f.i] FROM unnest(free) WITH ORDINALITY AS f (i, o) ORDER BY f.o),
        ARRAY(SELECT append_free.payloads[f.i] FROM unnest(free) WITH ORDINALITY AS f (i, o) ORDER BY f.o),
        ARRAY(SELECT append_free.expected_seqs[f.i] FROM unnest(free) WITH ORDINALITY AS f (i, o) ORDER BY f.o)) AS r;
    appended_at := appended.appended_at;
    seqs := array_fill(NULL::bigint, ARRAY[cardinality(append_free.stream_keys)]);
    event_ids := array_fill(NULL::uuid, ARRAY[cardinality(append_free.stream_keys)]);
    FOR place IN 1 .. cardinality(free) LOOP
        seqs[free[place]] := appended.seqs[place];
        event_ids[free[place]] := appended.event_ids[place];
    END LOOP;
END
$$;
