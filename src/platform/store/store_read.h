// From rows to records. Internal to this folder; the declarations name no SQLite type but by reference.
#pragma once

#include <string>

#include "platform/store/store.h"

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace tesser::platform {

// The columns that record_of() reads, in its order.
extern const char* const kJobColumns;

// Of the row that a statement which selects kJobColumns stands at.
JobRecord record_of(SQLite::Statement& row);
Result<JobRecord> read_job(SQLite::Database& database, const std::string& id);

// As the store keeps them.
Resources resources_of(const std::string& text);
std::string resources_text(const Resources& resources);

}  // namespace tesser::platform
