-- A store as format 2 wrote it: two plain messages, one shared with the dead-letter queue.
PRAGMA application_id = 1114993527;
PRAGMA page_size = 8192;
BEGIN TRANSACTION;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, bare BLOB NOT NULL);
INSERT INTO "bodies" VALUES(7,X'736861726564');
CREATE TABLE copies (body_id INTEGER PRIMARY KEY, count INTEGER NOT NULL);
INSERT INTO "copies" VALUES(7,2);
CREATE TABLE duplicates (
    slot INTEGER NOT NULL,
    digest BLOB NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (slot, digest)
) WITHOUT ROWID;
INSERT INTO "duplicates" VALUES(1,X'64646464646464646464646464646464',9000);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    expires_ms INTEGER,
    session_id TEXT,
    delivery_count INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    ttl_ms INTEGER,
    header INTEGER NOT NULL,
    annotation_items INTEGER NOT NULL,
    size INTEGER NOT NULL,
    enqueued_number INTEGER NOT NULL DEFAULT 0,
    hops INTEGER NOT NULL DEFAULT 0,
    body_id INTEGER,
    changes BLOB,
    dead_letter_source TEXT,
    destination TEXT,
    annotations BLOB,
    bare BLOB
);
INSERT INTO "messages" VALUES(17592186044417,0,NULL,NULL,0,0,NULL,0,0,100,0,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E');
INSERT INTO "messages" VALUES(17592186044418,0,NULL,NULL,0,0,NULL,0,0,100,0,0,7,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "messages" VALUES(35184372088834,0,NULL,NULL,0,0,NULL,0,0,100,0,0,7,X'63',NULL,NULL,NULL,NULL);
CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (slot, session_id)
);
CREATE TABLE sessions (
    slot INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    updated_ms INTEGER,
    state_bytes INTEGER NOT NULL,
    PRIMARY KEY (slot, session_id)
) WITHOUT ROWID;
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    format INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    commit_number INTEGER NOT NULL,
    time_ms INTEGER NOT NULL
);
INSERT INTO "store" VALUES(1,2,'a-store-of-format-2',1,'a-store-of-format-2',2,1000);
CREATE TABLE sub_queues (
    slot INTEGER PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    next_counter INTEGER NOT NULL,
    active INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    shares_bodies INTEGER NOT NULL,
    purging INTEGER NOT NULL,
    UNIQUE (incarnation, partition, kind)
);
INSERT INTO "sub_queues" VALUES(1,7,3,0,3,2,0,0,200,1,0);
INSERT INTO "sub_queues" VALUES(2,7,3,1,1,1,0,0,100,1,0);
CREATE TABLE transactions (
    id BLOB PRIMARY KEY,
    until_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE transfers (
    slot INTEGER NOT NULL,
    source_incarnation INTEGER NOT NULL,
    source_partition INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (slot, source_incarnation, source_partition)
) WITHOUT ROWID;
CREATE INDEX expiring ON messages (expires_ms, (id & 9223372036854775807)) WHERE expires_ms IS NOT NULL;
CREATE INDEX waiting ON messages (state) WHERE state <> 0;
CREATE INDEX in_session ON messages (session_id) WHERE session_id IS NOT NULL;
CREATE TRIGGER last_copy_deleted AFTER UPDATE ON copies WHEN new.count = 0 BEGIN
    DELETE FROM bodies WHERE id = new.body_id;
    DELETE FROM copies WHERE body_id = new.body_id;
END;
CREATE INDEX duplicates_over ON duplicates (until_ms);
CREATE INDEX transactions_over ON transactions (until_ms);
COMMIT;
