-- Grants the rights that the event store needs; docs/security.md explains them. A script for psql. Every role is optional, one
-- role may have several rights, and the script can be run again.
--
-- Before the first migration, as a superuser, or as a member of the owner that has CREATE on the database:
--
--     psql -v schema=doorbell -v owner=doorbell_owner -f migrations/grants.sql "$DATABASE_URL"
--
-- After the first migration, as its owner or as a superuser:
--
--     psql -v schema=doorbell -v writer=app -v reader=app -v trimmer=janitor -f migrations/grants.sql "$DATABASE_URL"
--
-- To take rights away, in a schema of the store's own: REVOKE ALL ON ALL TABLES IN SCHEMA doorbell FROM app; REVOKE ALL ON ALL
-- FUNCTIONS IN SCHEMA doorbell FROM app; REVOKE ALL ON SCHEMA doorbell FROM app;

\set ON_ERROR_STOP on
\if :{?schema}
\else
    \set schema doorbell
\endif

-- The functions that run with the rights of their caller, and those that run with the rights of the owner. Other functions in the
-- schema, which may be shared, are left alone.
\set callers_functions 'append,append_many,changed_since,event_ids,first_recent,heads,high_waters,history_identity,installation,is_bound,last_seq_before,last_seqs_before,lock_stream,notification_channel,notify_events,payload_text,raise_seq_conflict,raise_stream_full,rebind_after_restore,replay_many,require_server,require_size,require_utf8,server_identity,set_replicated_xid,stream_extents,trim_streams,try_append_records,try_lock_stream'
\set owners_functions 'append_record,append_records,trim_stream'

BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Creates and upgrades the tables and functions, owns them and the schema, and can grant the other rights. No other role should be able
-- to create functions in the schema: they would run as the roles that use it. The role that runs this must be a member of the owner.
\if :{?owner}
    CREATE SCHEMA IF NOT EXISTS :"schema" AUTHORIZATION :"owner";
    -- The database's owner is the only member of pg_database_owner.
    SELECT pg_has_role(CASE WHEN pg_get_userbyid(n.nspowner) = 'pg_database_owner' THEN d.datdba ELSE n.nspowner END, :'owner',
            CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END)
        AS schema_is_owners
    FROM pg_namespace n, pg_database d WHERE n.nspname = :'schema' AND d.datname = current_database() \gset
    \if :schema_is_owners
    \else
        \warn The schema exists and belongs to another role, which could put its code into it. Drop it, or use another one.
        DO $$ BEGIN RAISE EXCEPTION 'the schema belongs to another role; nothing was changed'; END $$;
    \endif
    REVOKE CREATE ON SCHEMA :"schema" FROM PUBLIC;
    GRANT USAGE, CREATE ON SCHEMA :"schema" TO :"owner" WITH GRANT OPTION;
\endif

-- Appends and notifies. Cannot read payloads, and can change the tables only by appending the next event of a stream.
\if :{?writer}
    GRANT USAGE ON SCHEMA :"schema" TO :"writer";
    SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, :'writer')
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :'schema' AND p.prokind = 'f' AND p.proname = ANY (string_to_array(:'callers_functions', ',')) \gexec
    GRANT EXECUTE ON FUNCTION :"schema".append_record, :"schema".append_records TO :"writer";
    GRANT SELECT (stream_key, seq, event_id) ON :"schema".events TO :"writer";
    GRANT SELECT ON :"schema".low_water_marks, :"schema".history_identity, :"schema".migrations TO :"writer";
\endif

-- Reads every stream, and finds out what has changed.
\if :{?reader}
    GRANT USAGE ON SCHEMA :"schema" TO :"reader";
    SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, :'reader')
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :'schema' AND p.prokind = 'f' AND p.proname = ANY (string_to_array(:'callers_functions', ',')) \gexec
    GRANT SELECT ON :"schema".events, :"schema".low_water_marks, :"schema".history_identity, :"schema".migrations TO :"reader";
\endif

-- Removes old events. Cannot read payloads or append, and can remove only the oldest events of a stream.
\if :{?trimmer}
    GRANT USAGE ON SCHEMA :"schema" TO :"trimmer";
    SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, :'trimmer')
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :'schema' AND p.prokind = 'f' AND p.proname = ANY (string_to_array(:'callers_functions', ',')) \gexec
    GRANT EXECUTE ON FUNCTION :"schema".trim_stream TO :"trimmer";
    GRANT SELECT (stream_key, seq, event_id, xid, appended_at) ON :"schema".events TO :"trimmer";
    GRANT SELECT ON :"schema".low_water_marks, :"schema".history_identity, :"schema".migrations TO :"trimmer";
\endif

-- The functions that run with the rights of their owner are for those to whom they were granted. Migrations see to that, but a dump
-- that was restored without its privileges has lost it.
SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', p.oid::regprocedure)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = :'schema' AND p.prokind = 'f' AND p.proname = ANY (string_to_array(:'owners_functions', ',')) \gexec

COMMIT;
