// Reading and writing the bytes of control messages (docs/transport.md). Internal to this folder.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace tesser::transport {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are written as they lie in memory");

class WireWriter {
 public:
  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) WireWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  WireWriter& text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reading past the end yields zeros and clears ok().
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) T get() {
    T value{};
    if (bytes_.size() < sizeof(value)) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  std::string text() {
    const auto size = get<std::uint32_t>();
    if (size > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace tesser::transport
