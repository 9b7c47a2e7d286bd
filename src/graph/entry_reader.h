// Strict access to the keys of one JSON object, for the readers of programs and of files that speak of programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/tensor.h"

namespace tesser::graph {

// The text as a JSON string for a message, cut when it is long.
std::string brief(std::string_view text);

// Keys are taken one by one; finish() refuses those nobody took. The first defect is kept in `error`, with `where`
// before it; from then on getters return values without meaning, so a caller may read a whole entry and look at `error`
// once.
class EntryReader {
 public:
  EntryReader(const Json& entry, std::string where, std::optional<std::string>& error);

  void rename(std::string where) { where_ = std::move(where); }
  void fail(const std::string& reason);
  bool failed() const { return error_.has_value(); }

  const Json* required(std::string_view key);
  const Json* optional(std::string_view key);

  std::string string(std::string_view key);  // required, as all below
  std::int64_t integer(std::string_view key);
  double number(std::string_view key);  // float or integer
  bool boolean(std::string_view key);
  const Json::Array& array(std::string_view key);
  // A name as name_defect() allows.
  std::string name(std::string_view key, bool may_be_empty = false);
  DType dtype_of(const Json& json);
  Shape shape_of(const Json& json);
  std::vector<std::string> names_of(const Json& json, std::string_view key);
  std::vector<std::int64_t> integers_of(const Json& json, std::string_view key);

  void finish();

 private:
  const Json::Object* object_;
  std::string where_;
  std::optional<std::string>& error_;
  std::vector<bool> taken_;
};

}  // namespace tesser::graph
