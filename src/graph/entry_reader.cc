#include "graph/entry_reader.h"

#include "graph/names.h"

namespace tesser::graph {
namespace {

const Json::Object kNoEntries;
const Json::Array kNoArray;

std::string quoted(std::string_view key) { return std::string("'").append(key).append("'"); }

}  // namespace

std::string brief(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  return text.size() <= kLongest ? json_string(text) : json_string(text.substr(0, kLongest)) + "...";
}

EntryReader::EntryReader(const Json& entry, std::string where, std::optional<std::string>& error)
    : object_(entry.object()), where_(std::move(where)), error_(error) {
  if (object_ == nullptr) {
    fail("is not a JSON object");
    object_ = &kNoEntries;
  }
  taken_.resize(object_->size());
}

void EntryReader::fail(const std::string& reason) {
  if (!error_.has_value()) {
    error_ = where_.empty() ? reason : where_ + ": " + reason;
  }
}

const Json* EntryReader::optional(std::string_view key) {
  for (std::size_t index = 0; index < object_->size(); ++index) {
    if ((*object_)[index].first == key) {
      taken_[index] = true;
      return &(*object_)[index].second;
    }
  }
  return nullptr;
}

const Json* EntryReader::required(std::string_view key) {
  const Json* const value = optional(key);
  if (value == nullptr) {
    fail("key " + quoted(key) + " is missing");
  }
  return value;
}

std::string EntryReader::string(std::string_view key) {
  const Json* const value = required(key);
  if (value == nullptr) {
    return {};
  }
  if (value->string() == nullptr) {
    fail(quoted(key) + " is not a string");
    return {};
  }
  return *value->string();
}

std::int64_t EntryReader::integer(std::string_view key) {
  const Json* const value = required(key);
  if (value == nullptr) {
    return 0;
  }
  if (value->integer() == nullptr) {
    fail(quoted(key) + " is not an integer");
    return 0;
  }
  return *value->integer();
}

double EntryReader::number(std::string_view key) {
  const Json* const value = required(key);
  if (value == nullptr) {
    return 0;
  }
  if (const auto* const number = value->get<double>()) {
    return *number;
  }
  if (value->integer() == nullptr) {
    fail(quoted(key) + " is not a number");
    return 0;
  }
  return static_cast<double>(*value->integer());
}

bool EntryReader::boolean(std::string_view key) {
  const Json* const value = required(key);
  if (value == nullptr) {
    return false;
  }
  if (value->get<bool>() == nullptr) {
    fail(quoted(key) + " is neither true nor false");
    return false;
  }
  return *value->get<bool>();
}

const Json::Array& EntryReader::array(std::string_view key) {
  const Json* const value = required(key);
  if (value == nullptr) {
    return kNoArray;
  }
  if (value->array() == nullptr) {
    fail(quoted(key) + " is not an array");
    return kNoArray;
  }
  return *value->array();
}

std::string EntryReader::name(std::string_view key, bool may_be_empty) {
  std::string text = string(key);
  if (const auto defect = name_defect(text, may_be_empty); defect.has_value()) {
    fail(quoted(key) + " " + *defect);
  }
  return text;
}

DType EntryReader::dtype_of(const Json& json) {
  const std::string* const text = json.string();
  const std::optional<DType> dtype = text == nullptr ? std::nullopt : dtype_from_name(*text);
  if (!dtype.has_value()) {
    fail(text == nullptr ? "a dtype is not a string" : "unknown dtype " + brief(*text));
  }
  return dtype.value_or(DType::kFloat32);
}

Shape EntryReader::shape_of(const Json& json) {
  Shape shape;
  if (json.array() == nullptr) {
    fail("a shape is not an array");
    return shape;
  }
  for (const Json& dimension : *json.array()) {
    if (dimension.integer() == nullptr) {
      fail("a shape holds something other than integers");
      return shape;
    }
    shape.push_back(*dimension.integer());
  }
  return shape;
}

std::vector<std::string> EntryReader::names_of(const Json& json, std::string_view key) {
  std::vector<std::string> names;
  if (json.array() == nullptr) {
    fail(quoted(key) + " is not an array");
    return names;
  }
  for (const Json& entry : *json.array()) {
    if (entry.string() == nullptr || name_defect(*entry.string()).has_value()) {
      fail(quoted(key) + " holds something other than names");
      return names;
    }
    names.push_back(*entry.string());
  }
  return names;
}

std::vector<std::int64_t> EntryReader::integers_of(const Json& json, std::string_view key) {
  std::vector<std::int64_t> integers;
  if (json.array() == nullptr) {
    fail(quoted(key) + " is not an array");
    return integers;
  }
  for (const Json& entry : *json.array()) {
    if (entry.integer() == nullptr) {
      fail(quoted(key) + " holds something other than integers");
      return integers;
    }
    integers.push_back(*entry.integer());
  }
  return integers;
}

void EntryReader::finish() {
  for (std::size_t index = 0; index < taken_.size() && !failed(); ++index) {
    if (!taken_[index]) {
      fail("unknown key " + brief((*object_)[index].first));
    }
  }
}

}  // namespace tesser::graph
