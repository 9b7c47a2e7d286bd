// What one end of a transfer tells the other before anything moves. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/tensor.h"
#include "transport/failure.h"
#include "transport/strided.h"

namespace tesser::transport {

enum class Role : std::uint32_t {
  kStaticSender = 1,
  kStaticReceiver = 2,
  kDynamicSender = 3,
  kDynamicReceiver = 4,
  kNotificationWriter = 5,
  kNotificationReader = 6,
};

constexpr std::uint32_t kTailFlagged = 1;  // the static sender's notifications wake nobody over UCX

struct Announcement {
  Role role = Role::kStaticSender;
  std::string name;
  std::uint32_t nonce = 0;
  std::uint32_t signal = 0;          // word in the announcer's signal area
  std::uint32_t ring_words = 0;      // of 8 bytes, which begin there instead (notification reader)
  std::uint32_t block = 0;           // metadata block there (dynamic receiver)
  std::uint32_t first_sequence = 1;  // of the transfers (receivers, notification readers)
  std::uint32_t flags = 0;
  DType dtype = DType::kUInt8;
  Shape shape;
  std::uint32_t region = 0;  // where it receives (static receiver), or sends from (dynamic sender)
  Strided layout;            // static receiver

  std::string serialise() const;
  static Outcome<Announcement> parse(std::string_view bytes, const std::string& peer);
};

}  // namespace tesser::transport
