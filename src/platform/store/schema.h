// The tables of the store, as one step after the other made them. Internal to this folder.
#pragma once

#include <string_view>
#include <vector>

namespace tesser::platform {

// SQL that leads from version I to I + 1 (PRAGMA user_version; 0: an empty file). A step that was released is never
// changed; what comes later is another step.
const std::vector<std::string_view>& schema_steps();
// "tesr": PRAGMA application_id.
inline constexpr int kStoreApplication = 0x74657372;

}  // namespace tesser::platform
