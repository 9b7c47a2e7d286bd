#include "platform/store/schema.h"

namespace tesser::platform {

const std::vector<std::string_view>& schema_steps() {
  static const std::vector<std::string_view> kSteps = {
      // Jobs and their history.
      R"(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  user TEXT NOT NULL,
  team TEXT NOT NULL,
  priority INTEGER NOT NULL,
  learners INTEGER NOT NULL,
  resources TEXT NOT NULL,
  state TEXT NOT NULL,
  code TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  wanted TEXT NOT NULL DEFAULT 'run',
  attempt INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL DEFAULT 0,
  holder TEXT NOT NULL DEFAULT '',
  sequence INTEGER NOT NULL DEFAULT 0,
  restarts INTEGER NOT NULL DEFAULT 0,
  restarts_most INTEGER NOT NULL DEFAULT 0,
  placement TEXT NOT NULL DEFAULT '[]',
  idempotency_key TEXT,
  request_digest TEXT NOT NULL DEFAULT '',
  submitted INTEGER NOT NULL,
  queued INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  started INTEGER NOT NULL DEFAULT 0,
  ended INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX jobs_by_key ON jobs (user, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_team ON jobs (team, number);
CREATE TABLE history (
  job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  state TEXT NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  time INTEGER NOT NULL,
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
)",
      // Who may do what.
      R"(
CREATE TABLE tokens (
  hash BLOB PRIMARY KEY,
  role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'guardian')),
  user TEXT NOT NULL,
  team TEXT NOT NULL,
  job TEXT REFERENCES jobs (id) ON DELETE CASCADE,
  created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_by_job ON tokens (job) WHERE job IS NOT NULL;
)",
      // Users in teams. Tokens are of a user, perhaps for one of the user's teams alone, or of a job's guardian.
      R"(
CREATE TABLE users (
  name TEXT PRIMARY KEY,
  is_administrator INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE teams (
  name TEXT PRIMARY KEY,
  created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE members (
  team TEXT NOT NULL REFERENCES teams (name) ON DELETE CASCADE,
  user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
  role TEXT NOT NULL CHECK (role IN ('administrator', 'member', 'viewer')),
  PRIMARY KEY (team, user)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_user ON members (user);
CREATE TABLE learner_users (
  team TEXT PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
INSERT INTO teams SELECT team, min(submitted) FROM jobs WHERE team <> '' GROUP BY team;
INSERT OR IGNORE INTO teams SELECT team, min(created) FROM tokens WHERE team <> '' GROUP BY team;
INSERT INTO users SELECT user, max(role = 'admin'), min(created) FROM tokens WHERE job IS NULL AND user <> '' GROUP BY user;
INSERT INTO members SELECT team, user, 'member' FROM tokens WHERE job IS NULL AND user <> '' AND team <> '' GROUP BY team, user;
CREATE TABLE owned_tokens (
  hash BLOB PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  user TEXT REFERENCES users (name) ON DELETE CASCADE,
  team TEXT REFERENCES teams (name) ON DELETE CASCADE,
  job TEXT REFERENCES jobs (id) ON DELETE CASCADE,
  description TEXT NOT NULL DEFAULT '',
  made_by TEXT NOT NULL DEFAULT '',
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL DEFAULT 0,
  revoked INTEGER NOT NULL DEFAULT 0,
  CHECK ((user IS NULL) <> (job IS NULL))
) STRICT, WITHOUT ROWID;
INSERT INTO owned_tokens (hash, id, user, job, created)
  SELECT hash, lower(hex(randomblob(6))), CASE WHEN job IS NULL THEN user END, job, created FROM tokens
  WHERE job IS NOT NULL OR user <> '';
DROP TABLE tokens;
ALTER TABLE owned_tokens RENAME TO tokens;
CREATE INDEX tokens_by_begin ON tokens (substr(hash, 1, 8));
CREATE INDEX tokens_by_job ON tokens (job) WHERE job IS NOT NULL;
CREATE INDEX tokens_by_user ON tokens (user) WHERE user IS NOT NULL;
)",
      // Many teams on one cluster.
      R"(
ALTER TABLE jobs ADD COLUMN longest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN placed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN is_borrowed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN preempted TEXT NOT NULL DEFAULT '';
UPDATE jobs SET placed = changed WHERE state IN ('PENDING', 'DEPLOYING', 'DOWNLOADING', 'PROCESSING', 'STORING');
CREATE TABLE quotas (
  team TEXT PRIMARY KEY REFERENCES teams (name) ON DELETE CASCADE,
  resources TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE draining_nodes (
  name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
)",
  };
  return kSteps;
}

}  // namespace tesser::platform
