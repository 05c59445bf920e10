-- A catalog as format 6 wrote it. The row of the topic is older: it has no checksum.
BEGIN TRANSACTION;
CREATE TABLE carried_out (
    store_id TEXT NOT NULL,
    transaction_id BLOB NOT NULL,
    PRIMARY KEY (store_id, transaction_id)
) WITHOUT ROWID;
INSERT INTO "carried_out" VALUES('store-a',X'0102');
CREATE TABLE declared_access (
    namespace TEXT NOT NULL,
    name_key TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (namespace, name_key)
) WITHOUT ROWID;
INSERT INTO "declared_access" VALUES('busway','key',X'09');
CREATE TABLE entities (
    incarnation INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL, checksum INTEGER,
    UNIQUE (namespace, path_key)
);
INSERT INTO "entities" VALUES(635387850752210876,'busway','queue','orders','orders',1,'{"placement":["store-a"],"created_ms":2000,"updated_ms":2000,"enable_partitioning":false,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"max_size_mb":1024,"max_message_size_kb":256,"requires_session":false,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null,"folds_session_ids":true}',1293433580);
INSERT INTO "entities" VALUES(1906163552256632628,'busway','topic','news','news',1,'{"placement":["store-b"],"created_ms":3000,"updated_ms":3000,"enable_partitioning":false,"default_ttl_ms":null,"max_size_mb":1024,"max_message_size_kb":256,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"support_ordering":true,"status":"Active","auto_delete_on_idle_ms":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null,"folds_session_ids":true}',NULL);
INSERT INTO "entities" VALUES(2541551403008843505,'busway','subscription','news/Subscriptions/all','news/subscriptions/all',2,'{"topic":"news","name":"all","topic_incarnation":1906163552256632628,"placement":["store-b"],"created_ms":4000,"updated_ms":4000,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"dead_lettering_on_filter_errors":true,"requires_session":false,"enable_batched_operations":true,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"capture":false,"captured_ms":0,"capture_limits":{},"migration":null,"folds_session_ids":true}',3981692185);
INSERT INTO "entities" VALUES(3176939253761054381,'second','queue','orders','orders',1,'{"placement":["store-a"],"created_ms":8000,"updated_ms":8000,"enable_partitioning":false,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"max_size_mb":1024,"max_message_size_kb":256,"requires_session":false,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null,"folds_session_ids":true}',1659678225);
CREATE TABLE namespaces (name TEXT PRIMARY KEY, description TEXT NOT NULL);
INSERT INTO "namespaces" VALUES('busway','{"tier":"Standard","partitions":1,"authorization_rules":[],"created_ms":1000,"updated_ms":1000}');
INSERT INTO "namespaces" VALUES('second','{"tier":"Standard","partitions":1,"authorization_rules":[],"created_ms":7000,"updated_ms":7000}');
CREATE TABLE rules (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    name_key TEXT NOT NULL,
    description TEXT NOT NULL, checksum INTEGER,
    UNIQUE (subscription, name_key)
);
INSERT INTO "rules" VALUES(1,2541551403008843505,'$default','{"name":"$Default","action":null,"created_ms":4000,"filter":"true"}',4278576585);
INSERT INTO "rules" VALUES(2,2541551403008843505,'r','{"name":"r","action":null,"created_ms":5000,"filter":"sql","expression":"a = 1","parameters":""}',1288063095);
CREATE TABLE stores (position INTEGER PRIMARY KEY, store_id TEXT NOT NULL UNIQUE);
INSERT INTO "stores" VALUES(0,'store-a');
INSERT INTO "stores" VALUES(1,'store-b');
CREATE TABLE tombstones (
    incarnation INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    path TEXT NOT NULL,
    deleted_ms INTEGER NOT NULL,
    PRIMARY KEY (incarnation, store_id)
) WITHOUT ROWID;
INSERT INTO "tombstones" VALUES(1270775701504421752,'store-b','gone',6000);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entities',3176939253761054381);
INSERT INTO "sqlite_sequence" VALUES('rules',2);
COMMIT;
PRAGMA user_version = 6;
