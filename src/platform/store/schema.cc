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
  };
  return kSteps;
}

}  // namespace tesser::platform
