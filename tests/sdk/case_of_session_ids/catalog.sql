-- A catalog of format 4, written before session ids folded case: in each entity a session 'Order' and one 'order'.
PRAGMA application_id = 0;
PRAGMA user_version = 4;
PRAGMA page_size = 4096;
BEGIN TRANSACTION;
CREATE TABLE carried_out (
    store_id TEXT NOT NULL,
    transaction_id BLOB NOT NULL,
    PRIMARY KEY (store_id, transaction_id)
) WITHOUT ROWID;
CREATE TABLE declared_access (
    namespace TEXT NOT NULL,
    name_key TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (namespace, name_key)
) WITHOUT ROWID;
CREATE TABLE entities (
    incarnation INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (namespace, path_key)
);
INSERT INTO "entities" VALUES(1,'busway','queue','plain','plain',1,'{"placement":["5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f"],"created_ms":1794964951416,"updated_ms":1794964951416,"enable_partitioning":false,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"max_size_mb":1024,"max_message_size_kb":256,"requires_session":true,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null}');
INSERT INTO "entities" VALUES(2,'busway','queue','parts','parts',1,'{"placement":["5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f"],"created_ms":1794964951416,"updated_ms":1794964951416,"enable_partitioning":true,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"max_size_mb":1024,"max_message_size_kb":256,"requires_session":true,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null}');
INSERT INTO "entities" VALUES(3,'busway','topic','news','news',1,'{"placement":["5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f"],"created_ms":1794964951416,"updated_ms":1794964951416,"enable_partitioning":true,"default_ttl_ms":null,"max_size_mb":1024,"max_message_size_kb":256,"requires_duplicate_detection":false,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"support_ordering":false,"status":"Active","auto_delete_on_idle_ms":null,"user_metadata":null,"authorization_rules":[],"capture":false,"captured_ms":0,"capture_limits":{},"migration":null}');
INSERT INTO "entities" VALUES(4,'busway','subscription','news/Subscriptions/all','news/subscriptions/all',1,'{"topic":"news","name":"all","topic_incarnation":3,"placement":["5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f","5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f"],"created_ms":1794964951416,"updated_ms":1794964951416,"lock_duration_ms":60000,"max_delivery_count":10,"default_ttl_ms":null,"dead_lettering_on_expiration":false,"dead_lettering_on_filter_errors":true,"requires_session":true,"enable_batched_operations":true,"status":"Active","auto_delete_on_idle_ms":null,"forward_to":null,"forward_dead_letters_to":null,"user_metadata":null,"capture":false,"captured_ms":0,"capture_limits":{},"migration":null}');
CREATE TABLE namespaces (name TEXT PRIMARY KEY, description TEXT NOT NULL);
INSERT INTO "namespaces" VALUES('busway','{"tier":"Standard","partitions":1,"authorization_rules":[],"created_ms":1794964951371,"updated_ms":1794964951371}');
CREATE TABLE rules (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    name_key TEXT NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (subscription, name_key)
);
INSERT INTO "rules" VALUES(1,4,'$default','{"name":"$Default","action":null,"created_ms":1794964951416,"filter":"true"}');
CREATE TABLE stores (position INTEGER PRIMARY KEY, store_id TEXT NOT NULL UNIQUE);
INSERT INTO "stores" VALUES(0,'5d8e5adf-71b3-4bb4-bcd3-6a4da4baac9f');
CREATE TABLE tombstones (
    incarnation INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    path TEXT NOT NULL,
    deleted_ms INTEGER NOT NULL,
    PRIMARY KEY (incarnation, store_id)
) WITHOUT ROWID;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entities',4);
INSERT INTO "sqlite_sequence" VALUES('rules',1);
COMMIT;
