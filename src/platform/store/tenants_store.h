// Tenants in the store's file. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/store/database.h"
#include "platform/store/tenants.h"

namespace tesser::platform {

// The database must outlive it.
std::unique_ptr<Tenants> make_tenants(Database& database);

// Of a transaction that makes the job.
void put_guardian_token(SQLite::Database& database, const std::string& token, const std::string& job,
                        std::int64_t time);

}  // namespace tesser::platform
