CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE events (seq {integer} PRIMARY KEY, batch {integer} NOT NULL, key {key}, body {blob} NOT NULL);
CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL;
CREATE TABLE contents (digest TEXT PRIMARY KEY, body {blob} NOT NULL);
CREATE TABLE snapshots (seq {integer} PRIMARY KEY, body {blob} NOT NULL, digest {blob} NOT NULL);
CREATE TABLE cut (first {integer} NOT NULL, before {blob} NOT NULL, base {integer} NOT NULL);
CREATE TABLE head (seq {integer} NOT NULL, digest {blob} NOT NULL, epoch {integer} NOT NULL);
