-- A store that code of schema 3 made: pg_dump --inserts, without settings.

CREATE SCHEMA holdfast;
CREATE TYPE holdfast.changed_count AS (
	queue text,
	state text,
	jobs bigint
);
CREATE TYPE holdfast.changed_job AS (
	seq bigint,
	read_version bigint,
	read_token bigint,
	read_row xid,
	state text,
	attempt integer,
	version bigint,
	transition_no bigint,
	failures integer,
	crashes integer,
	fencing_token bigint,
	owner text,
	lease_expires_at timestamp with time zone,
	ready_at timestamp with time zone,
	due_at timestamp with time zone,
	updated_at timestamp with time zone,
	ended_at timestamp with time zone,
	detail text
);
CREATE TYPE holdfast.changed_resource AS (
	key text,
	token bigint,
	holder text,
	read_token bigint,
	read_holder text
);
CREATE TYPE holdfast.claimed_job AS (
	op_id text,
	job bigint
);
CREATE TYPE holdfast.new_event AS (
	job bigint,
	event_offset bigint,
	transition_no bigint,
	event_type text,
	event_class text,
	from_state text,
	to_state text,
	attempt integer,
	fencing_token bigint,
	sequence bigint,
	end_sequence bigint,
	op_id text,
	actor text,
	occurred_at timestamp with time zone,
	received_at timestamp with time zone,
	body text
);
CREATE TYPE holdfast.new_fact AS (
	event_type text,
	event_class text,
	attempt integer,
	fencing_token bigint,
	op_id text,
	actor text,
	occurred_at timestamp with time zone,
	received_at timestamp with time zone,
	given_id text,
	about text,
	body text
);
CREATE TYPE holdfast.new_job AS (
	seq bigint,
	job_id text,
	queue text,
	kind text,
	priority smallint,
	region text,
	executor text,
	lock text,
	created_at timestamp with time zone,
	correlation_id text,
	spec text,
	state text,
	attempt integer,
	version bigint,
	transition_no bigint,
	failures integer,
	crashes integer,
	fencing_token bigint,
	owner text,
	lease_expires_at timestamp with time zone,
	ready_at timestamp with time zone,
	due_at timestamp with time zone,
	updated_at timestamp with time zone,
	ended_at timestamp with time zone,
	detail text
);
CREATE TYPE holdfast.new_resource AS (
	key text,
	token bigint,
	holder text
);
CREATE TYPE holdfast.touched_job AS (
	seq bigint,
	read_version bigint,
	read_token bigint,
	read_row xid,
	lease_expires_at timestamp with time zone,
	due_at timestamp with time zone,
	updated_at timestamp with time zone,
	detail text
);
CREATE FUNCTION holdfast.agree(changed bigint, expected bigint, late boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF late THEN
        RAISE EXCEPTION 'the locks of the rows were had too late'
            USING ERRCODE = 'serialization_failure';
    END IF;
    IF changed <> expected THEN
        RAISE EXCEPTION '% of % rows had changed since they were read', expected - changed, expected
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END
$$;
CREATE FUNCTION holdfast.base() RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce((SELECT value::bigint FROM holdfast.meta WHERE name = 'epoch'), 0) << 48
$$;
CREATE FUNCTION holdfast.shown(record json) RETURNS json
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN position('\u0000' IN record::text) = 0 THEN record
                ELSE replace(record::text, '\u0000', '\ufffd')::json END
$$;
CREATE TABLE holdfast.api_key (
    key_id text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    record json NOT NULL
);
CREATE TABLE holdfast.claim (
    op_id text NOT NULL,
    jobs bigint[] NOT NULL,
    claimed_at timestamp with time zone NOT NULL
);
CREATE TABLE holdfast.event (
    log_id bigint NOT NULL,
    place bigint NOT NULL,
    job bigint NOT NULL,
    event_offset bigint,
    transition_no bigint,
    event_type text NOT NULL,
    event_class text NOT NULL,
    from_state text,
    to_state text,
    attempt integer,
    fencing_token bigint,
    sequence bigint,
    end_sequence bigint,
    op_id text,
    actor text,
    occurred_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone,
    body json
)
PARTITION BY RANGE (job);
CREATE TABLE holdfast.event_000000000000 (
    log_id bigint NOT NULL,
    place bigint NOT NULL,
    job bigint NOT NULL,
    event_offset bigint,
    transition_no bigint,
    event_type text NOT NULL,
    event_class text NOT NULL,
    from_state text,
    to_state text,
    attempt integer,
    fencing_token bigint,
    sequence bigint,
    end_sequence bigint,
    op_id text,
    actor text,
    occurred_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone,
    body json
);
CREATE TABLE holdfast.event_000000262144 (
    log_id bigint NOT NULL,
    place bigint NOT NULL,
    job bigint NOT NULL,
    event_offset bigint,
    transition_no bigint,
    event_type text NOT NULL,
    event_class text NOT NULL,
    from_state text,
    to_state text,
    attempt integer,
    fencing_token bigint,
    sequence bigint,
    end_sequence bigint,
    op_id text,
    actor text,
    occurred_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone,
    body json
);
CREATE TABLE holdfast.fact (
    log_id bigint NOT NULL,
    place bigint NOT NULL,
    event_type text NOT NULL,
    event_class text NOT NULL,
    attempt integer,
    fencing_token bigint,
    op_id text,
    actor text,
    occurred_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone,
    given_id text NOT NULL,
    about text,
    body json
);
CREATE TABLE holdfast.job (
    seq bigint NOT NULL,
    job_id text NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    priority smallint NOT NULL,
    region text,
    executor text,
    lock text,
    state text NOT NULL,
    attempt integer NOT NULL,
    version bigint NOT NULL,
    transition_no bigint NOT NULL,
    failures integer NOT NULL,
    crashes integer NOT NULL,
    fencing_token bigint NOT NULL,
    owner text,
    lease_expires_at timestamp with time zone,
    ready_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    correlation_id text,
    spec json NOT NULL,
    detail json NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='10000');
CREATE VIEW holdfast.job_event_log AS
 SELECT event.log_id,
    ((job.job_id || '/'::text) || COALESCE((event.event_offset)::text, ((((event.attempt || '.'::text) || event.fencing_token) || '.'::text) || event.sequence))) AS event_id,
    event.event_type,
    event.occurred_at,
    job.job_id,
    (shown.body ->> 'task_id'::text) AS task_id,
    COALESCE((shown.body ->> 'execution_id'::text), ((job.job_id || '#'::text) || event.attempt)) AS execution_id,
    COALESCE((shown.body ->> 'trace_id'::text), (shown.detail ->> 'trace_id'::text)) AS trace_id,
    (shown.body ->> 'span_id'::text) AS span_id,
        CASE
            WHEN (event.sequence IS NULL) THEN (shown.body -> 'attributes'::text)
            ELSE shown.body
        END AS attributes,
    COALESCE(event.received_at, event.occurred_at) AS received_at
   FROM ((holdfast.event
     JOIN holdfast.job ON ((job.seq = event.job)))
     CROSS JOIN LATERAL ( SELECT holdfast.shown(event.body) AS body,
            holdfast.shown(job.detail) AS detail) shown)
UNION ALL
 SELECT fact.log_id,
    fact.given_id AS event_id,
    fact.event_type,
    fact.occurred_at,
    fact.about AS job_id,
    (shown.body ->> 'task_id'::text) AS task_id,
    (shown.body ->> 'execution_id'::text) AS execution_id,
    (shown.body ->> 'trace_id'::text) AS trace_id,
    (shown.body ->> 'span_id'::text) AS span_id,
    (shown.body -> 'attributes'::text) AS attributes,
    COALESCE(fact.received_at, fact.occurred_at) AS received_at
   FROM (holdfast.fact
     CROSS JOIN LATERAL ( SELECT holdfast.shown(fact.body) AS body) shown);
CREATE SEQUENCE holdfast.job_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE holdfast.log_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE holdfast.meta (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE holdfast.queue_count (
    queue text NOT NULL,
    state text NOT NULL,
    jobs bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');
CREATE TABLE holdfast.resource (
    key text NOT NULL,
    token bigint NOT NULL,
    holder text
);
ALTER TABLE ONLY holdfast.event ATTACH PARTITION holdfast.event_000000000000 FOR VALUES FROM ('0') TO ('262144');
ALTER TABLE ONLY holdfast.event ATTACH PARTITION holdfast.event_000000262144 FOR VALUES FROM ('262144') TO ('524288');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05cd-77a4-80ef-9de8844bda4d', '{12}', '2026-11-18 22:44:14.925767+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d3-7260-8068-a99037bcb159', '{13}', '2026-11-18 22:44:14.931313+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d4-719c-8093-13650621a556', '{14}', '2026-11-18 22:44:14.932257+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d4-7f40-80a9-f10a76cc1eae', '{15}', '2026-11-18 22:44:14.933186+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d6-7008-80af-7ffb81551890', '{16}', '2026-11-18 22:44:14.934136+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d6-7c9c-800e-b4fac23709dc', '{18}', '2026-11-18 22:44:14.934936+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05d7-78a8-805a-4bdaed20d4e6', '{19}', '2026-11-18 22:44:14.935728+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-05dc-744c-801a-0ddea4132087', '{20}', '2026-11-18 22:44:14.940417+00');
INSERT INTO holdfast.claim VALUES ('op-claim', '{21}', '2026-11-18 22:44:14.975616+00');
INSERT INTO holdfast.claim VALUES ('op-crash', '{22}', '2026-11-18 22:44:14.979074+00');
INSERT INTO holdfast.claim VALUES ('01a1f0d5-0604-7dac-8029-dfb7acc921d4', '{23}', '2026-11-18 22:44:14.981018+00');
INSERT INTO holdfast.event_000000000000 VALUES (1, 730, 1, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'queued-0', 'user:ana', '2026-11-18 22:44:14.824607+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (2, 731, 2, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'queued-1', 'user:ana', '2026-11-18 22:44:14.85135+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (3, 732, 3, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'queued-2', 'user:ana', '2026-11-18 22:44:14.853486+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (4, 733, 4, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'kind', 'user:ana', '2026-11-18 22:44:14.854603+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (5, 734, 5, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'region', 'user:ana', '2026-11-18 22:44:14.858171+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (6, 735, 6, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'executor', 'user:ana', '2026-11-18 22:44:14.861622+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (7, 736, 7, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'delayed', 'user:ana', '2026-11-18 22:44:14.863316+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (8, 737, 8, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'deadline', 'user:ana', '2026-11-18 22:44:14.865866+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (9, 738, 9, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'overdue', 'user:ana', '2026-11-18 22:44:14.870145+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (10, 739, 10, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'traced', 'user:ana', '2026-11-18 22:44:14.875449+00', NULL, '{"correlation_id":"corr-1","trace_id":"trace-1"}');
INSERT INTO holdfast.event_000000000000 VALUES (11, 741, 11, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'waits', 'user:ana', '2026-11-18 22:44:14.87688+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (12, 742, 12, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'leased', 'user:ana', '2026-11-18 22:44:14.883859+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (13, 743, 13, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'running', 'user:ana', '2026-11-18 22:44:14.885062+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (14, 745, 14, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'succeeded', 'user:ana', '2026-11-18 22:44:14.886434+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (15, 746, 15, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'failed', 'user:ana', '2026-11-18 22:44:14.888227+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (16, 747, 16, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'dead', 'user:ana', '2026-11-18 22:44:14.890078+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (17, 748, 17, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'cancelled', 'user:ana', '2026-11-18 22:44:14.892383+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (18, 750, 18, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'released', 'user:ana', '2026-11-18 22:44:14.89508+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (19, 751, 19, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'holder', 'user:ana', '2026-11-18 22:44:14.921961+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (20, 752, 20, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'resulted', 'user:ana', '2026-11-18 22:44:14.924485+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (21, 754, 12, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05cd-77a4-80ef-9de8844bda4d', 'worker:w-old', '2026-11-18 22:44:14.925767+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (22, 755, 13, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d3-7260-8068-a99037bcb159', 'worker:w-old', '2026-11-18 22:44:14.931313+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (23, 756, 14, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d4-719c-8093-13650621a556', 'worker:w-old', '2026-11-18 22:44:14.932257+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (24, 757, 15, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d4-7f40-80a9-f10a76cc1eae', 'worker:w-old', '2026-11-18 22:44:14.933186+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (25, 758, 16, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d6-7008-80af-7ffb81551890', 'worker:w-old', '2026-11-18 22:44:14.934136+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (26, 759, 18, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d6-7c9c-800e-b4fac23709dc', 'worker:w-old', '2026-11-18 22:44:14.934936+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (27, 761, 19, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05d7-78a8-805a-4bdaed20d4e6', 'worker:w-old', '2026-11-18 22:44:14.935728+00', NULL, '{"attributes":{"lock":"disk"}}');
INSERT INTO holdfast.event_000000000000 VALUES (28, 762, 20, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-05dc-744c-801a-0ddea4132087', 'worker:w-old', '2026-11-18 22:44:14.940417+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (29, 763, 13, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, 'start:1', 'worker:w-old', '2026-11-18 22:44:14.941436+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (30, 765, 13, NULL, NULL, 'output', 'worker', NULL, NULL, 1, 1, 1, 2, NULL, 'worker:w-old', '2026-11-18 22:44:14.885062+00', '2026-11-18 22:44:14.944462+00', '[{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.885062Z","sequence":1,"stream":"stdout","data":"aGVsbG8K"},{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.885062Z","sequence":2,"stream":"stdout","data":"aGVsbG8K"}]');
INSERT INTO holdfast.event_000000000000 VALUES (31, 766, 14, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, 'start:1', 'worker:w-old', '2026-11-18 22:44:14.950608+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (32, 767, 14, NULL, NULL, 'output', 'worker', NULL, NULL, 1, 1, 1, 2, NULL, 'worker:w-old', '2026-11-18 22:44:14.886434+00', '2026-11-18 22:44:14.95184+00', '[{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.886434Z","sequence":1,"stream":"stdout","data":"aGVsbG8K"},{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.886434Z","sequence":2,"stream":"stdout","data":"aGVsbG8K"}]');
INSERT INTO holdfast.event_000000000000 VALUES (33, 768, 15, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, 'start:1', 'worker:w-old', '2026-11-18 22:44:14.952613+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (34, 769, 15, NULL, NULL, 'output', 'worker', NULL, NULL, 1, 1, 1, 2, NULL, 'worker:w-old', '2026-11-18 22:44:14.888227+00', '2026-11-18 22:44:14.953778+00', '[{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.888227Z","sequence":1,"stream":"stdout","data":"aGVsbG8K"},{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.888227Z","sequence":2,"stream":"stdout","data":"aGVsbG8K"}]');
INSERT INTO holdfast.event_000000000000 VALUES (35, 770, 19, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, 'start:1', 'worker:w-old', '2026-11-18 22:44:14.954483+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (36, 772, 19, NULL, NULL, 'output', 'worker', NULL, NULL, 1, 1, 1, 2, NULL, 'worker:w-old', '2026-11-18 22:44:14.921961+00', '2026-11-18 22:44:14.955943+00', '[{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.921961Z","sequence":1,"stream":"stdout","data":"aGVsbG8K"},{"event_type":"output","event_class":"worker","occurred_at":"2026-11-18T22:44:14.921961Z","sequence":2,"stream":"stdout","data":"aGVsbG8K"}]');
INSERT INTO holdfast.event_000000000000 VALUES (37, 773, 14, 4, 4, 'job_succeeded', 'transition', 'running', 'succeeded', 1, 1, NULL, NULL, '01a1f0d5-05f0-7cd8-8004-70576c49a012', 'worker:w-old', '2026-11-18 22:44:14.960972+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (38, 774, 20, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, '01a1f0d5-05f5-70d0-808c-1deba495da81', 'worker:w-old', '2026-11-18 22:44:14.965291+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (39, 774, 20, 4, 4, 'job_succeeded', 'transition', 'running', 'succeeded', 1, 1, NULL, NULL, '01a1f0d5-05f5-70d0-808c-1deba495da81', 'worker:w-old', '2026-11-18 22:44:14.965291+00', NULL, '{"attributes":{"result":{"answer":42}}}');
INSERT INTO holdfast.event_000000000000 VALUES (40, 776, 15, 4, 4, 'job_dead_lettered', 'transition', 'running', 'dead_lettered', 1, 1, NULL, NULL, '01a1f0d5-05f6-710c-804d-ac90cea1c445', 'worker:w-old', '2026-11-18 22:44:14.966249+00', NULL, '{"reason":"exhausted_retries: no","attributes":{"error":{"message":"no"},"failures":1,"crashes":0,"dead_letter":{"reason_code":"exhausted_retries","last_error":"no","attempts":1,"stage":"exec","correlation_id":"failed","last_owner":"w-old","last_lease_expires_at":"2026-11-18T23:44:14.952613Z"}}}');
INSERT INTO holdfast.event_000000000000 VALUES (41, 777, 16, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, '01a1f0d5-05f7-71d4-80c1-7772c17513a3', 'worker:w-old', '2026-11-18 22:44:14.967249+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (42, 777, 16, 4, 4, 'job_failed', 'transition', 'running', 'failed', 1, 1, NULL, NULL, '01a1f0d5-05f7-71d4-80c1-7772c17513a3', 'worker:w-old', '2026-11-18 22:44:14.967249+00', NULL, '{"reason":"never","attributes":{"error":{"message":"never","retryable":false},"failures":1,"crashes":0}}');
INSERT INTO holdfast.event_000000000000 VALUES (43, 778, 17, 2, 2, 'job_cancelled', 'transition', 'queued', 'cancelled', 1, NULL, NULL, NULL, '01a1f0d5-05f8-711c-8085-08eaab16a01b', 'user:ana', '2026-11-18 22:44:14.968229+00', NULL, '{"reason":"cancelled by user:ana"}');
INSERT INTO holdfast.event_000000000000 VALUES (44, 779, 18, 3, 3, 'job_requeued', 'transition', 'assigned', 'queued', 2, 1, NULL, NULL, '01a1f0d5-05f8-7e38-8066-fc5a50140a8f', 'worker:w-old', '2026-11-18 22:44:14.969034+00', NULL, '{"reason":"released","attributes":{"cause":"released"}}');
INSERT INTO holdfast.event_000000000000 VALUES (45, 780, 21, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'claimed', 'user:ana', '2026-11-18 22:44:14.969887+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (46, 782, 21, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, 'op-claim', 'worker:w-old', '2026-11-18 22:44:14.975616+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (47, 783, 22, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'crashed', 'user:ana', '2026-11-18 22:44:14.977863+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (48, 784, 22, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, 'op-crash', 'worker:w-gone', '2026-11-18 22:44:14.979074+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (49, 785, 23, 1, 1, 'job_queued', 'transition', NULL, 'queued', 1, NULL, NULL, NULL, 'promised', 'user:ana', '2026-11-18 22:44:14.980089+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (50, 786, 23, 2, 2, 'job_claimed', 'transition', 'queued', 'assigned', 1, 1, NULL, NULL, '01a1f0d5-0604-7dac-8029-dfb7acc921d4', 'worker:w-old', '2026-11-18 22:44:14.981018+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (51, 787, 23, 3, 3, 'job_started', 'transition', 'assigned', 'running', 1, 1, NULL, NULL, '01a1f0d5-0605-7c44-80e6-269a537b5c69', 'worker:w-old', '2026-11-18 22:44:14.981939+00', NULL, NULL);
INSERT INTO holdfast.event_000000000000 VALUES (52, 787, 23, 4, 4, 'job_validating', 'transition', 'running', 'validating', 1, 1, NULL, NULL, '01a1f0d5-0605-7c44-80e6-269a537b5c69', 'worker:w-old', '2026-11-18 22:44:14.981939+00', NULL, NULL);
INSERT INTO holdfast.fact VALUES (53, 789, 'noted', 'external', NULL, NULL, NULL, NULL, '2026-11-18 22:44:14.982606+00', '2026-11-18 22:44:14.982857+00', 'fact-1', 'succeeded', '{}');
INSERT INTO holdfast.job VALUES (1, 'queued-0', 'later', 'command', 0, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.824607+00', NULL, '2026-11-18 22:44:14.824607+00', '2026-11-18 22:44:14.824607+00', NULL, NULL, '{"queue":"later","priority":0}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (2, 'queued-1', 'later', 'command', 1, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.85135+00', NULL, '2026-11-18 22:44:14.85135+00', '2026-11-18 22:44:14.85135+00', NULL, NULL, '{"queue":"later","priority":1}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (3, 'queued-2', 'later', 'command', 2, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.853486+00', NULL, '2026-11-18 22:44:14.853486+00', '2026-11-18 22:44:14.853486+00', NULL, NULL, '{"queue":"later","priority":2}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (4, 'kind', 'later', 'resize', 5, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.854603+00', NULL, '2026-11-18 22:44:14.854603+00', '2026-11-18 22:44:14.854603+00', NULL, NULL, '{"kind":"resize","queue":"later"}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (5, 'region', 'later', 'command', 5, 'eu', NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.858171+00', NULL, '2026-11-18 22:44:14.858171+00', '2026-11-18 22:44:14.858171+00', NULL, NULL, '{"queue":"later","region":"eu"}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (6, 'executor', 'later', 'command', 5, NULL, 'gpu', NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.861622+00', NULL, '2026-11-18 22:44:14.861622+00', '2026-11-18 22:44:14.861622+00', NULL, NULL, '{"queue":"later","executor":"gpu"}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (7, 'delayed', 'later', 'command', 5, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2027-11-13 22:44:14.863316+00', NULL, '2026-11-18 22:44:14.863316+00', '2026-11-18 22:44:14.863316+00', NULL, NULL, '{"queue":"later","delay":"P360D"}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (8, 'deadline', 'later', 'command', 5, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.865866+00', '2027-11-13 22:44:14.865866+00', '2026-11-18 22:44:14.865866+00', '2026-11-18 22:44:14.865866+00', NULL, NULL, '{"queue":"later","ttl":"P360D"}', '{"deadline_at":"2027-11-13T22:44:14.865866Z","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (9, 'overdue', 'later', 'command', 5, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.870145+00', '2026-11-18 22:44:16.870145+00', '2026-11-18 22:44:14.870145+00', '2026-11-18 22:44:14.870145+00', NULL, NULL, '{"queue":"later","ttl":"PT2S"}', '{"deadline_at":"2026-11-18T22:44:16.870145Z","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (10, 'traced', 'later', 'command', 5, NULL, NULL, NULL, 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.875449+00', NULL, '2026-11-18 22:44:14.875449+00', '2026-11-18 22:44:14.875449+00', NULL, 'corr-1', '{"queue":"later","labels":{"team":"a"}}', '{"submitted_by":"user:ana","correlation_id":"corr-1","trace_id":"trace-1"}');
INSERT INTO holdfast.job VALUES (11, 'waits', 'later', 'command', 5, NULL, NULL, 'disk', 'queued', 1, 1, 1, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.87688+00', NULL, '2026-11-18 22:44:14.87688+00', '2026-11-18 22:44:14.87688+00', NULL, NULL, '{"queue":"later","lock":"disk"}', '{"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (12, 'leased', 'default', 'command', 5, NULL, NULL, NULL, 'assigned', 1, 2, 2, 0, 0, 1, 'w-old', '2026-11-18 23:44:14.925767+00', '2026-11-18 22:44:14.883859+00', '2026-11-18 23:44:14.925767+00', '2026-11-18 22:44:14.883859+00', '2026-11-18 22:44:14.925767+00', NULL, NULL, '{"retry":{}}', '{"lease":{"owner":"w-old","expires_at":"2026-11-18T23:44:14.925767Z","ttl":"PT3600S","granted_at":"2026-11-18T22:44:14.925767Z","heartbeat_at":"2026-11-18T22:44:14.925767Z"},"claim_op_id":"01a1f0d5-05cd-77a4-80ef-9de8844bda4d","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (13, 'running', 'default', 'command', 5, NULL, NULL, NULL, 'running', 1, 3, 3, 0, 0, 1, 'w-old', '2026-11-18 23:44:14.941436+00', '2026-11-18 22:44:14.885062+00', '2026-11-18 23:44:14.941436+00', '2026-11-18 22:44:14.885062+00', '2026-11-18 22:44:14.941436+00', NULL, NULL, '{"retry":{}}', '{"lease":{"owner":"w-old","expires_at":"2026-11-18T23:44:14.941436Z","ttl":"PT3600S","granted_at":"2026-11-18T22:44:14.931313Z","heartbeat_at":"2026-11-18T22:44:14.941436Z"},"claim_op_id":"01a1f0d5-05d3-7260-8068-a99037bcb159","started_at":"2026-11-18T22:44:14.941436Z","submitted_by":"user:ana","heartbeats":1,"published":2,"published_bytes":140}');
INSERT INTO holdfast.job VALUES (20, 'resulted', 'default', 'command', 5, NULL, NULL, NULL, 'succeeded', 1, 4, 4, 0, 0, 1, NULL, NULL, '2026-11-18 22:44:14.924485+00', NULL, '2026-11-18 22:44:14.924485+00', '2026-11-18 22:44:14.965291+00', '2026-11-18 22:44:14.965291+00', NULL, '{"retry":{}}', '{"claim_op_id":"01a1f0d5-05dc-744c-801a-0ddea4132087","started_at":"2026-11-18T22:44:14.965291Z","result":{"answer":42},"submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (16, 'dead', 'default', 'command', 5, NULL, NULL, NULL, 'failed', 1, 4, 4, 1, 0, 1, NULL, NULL, '2026-11-18 22:44:14.890078+00', NULL, '2026-11-18 22:44:14.890078+00', '2026-11-18 22:44:14.967249+00', '2026-11-18 22:44:14.967249+00', NULL, '{"retry":{}}', '{"claim_op_id":"01a1f0d5-05d6-7008-80af-7ffb81551890","started_at":"2026-11-18T22:44:14.967249Z","reason":"never","error":{"message":"never","retryable":false},"submitted_by":"user:ana","completed_at":"2026-11-18T22:44:14.967249Z"}');
INSERT INTO holdfast.job VALUES (19, 'holder', 'default', 'command', 5, NULL, NULL, 'disk', 'running', 1, 3, 3, 0, 0, 1, 'w-old', '2026-11-18 23:44:14.954483+00', '2026-11-18 22:44:14.921961+00', '2026-11-18 23:44:14.954483+00', '2026-11-18 22:44:14.921961+00', '2026-11-18 22:44:14.954483+00', NULL, NULL, '{"lock":"disk","retry":{}}', '{"lease":{"owner":"w-old","expires_at":"2026-11-18T23:44:14.954483Z","ttl":"PT3600S","granted_at":"2026-11-18T22:44:14.935728Z","heartbeat_at":"2026-11-18T22:44:14.954483Z"},"claim_op_id":"01a1f0d5-05d7-78a8-805a-4bdaed20d4e6","started_at":"2026-11-18T22:44:14.954483Z","submitted_by":"user:ana","heartbeats":1,"published":2,"published_bytes":140}');
INSERT INTO holdfast.job VALUES (14, 'succeeded', 'default', 'command', 5, NULL, NULL, NULL, 'succeeded', 1, 4, 4, 0, 0, 1, NULL, NULL, '2026-11-18 22:44:14.886434+00', NULL, '2026-11-18 22:44:14.886434+00', '2026-11-18 22:44:14.960972+00', '2026-11-18 22:44:14.960972+00', NULL, '{"retry":{}}', '{"claim_op_id":"01a1f0d5-05d4-719c-8093-13650621a556","started_at":"2026-11-18T22:44:14.950608Z","submitted_by":"user:ana","heartbeats":1,"published":2,"published_bytes":140}');
INSERT INTO holdfast.job VALUES (15, 'failed', 'default', 'command', 5, NULL, NULL, NULL, 'dead_lettered', 1, 4, 4, 1, 0, 1, NULL, NULL, '2026-11-18 22:44:14.888227+00', NULL, '2026-11-18 22:44:14.888227+00', '2026-11-18 22:44:14.966249+00', '2026-11-18 22:44:14.966249+00', NULL, '{"retry":{"max_failures":1}}', '{"claim_op_id":"01a1f0d5-05d4-7f40-80a9-f10a76cc1eae","started_at":"2026-11-18T22:44:14.952613Z","reason":"exhausted_retries: no","error":{"message":"no"},"dead_letter":{"reason_code":"exhausted_retries","last_error":"no","attempts":1,"stage":"exec","correlation_id":"failed","last_owner":"w-old","last_lease_expires_at":"2026-11-18T23:44:14.952613Z"},"submitted_by":"user:ana","heartbeats":1,"published":2,"completed_at":"2026-11-18T22:44:14.966249Z","published_bytes":140}');
INSERT INTO holdfast.job VALUES (17, 'cancelled', 'default', 'command', 5, NULL, NULL, NULL, 'cancelled', 1, 2, 2, 0, 0, 0, NULL, NULL, '2026-11-18 22:44:14.892383+00', NULL, '2026-11-18 22:44:14.892383+00', '2026-11-18 22:44:14.968229+00', '2026-11-18 22:44:14.968229+00', NULL, '{"retry":{}}', '{"reason":"cancelled by user:ana","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (18, 'released', 'default', 'command', 5, NULL, NULL, NULL, 'queued', 2, 3, 3, 0, 0, 1, NULL, NULL, '2026-11-18 22:44:14.89508+00', NULL, '2026-11-18 22:44:14.89508+00', '2026-11-18 22:44:14.969034+00', NULL, NULL, '{"retry":{}}', '{"claim_op_id":"01a1f0d5-05d6-7c9c-800e-b4fac23709dc","reason":"released","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (21, 'claimed', 'claims', 'command', 5, NULL, NULL, NULL, 'assigned', 1, 2, 2, 0, 0, 1, 'w-old', '2026-11-18 23:44:14.975616+00', '2026-11-18 22:44:14.969887+00', '2026-11-18 23:44:14.975616+00', '2026-11-18 22:44:14.969887+00', '2026-11-18 22:44:14.975616+00', NULL, NULL, '{"queue":"claims"}', '{"lease":{"owner":"w-old","expires_at":"2026-11-18T23:44:14.975616Z","ttl":"PT3600S","granted_at":"2026-11-18T22:44:14.975616Z","heartbeat_at":"2026-11-18T22:44:14.975616Z"},"claim_op_id":"op-claim","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (22, 'crashed', 'claims', 'command', 5, NULL, NULL, NULL, 'assigned', 1, 2, 2, 0, 0, 1, 'w-gone', '2026-11-18 22:44:15.979074+00', '2026-11-18 22:44:14.977863+00', '2026-11-18 22:44:15.979074+00', '2026-11-18 22:44:14.977863+00', '2026-11-18 22:44:14.979074+00', NULL, NULL, '{"queue":"claims"}', '{"lease":{"owner":"w-gone","expires_at":"2026-11-18T22:44:15.979074Z","ttl":"PT1S","granted_at":"2026-11-18T22:44:14.979074Z","heartbeat_at":"2026-11-18T22:44:14.979074Z"},"claim_op_id":"op-crash","submitted_by":"user:ana"}');
INSERT INTO holdfast.job VALUES (23, 'promised', 'default', 'command', 5, NULL, NULL, NULL, 'validating', 1, 4, 4, 0, 0, 1, NULL, NULL, '2026-11-18 22:44:14.980089+00', NULL, '2026-11-18 22:44:14.980089+00', '2026-11-18 22:44:14.981939+00', NULL, NULL, '{"promised_outputs":1}', '{"claim_op_id":"01a1f0d5-0604-7dac-8029-dfb7acc921d4","started_at":"2026-11-18T22:44:14.981939Z","submitted_by":"user:ana","check":{"next_at":"2026-11-18T22:44:29.981939Z"},"completed_at":"2026-11-18T22:44:14.981939Z"}');
INSERT INTO holdfast.meta VALUES ('schema', '3');
INSERT INTO holdfast.meta VALUES ('needs', '1');
INSERT INTO holdfast.meta VALUES ('secret', 'b3bada371dce02911cb75c86fe3df3ecaa3eb765da443c53e7d6cb4b265d24cc');
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('later', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'succeeded', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'succeeded', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'dead_lettered', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'running', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'failed', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'cancelled', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('claims', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'queued', -1);
INSERT INTO holdfast.queue_count VALUES ('default', 'validating', 1);
INSERT INTO holdfast.queue_count VALUES ('default', 'assigned', -1);
INSERT INTO holdfast.resource VALUES ('disk', 1, 'holder');
SELECT pg_catalog.setval('holdfast.job_seq', 23, true);
SELECT pg_catalog.setval('holdfast.log_seq', 53, true);
ALTER TABLE ONLY holdfast.fact
    ADD CONSTRAINT a_fact_is_told_once UNIQUE (given_id);
ALTER TABLE ONLY holdfast.job
    ADD CONSTRAINT a_job_is_made_once UNIQUE (job_id);
ALTER TABLE ONLY holdfast.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY holdfast.claim
    ADD CONSTRAINT claim_pkey PRIMARY KEY (op_id);
ALTER TABLE ONLY holdfast.fact
    ADD CONSTRAINT fact_pkey PRIMARY KEY (log_id);
ALTER TABLE ONLY holdfast.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY holdfast.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.resource
    ADD CONSTRAINT resource_pkey PRIMARY KEY (key);
CREATE INDEX event_rare ON ONLY holdfast.event USING btree (event_type, occurred_at) WHERE (event_type <> ALL (ARRAY['job_queued'::text, 'job_claimed'::text, 'job_started'::text, 'job_succeeded'::text, 'output'::text]));
CREATE INDEX event_000000000000_event_type_occurred_at_idx ON holdfast.event_000000000000 USING btree (event_type, occurred_at) WHERE (event_type <> ALL (ARRAY['job_queued'::text, 'job_claimed'::text, 'job_started'::text, 'job_succeeded'::text, 'output'::text]));
CREATE UNIQUE INDEX event_chain ON ONLY holdfast.event USING btree (job, event_offset);
CREATE UNIQUE INDEX event_000000000000_job_event_offset_idx ON holdfast.event_000000000000 USING btree (job, event_offset);
CREATE UNIQUE INDEX event_worker ON ONLY holdfast.event USING btree (job, fencing_token, sequence) WHERE (sequence IS NOT NULL);
CREATE UNIQUE INDEX event_000000000000_job_fencing_token_sequence_idx ON holdfast.event_000000000000 USING btree (job, fencing_token, sequence) WHERE (sequence IS NOT NULL);
CREATE INDEX event_time ON ONLY holdfast.event USING brin (occurred_at);
CREATE INDEX event_000000000000_occurred_at_idx ON holdfast.event_000000000000 USING brin (occurred_at);
CREATE INDEX event_feed ON ONLY holdfast.event USING btree (place, log_id);
CREATE INDEX event_000000000000_place_log_id_idx ON holdfast.event_000000000000 USING btree (place, log_id);
CREATE INDEX event_000000262144_event_type_occurred_at_idx ON holdfast.event_000000262144 USING btree (event_type, occurred_at) WHERE (event_type <> ALL (ARRAY['job_queued'::text, 'job_claimed'::text, 'job_started'::text, 'job_succeeded'::text, 'output'::text]));
CREATE UNIQUE INDEX event_000000262144_job_event_offset_idx ON holdfast.event_000000262144 USING btree (job, event_offset);
CREATE UNIQUE INDEX event_000000262144_job_fencing_token_sequence_idx ON holdfast.event_000000262144 USING btree (job, fencing_token, sequence) WHERE (sequence IS NOT NULL);
CREATE INDEX event_000000262144_occurred_at_idx ON holdfast.event_000000262144 USING brin (occurred_at);
CREATE INDEX event_000000262144_place_log_id_idx ON holdfast.event_000000262144 USING btree (place, log_id);
CREATE INDEX fact_about ON holdfast.fact USING btree (about, log_id);
CREATE INDEX fact_feed ON holdfast.fact USING btree (place, log_id);
CREATE INDEX fact_type ON holdfast.fact USING btree (event_type, occurred_at);
CREATE INDEX job_correlation ON holdfast.job USING btree (correlation_id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX job_due ON holdfast.job USING btree (due_at, seq) WHERE (due_at IS NOT NULL);
CREATE INDEX job_rare ON holdfast.job USING btree (state, seq) WHERE (state = ANY (ARRAY['validating'::text, 'partial_success'::text, 'failed'::text, 'cancelled'::text, 'timeout'::text, 'dead_lettered'::text]));
CREATE INDEX job_ready ON holdfast.job USING btree (queue, priority, ready_at, seq) WHERE (state = 'queued'::text);
ALTER INDEX holdfast.event_rare ATTACH PARTITION holdfast.event_000000000000_event_type_occurred_at_idx;
ALTER INDEX holdfast.event_chain ATTACH PARTITION holdfast.event_000000000000_job_event_offset_idx;
ALTER INDEX holdfast.event_worker ATTACH PARTITION holdfast.event_000000000000_job_fencing_token_sequence_idx;
ALTER INDEX holdfast.event_time ATTACH PARTITION holdfast.event_000000000000_occurred_at_idx;
ALTER INDEX holdfast.event_feed ATTACH PARTITION holdfast.event_000000000000_place_log_id_idx;
ALTER INDEX holdfast.event_rare ATTACH PARTITION holdfast.event_000000262144_event_type_occurred_at_idx;
ALTER INDEX holdfast.event_chain ATTACH PARTITION holdfast.event_000000262144_job_event_offset_idx;
ALTER INDEX holdfast.event_worker ATTACH PARTITION holdfast.event_000000262144_job_fencing_token_sequence_idx;
ALTER INDEX holdfast.event_time ATTACH PARTITION holdfast.event_000000262144_occurred_at_idx;
ALTER INDEX holdfast.event_feed ATTACH PARTITION holdfast.event_000000262144_place_log_id_idx;
