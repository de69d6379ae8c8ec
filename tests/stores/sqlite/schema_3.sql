
PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS api_key;
CREATE TABLE api_key (
    key_id     TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO api_key VALUES('9f480d0a61b7',1767225693234567,'{"key_id":"9f480d0a61b7","name":"ci","digest":"1f9631f7693635f16f908568f67fe76d6bcd40667794de70e826193b8d7fa6de","scopes":["observe"],"queues":["*"],"created_at":"2026-01-01T00:01:33.234567Z","expires_at":"2026-04-01T00:01:33.234567Z","created_by":"user:ana"}');

DROP TABLE IF EXISTS event;
CREATE TABLE event (
    log_id        INTEGER PRIMARY KEY,
    job           INTEGER,
    event_offset  INTEGER,
    transition_no INTEGER,
    event_type    TEXT NOT NULL,
    event_class   TEXT NOT NULL,
    from_state    TEXT,
    to_state      TEXT,
    attempt       INTEGER,
    fencing_token INTEGER,
    sequence      INTEGER,
    end_sequence  INTEGER,
    op_id         TEXT,
    actor         TEXT,
    occurred_at   INTEGER NOT NULL,
    received_at   INTEGER,
    given_id      TEXT,
    about         TEXT,
    body          TEXT
) STRICT;
INSERT INTO event VALUES(1,1,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'queued','user:ana',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(2,2,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'delayed','user:ana',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(3,3,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'deadline','user:ana',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(4,4,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'elsewhere','user:ana',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(5,5,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'nightly','user:bob',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(6,6,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'done','user:ana',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(7,6,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'claim-done','worker:w1',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(8,6,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'start:1','worker:w1',1767225600000000,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(9,6,NULL,NULL,'output','worker',NULL,NULL,1,1,1,3,NULL,'worker:w1',1767225600000000,1767225600000000,NULL,NULL,'[{"event_type":"output","event_class":"worker","occurred_at":"2026-01-01T00:00:00Z","sequence":1,"stream":"stdout","data":"bGluZSAxCg=="},{"event_type":"custom","event_class":"worker","occurred_at":"2026-01-01T00:00:00Z","attributes":{"loss":1.5},"sequence":2},{"event_type":"output","event_class":"worker","occurred_at":"2026-01-01T00:00:00Z","sequence":3,"stream":"stdout","data":"bGluZSAzCg=="}]');
INSERT INTO event VALUES(10,6,NULL,NULL,'output','worker',NULL,NULL,1,1,4,5,NULL,'worker:w1',1767225600000000,1767225600000000,NULL,NULL,'[{"event_type":"output","event_class":"worker","occurred_at":"2026-01-01T00:00:00Z","sequence":4,"stream":"stdout","data":"bGluZSA0Cg=="},{"event_type":"output","event_class":"worker","occurred_at":"2026-01-01T00:00:00Z","sequence":5,"stream":"stdout","data":"Zml2ZQ=="}]');
INSERT INTO event VALUES(11,6,4,4,'job_succeeded','transition','running','succeeded',1,1,NULL,NULL,'complete-done','worker:w1',1767225601234567,NULL,NULL,NULL,'{"attributes":{"result":{"answer":42}}}');
INSERT INTO event VALUES(12,7,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'failed','user:ana',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(13,7,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000001','worker:w1',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(14,7,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'00000002','worker:w1',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(15,7,4,4,'job_failed','transition','running','failed',1,1,NULL,NULL,'00000002','worker:w1',1767225601234567,NULL,NULL,NULL,'{"reason":"no such model","attributes":{"error":{"message":"no such model","code":"PermanentError","retryable":false},"failures":1,"crashes":0}}');
INSERT INTO event VALUES(16,8,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'retried','user:ana',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(17,8,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000003','worker:w2',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(18,8,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'start:1','worker:w2',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(19,8,4,4,'job_requeued','transition','running','queued',2,1,NULL,NULL,'00000004','worker:w2',1767225601234567,NULL,NULL,NULL,'{"reason":"the network hiccuped","attributes":{"error":{"message":"the network hiccuped","code":"TransientError"},"failures":1,"crashes":0,"cause":"retryable_error","ready_at":"2026-01-01T00:00:01.288841Z"}}');
INSERT INTO event VALUES(20,9,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'cancelled','user:ana',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(21,9,2,2,'job_cancelled','transition','queued','cancelled',1,NULL,NULL,NULL,'00000005','user:ana',1767225601234567,NULL,NULL,NULL,'{"reason":"no"}');
INSERT INTO event VALUES(22,10,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'released','user:ana',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(23,10,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000006','worker:w3',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(24,10,3,3,'job_requeued','transition','assigned','queued',2,1,NULL,NULL,'00000007','worker:w3',1767225601234567,NULL,NULL,NULL,'{"reason":"later","attributes":{"cause":"released"}}');
INSERT INTO event VALUES(25,11,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'lapsed','user:ana',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(26,11,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'claim-lapsed','worker:w3',1767225601234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(27,11,3,3,'job_requeued','transition','assigned','queued',2,1,NULL,NULL,'expire:2','system:expire',1767225662234567,NULL,NULL,NULL,'{"reason":"w3 lost the lease","attributes":{"cause":"lease_expired","crashes":1}}');
INSERT INTO event VALUES(28,12,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'timed','user:ana',1767225662234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(29,12,2,2,'job_dead_lettered','transition','queued','dead_lettered',1,NULL,NULL,NULL,'expire:1','system:expire',1767225693234567,NULL,NULL,NULL,'{"reason":"timeout: the deadline passed before it was claimed","attributes":{"error":{"message":"the deadline passed before it was claimed","code":"TimeUp","crash":true,"reason_code":"timeout"},"dead_letter":{"reason_code":"timeout","last_error":"the deadline passed before it was claimed","attempts":1,"stage":"exec","correlation_id":"timed"}}}');
INSERT INTO event VALUES(30,13,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'validating','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(31,13,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000008','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(32,13,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'00000009','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(33,13,4,4,'job_validating','transition','running','validating',1,1,NULL,NULL,'00000009','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(34,14,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'assigned','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(35,14,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'claim-assigned','worker:w4',1767225693234567,NULL,NULL,NULL,'{"attributes":{"lock":"tape"}}');
INSERT INTO event VALUES(36,15,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'pruned','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(37,15,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000010','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(38,15,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'00000011','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(39,15,4,4,'job_succeeded','transition','running','succeeded',1,1,NULL,NULL,'00000011','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(40,16,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'running','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(41,16,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'claim-running','worker:w5',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(42,16,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'start:1','worker:w5',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(43,17,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'stopping','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(44,17,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000012','worker:w5',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(45,17,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'start:1','worker:w5',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(46,17,4,NULL,'job_cancel_requested','control',NULL,NULL,1,1,NULL,NULL,'00000013','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(47,18,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'dead','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(48,18,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000014','worker:w6',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(49,18,3,3,'job_started','transition','assigned','running',1,1,NULL,NULL,'00000015','worker:w6',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(50,18,4,4,'job_dead_lettered','transition','running','dead_lettered',1,1,NULL,NULL,'00000015','worker:w6',1767225693234567,NULL,NULL,NULL,'{"reason":"exhausted_retries: the network hiccuped","attributes":{"error":{"message":"the network hiccuped","code":"TransientError"},"failures":1,"crashes":0,"dead_letter":{"reason_code":"exhausted_retries","last_error":"the network hiccuped","attempts":1,"stage":"exec","correlation_id":"dead","last_owner":"w6","last_lease_expires_at":"2026-01-01T00:02:33.234567Z"}}}');
INSERT INTO event VALUES(51,19,1,1,'job_queued','transition',NULL,'queued',1,NULL,NULL,NULL,'parent','user:ana',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(52,19,2,2,'job_claimed','transition','queued','assigned',1,1,NULL,NULL,'00000016','worker:w1',1767225693234567,NULL,NULL,NULL,NULL);
INSERT INTO event VALUES(53,NULL,NULL,NULL,'invoice_sent','external',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1767225693234567,1767225693234567,'inv-1','queued','{"attributes":{"n":1}}');
INSERT INTO event VALUES(54,NULL,NULL,NULL,'note_taken','external',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1767225693234567,1767225693234567,'note-1',NULL,'{}');
INSERT INTO event VALUES(55,NULL,NULL,NULL,'key_created','external',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'user:ana',1767225693234567,1767225693234567,'key/9f480d0a61b7/created',NULL,'{"attributes":{"name":"ci","key_id":"9f480d0a61b7","scopes":["observe"],"queues":["*"],"regions":[]}}');
CREATE INDEX event_about ON event (about) WHERE given_id IS NOT NULL;
CREATE UNIQUE INDEX event_chain ON event (job, event_offset) WHERE event_offset IS NOT NULL;
CREATE INDEX event_claim ON event (op_id) WHERE event_type = 'job_claimed';
CREATE UNIQUE INDEX event_given ON event (given_id) WHERE given_id IS NOT NULL;
CREATE UNIQUE INDEX event_worker ON event (job, fencing_token, sequence) WHERE sequence IS NOT NULL;

DROP TABLE IF EXISTS job;
CREATE TABLE job (
    seq              INTEGER PRIMARY KEY,
    job_id           TEXT NOT NULL CONSTRAINT a_job_is_made_once UNIQUE,
    queue            TEXT NOT NULL,
    kind             TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    region           TEXT,
    executor         TEXT,
    lock             TEXT,
    state            TEXT NOT NULL,
    attempt          INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    transition_no    INTEGER NOT NULL,
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    fencing_token    INTEGER NOT NULL,
    owner            TEXT,
    lease_expires_at INTEGER,
    ready_at         INTEGER NOT NULL,
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    ended_at         INTEGER,
    spec             TEXT NOT NULL,
    detail           TEXT NOT NULL
) STRICT;
INSERT INTO job VALUES(1,'queued','default','command/own',5,NULL,NULL,NULL,'queued',1,1,1,0,0,0,NULL,NULL,1767225600000000,NULL,1767225600000000,1767225600000000,NULL,'{"payload":{"a": 1,  "b": "\u00e9"},"labels":{"team":"blue"}}','{"submitted_by":"user:ana"}');
INSERT INTO job VALUES(2,'delayed','default','command',5,NULL,NULL,NULL,'queued',1,1,1,0,0,0,NULL,NULL,1767229200000000,NULL,1767225600000000,1767225600000000,NULL,'{"delay":"PT3600S"}','{"submitted_by":"user:ana"}');
INSERT INTO job VALUES(3,'deadline','default','command',5,NULL,NULL,'disk','queued',1,1,1,0,0,0,NULL,NULL,1767225600000000,1767232800000000,1767225600000000,1767225600000000,NULL,'{"lock":"disk","ttl":"PT7200S"}','{"deadline_at":"2026-01-01T02:00:00Z","submitted_by":"user:ana"}');
INSERT INTO job VALUES(4,'elsewhere','other','train',1,'eu','gpu',NULL,'queued',1,1,1,0,0,0,NULL,NULL,1767225600000000,NULL,1767225600000000,1767225600000000,NULL,'{"kind":"train","queue":"other","name":"Train","priority":1,"region":"eu","executor":"gpu","timeout":"PT300S"}','{"submitted_by":"user:ana"}');
INSERT INTO job VALUES(5,'09f61d2f-beec-8e6e-a127-e63ebb1625e7','other','command',5,NULL,NULL,NULL,'queued',1,1,1,0,0,0,NULL,NULL,1767225600000000,NULL,1767225600000000,1767225600000000,NULL,'{"queue":"other"}','{"submitted_by":"user:bob"}');
INSERT INTO job VALUES(6,'done','d1','command',5,NULL,NULL,NULL,'succeeded',1,4,4,0,0,1,NULL,NULL,1767225600000000,NULL,1767225600000000,1767225601234567,1767225601234567,'{"queue":"d1"}','{"claim_op_id":"claim-done","started_at":"2026-01-01T00:00:00Z","result":{"answer":42},"submitted_by":"user:ana","published":5,"published_bytes":357}');
INSERT INTO job VALUES(7,'failed','f1','command',5,NULL,NULL,NULL,'failed',1,4,4,1,0,1,NULL,NULL,1767225601234567,NULL,1767225601234567,1767225601234567,1767225601234567,'{"queue":"f1","retry":{"max_failures":3}}','{"claim_op_id":"00000001","started_at":"2026-01-01T00:00:01.234567Z","reason":"no such model","error":{"message":"no such model","code":"PermanentError","retryable":false},"submitted_by":"user:ana","completed_at":"2026-01-01T00:00:01.234567Z"}');
INSERT INTO job VALUES(8,'retried','f2','command',5,NULL,NULL,NULL,'queued',2,4,4,1,0,1,NULL,NULL,1767225601288841,NULL,1767225601234567,1767225601234567,NULL,'{"queue":"f2","retry":{}}','{"claim_op_id":"00000003","started_at":"2026-01-01T00:00:01.234567Z","reason":"the network hiccuped","error":{"message":"the network hiccuped","code":"TransientError"},"submitted_by":"user:ana","heartbeats":1,"checkpoint":{"row":7}}');
INSERT INTO job VALUES(9,'cancelled','c1','command',5,NULL,NULL,NULL,'cancelled',1,2,2,0,0,0,NULL,NULL,1767225601234567,NULL,1767225601234567,1767225601234567,1767225601234567,'{"queue":"c1"}','{"reason":"no","submitted_by":"user:ana"}');
INSERT INTO job VALUES(10,'released','r1','command',5,NULL,NULL,NULL,'queued',2,3,3,0,0,1,NULL,NULL,1767225601234567,NULL,1767225601234567,1767225601234567,NULL,'{"queue":"r1"}','{"claim_op_id":"00000006","reason":"later","submitted_by":"user:ana"}');
INSERT INTO job VALUES(11,'lapsed','l1','command',5,NULL,NULL,NULL,'queued',2,3,3,0,1,1,NULL,NULL,1767225601234567,NULL,1767225601234567,1767225662234567,NULL,'{"queue":"l1"}','{"claim_op_id":"claim-lapsed","reason":"w3 lost the lease","submitted_by":"user:ana"}');
INSERT INTO job VALUES(12,'timed','t1','command',5,NULL,NULL,NULL,'dead_lettered',1,2,2,0,0,0,NULL,NULL,1767225662234567,NULL,1767225662234567,1767225693234567,1767225693234567,'{"queue":"t1","ttl":"PT30S"}','{"deadline_at":"2026-01-01T00:01:32.234567Z","reason":"timeout: the deadline passed before it was claimed","error":{"message":"the deadline passed before it was claimed","code":"TimeUp","crash":true,"reason_code":"timeout"},"dead_letter":{"reason_code":"timeout","last_error":"the deadline passed before it was claimed","attempts":1,"stage":"exec","correlation_id":"timed"},"submitted_by":"user:ana"}');
INSERT INTO job VALUES(13,'validating','v1','command',5,NULL,NULL,NULL,'validating',1,4,4,0,0,1,NULL,NULL,1767225693234567,NULL,1767225693234567,1767225693234567,NULL,'{"queue":"v1","promised_outputs":2}','{"claim_op_id":"00000008","started_at":"2026-01-01T00:01:33.234567Z","submitted_by":"user:ana","check":{"next_at":"2026-01-01T00:01:48.234567Z"},"completed_at":"2026-01-01T00:01:33.234567Z"}');
INSERT INTO job VALUES(14,'assigned','a1','command',5,NULL,NULL,'tape','assigned',1,2,2,0,0,1,'w4',1767225753234567,1767225693234567,1767225753234567,1767225693234567,1767225693234567,NULL,'{"queue":"a1","lock":"tape"}','{"lease":{"owner":"w4","expires_at":"2026-01-01T00:02:33.234567Z","ttl":"PT60S","granted_at":"2026-01-01T00:01:33.234567Z","heartbeat_at":"2026-01-01T00:01:33.234567Z"},"claim_op_id":"claim-assigned","submitted_by":"user:ana"}');
INSERT INTO job VALUES(15,'pruned','p1','command',5,NULL,NULL,NULL,'succeeded',1,4,4,0,0,1,NULL,NULL,1767225693234567,NULL,1767225693234567,1767225693234567,1767225693234567,'{"queue":"p1"}','{"claim_op_id":"00000010","started_at":"2026-01-01T00:01:33.234567Z","submitted_by":"user:ana"}');
INSERT INTO job VALUES(16,'running','a2','command',5,NULL,NULL,NULL,'running',1,3,3,0,0,1,'w5',1767225753234567,1767225693234567,1767225753234567,1767225693234567,1767225693234567,NULL,'{"queue":"a2","timeout":"PT3600S"}','{"lease":{"owner":"w5","expires_at":"2026-01-01T00:02:33.234567Z","ttl":"PT60S","granted_at":"2026-01-01T00:01:33.234567Z","heartbeat_at":"2026-01-01T00:01:33.234567Z"},"claim_op_id":"claim-running","started_at":"2026-01-01T00:01:33.234567Z","submitted_by":"user:ana","heartbeats":1,"progress":{"done":3,"total":9,"message":"half"}}');
INSERT INTO job VALUES(17,'stopping','a3','command',5,NULL,NULL,NULL,'running',1,4,3,0,0,1,'w5',1767225753234567,1767225693234567,1767225753234567,1767225693234567,1767225693234567,NULL,'{"queue":"a3"}','{"lease":{"owner":"w5","expires_at":"2026-01-01T00:02:33.234567Z","ttl":"PT60S","granted_at":"2026-01-01T00:01:33.234567Z","heartbeat_at":"2026-01-01T00:01:33.234567Z"},"claim_op_id":"00000012","cancel":{"actor":"user:ana","requested_at":"2026-01-01T00:01:33.234567Z"},"started_at":"2026-01-01T00:01:33.234567Z","submitted_by":"user:ana","heartbeats":1}');
INSERT INTO job VALUES(18,'dead','x1','command',5,NULL,NULL,NULL,'dead_lettered',1,4,4,1,0,1,NULL,NULL,1767225693234567,NULL,1767225693234567,1767225693234567,1767225693234567,'{"queue":"x1","retry":{"max_failures":1}}','{"claim_op_id":"00000014","started_at":"2026-01-01T00:01:33.234567Z","reason":"exhausted_retries: the network hiccuped","error":{"message":"the network hiccuped","code":"TransientError"},"dead_letter":{"reason_code":"exhausted_retries","last_error":"the network hiccuped","attempts":1,"stage":"exec","correlation_id":"dead","last_owner":"w6","last_lease_expires_at":"2026-01-01T00:02:33.234567Z"},"submitted_by":"user:ana","completed_at":"2026-01-01T00:01:33.234567Z"}');
INSERT INTO job VALUES(19,'parent','pp','command',5,NULL,NULL,NULL,'assigned',1,2,2,0,0,1,'w1',1767225753234567,1767225693234567,1767225753234567,1767225693234567,1767225693234567,NULL,'{"queue":"pp"}','{"lease":{"owner":"w1","expires_at":"2026-01-01T00:02:33.234567Z","ttl":"PT60S","granted_at":"2026-01-01T00:01:33.234567Z","heartbeat_at":"2026-01-01T00:01:33.234567Z"},"claim_op_id":"00000016","submitted_by":"user:ana"}');
CREATE INDEX job_due ON job (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX job_rare ON job (state, seq) WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');
CREATE INDEX job_ready ON job (queue, priority, ready_at) WHERE state = 'queued';

DROP TABLE IF EXISTS meta;
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('secret',X'CD072CD8BE6F9F62AC4C09C28206E7E35594AA6B342F5D0A3A5E4842FAB428F7');

DROP TABLE IF EXISTS queue_count;
CREATE TABLE queue_count (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;
INSERT INTO queue_count VALUES('a1','assigned',1);
INSERT INTO queue_count VALUES('a1','queued',0);
INSERT INTO queue_count VALUES('a2','assigned',0);
INSERT INTO queue_count VALUES('a2','queued',0);
INSERT INTO queue_count VALUES('a2','running',1);
INSERT INTO queue_count VALUES('a3','assigned',0);
INSERT INTO queue_count VALUES('a3','queued',0);
INSERT INTO queue_count VALUES('a3','running',1);
INSERT INTO queue_count VALUES('c1','cancelled',1);
INSERT INTO queue_count VALUES('c1','queued',0);
INSERT INTO queue_count VALUES('d1','assigned',0);
INSERT INTO queue_count VALUES('d1','queued',0);
INSERT INTO queue_count VALUES('d1','running',0);
INSERT INTO queue_count VALUES('d1','succeeded',1);
INSERT INTO queue_count VALUES('default','queued',3);
INSERT INTO queue_count VALUES('f1','assigned',0);
INSERT INTO queue_count VALUES('f1','failed',1);
INSERT INTO queue_count VALUES('f1','queued',0);
INSERT INTO queue_count VALUES('f2','assigned',0);
INSERT INTO queue_count VALUES('f2','queued',1);
INSERT INTO queue_count VALUES('f2','running',0);
INSERT INTO queue_count VALUES('l1','assigned',0);
INSERT INTO queue_count VALUES('l1','queued',1);
INSERT INTO queue_count VALUES('other','queued',2);
INSERT INTO queue_count VALUES('p1','assigned',0);
INSERT INTO queue_count VALUES('p1','queued',0);
INSERT INTO queue_count VALUES('p1','succeeded',1);
INSERT INTO queue_count VALUES('pp','assigned',1);
INSERT INTO queue_count VALUES('pp','queued',0);
INSERT INTO queue_count VALUES('r1','assigned',0);
INSERT INTO queue_count VALUES('r1','queued',1);
INSERT INTO queue_count VALUES('t1','dead_lettered',1);
INSERT INTO queue_count VALUES('t1','queued',0);
INSERT INTO queue_count VALUES('v1','assigned',0);
INSERT INTO queue_count VALUES('v1','queued',0);
INSERT INTO queue_count VALUES('v1','validating',1);
INSERT INTO queue_count VALUES('x1','assigned',0);
INSERT INTO queue_count VALUES('x1','dead_lettered',1);
INSERT INTO queue_count VALUES('x1','queued',0);

DROP TABLE IF EXISTS resource;
CREATE TABLE resource (
    key    TEXT PRIMARY KEY,
    token  INTEGER NOT NULL,
    holder TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO resource VALUES('tape',1,'assigned');

DROP VIEW IF EXISTS job_event_log;
CREATE VIEW job_event_log AS
SELECT
    event.log_id,
    coalesce(
        event.given_id,
        job.job_id || '/' || event.event_offset,
        job.job_id || '/' || event.attempt || '.' || event.fencing_token || '.' || event.sequence
    ) AS event_id,
    event.event_type,
    strftime('%Y-%m-%dT%H:%M:%fZ', event.occurred_at / 1e6, 'unixepoch') AS occurred_at,
    coalesce(job.job_id, event.about) AS job_id,
    event.body ->> '$.task_id' AS task_id,
    coalesce(event.body ->> '$.execution_id', job.job_id || '#' || event.attempt) AS execution_id,
    coalesce(event.body ->> '$.trace_id', job.detail ->> '$.trace_id') AS trace_id,
    event.body ->> '$.span_id' AS span_id,
    CASE WHEN event.sequence IS NULL THEN event.body -> '$.attributes' ELSE event.body END AS attributes,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(event.received_at, event.occurred_at) / 1e6, 'unixepoch')
        AS received_at
FROM event
LEFT JOIN job ON job.seq = event.job;

pragma user_version=3;

COMMIT TRANSACTION;

