#include "transport/measured_rounds.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace tesser::transport {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kMarkEvery = 64 * 1024;
constexpr std::size_t kMostRounds = 20'000;
constexpr std::uint64_t kFirst = 0;                // the round whose tensors are compared whole
constexpr std::uint64_t kEnd = ~std::uint64_t{0};  // the round that ends a measurement

std::uint64_t word_at(const std::byte* place) {
  std::uint64_t word = 0;
  std::memcpy(&word, place, kWord);
  return word;
}

void set_word(std::byte* place, std::uint64_t word) { std::memcpy(place, &word, kWord); }

std::uint64_t pattern(std::uint64_t offset) { return (offset + 1) * 0x9E3779B97F4A7C15; }

void fill(std::span<std::byte> tensor) {
  for (std::uint64_t offset = 0; offset + kWord <= tensor.size(); offset += kWord) {
    set_word(tensor.data() + offset, pattern(offset));
  }
}

// Marks do not overlap: the last word is one, and the others lie before it.
std::uint64_t last_word(std::span<const std::byte> tensor) { return tensor.size() - kWord; }

void mark(std::span<std::byte> tensor, std::uint64_t round) {
  for (std::uint64_t offset = 0; offset + kWord <= last_word(tensor); offset += kMarkEvery) {
    set_word(tensor.data() + offset, round);
  }
  set_word(tensor.data() + last_word(tensor), round);
}

// The round a tensor is marked with; nothing when its marks differ.
std::optional<std::uint64_t> marked(std::span<const std::byte> tensor) {
  const std::uint64_t round = word_at(tensor.data() + last_word(tensor));
  bool same = true;
  for (std::uint64_t offset = 0; offset + kWord <= last_word(tensor); offset += kMarkEvery) {
    same &= word_at(tensor.data() + offset) == round;
  }
  return same ? std::optional(round) : std::nullopt;
}

bool is_filled(std::span<const std::byte> tensor) {
  for (std::uint64_t offset = 0; offset + kWord <= last_word(tensor); offset += kWord) {
    if (offset % kMarkEvery != 0 && word_at(tensor.data() + offset) != pattern(offset)) {
      return false;
    }
  }
  return true;
}

// Sends a set of tensors that carries the round.
Outcome<void> send(TensorCarrier& tensors, std::uint64_t round) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.settle());
  for (const std::span<std::byte> tensor : tensors.outgoing()) {
    if (round == kFirst) {
      fill(tensor);
    }
    mark(tensor, round);
  }
  return tensors.send();
}

// The round of a tensor that has arrived as it was sent.
std::optional<std::uint64_t> verified(std::span<const std::byte> tensor) {
  const std::optional<std::uint64_t> round = marked(tensor);
  return round == kFirst && !is_filled(tensor) ? std::nullopt : round;
}

// Receives a set and verifies it; returns its round.
Outcome<std::uint64_t> receive(TensorCarrier& tensors) {
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.receive());
  const std::vector<std::span<const std::byte>>& incoming = tensors.incoming();
  const std::optional<std::uint64_t> round = verified(incoming.front());
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if (!round || (i != 0 && verified(incoming[i]) != round)) {
      return failure(FailureKind::kProtocol, "",
                     fmt::format("tensor {} of {} bytes arrived with other contents than it was sent with", i,
                                 incoming[i].size()));
    }
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.release());
  return *round;
}

Outcome<void> receive(TensorCarrier& tensors, std::uint64_t expected) {
  TESSER_TRANSPORT_ASSIGN(const std::uint64_t round, receive(tensors));
  if (round != expected) {
    return failure(FailureKind::kProtocol, "", fmt::format("round {} was answered by round {}", expected, round));
  }
  return {};
}

// Repeats a round, given its number, as long as the options say; returns microseconds of the counted ones.
Outcome<std::vector<double>> repeat(const RoundOptions& options,
                                    const std::function<Outcome<void>(std::uint64_t)>& round) {
  std::vector<double> us;
  const Deadline begin = Clock::now();
  const Deadline warm = begin + options.time / 5;
  const Deadline end = begin + options.time;
  const auto fewest = static_cast<std::size_t>(options.fewest_rounds);
  Deadline before = begin;
  for (std::uint64_t number = kFirst; us.size() < fewest || (us.size() < kMostRounds && before < end); ++number) {
    const bool counts = number != kFirst && before >= warm;
    before = Clock::now();
    TESSER_TRANSPORT_RETURN_IF_FAILED(round(number));
    const Deadline after = Clock::now();
    if (counts) {
      us.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    }
    before = after;
  }
  return us;
}

Measurement summarise(std::string system, std::uint64_t bytes, std::size_t tensors, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {std::move(system), bytes,      static_cast<int>(tensors),
          us[us.size() / 2], us.front(), static_cast<int>(us.size())};
}

Measurement summarise(const std::string& system, const TensorCarrier& tensors, std::vector<double> us) {
  std::uint64_t bytes = 0;
  for (const std::span<std::byte> tensor : tensors.outgoing()) {
    bytes += tensor.size();
  }
  return summarise(system, bytes, tensors.outgoing().size(), std::move(us));
}

}  // namespace

std::string json_line(const Measurement& row) {
  return fmt::format(
      R"({{"system":"{}","bytes":{},"tensors":{},"us_median":{:.6g},"us_min":{:.6g},"gb_s":{:.6g},"rounds":{}}})",
      row.system, row.bytes, row.tensors, row.us_median, row.us_lowest, row.gb_s(), row.rounds);
}

Outcome<Measurement> lead_there_and_back(TensorCarrier& tensors, const std::string& system,
                                         const RoundOptions& options) {
  const auto round = [&](std::uint64_t number) -> Outcome<void> {
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(tensors, number));
    return receive(tensors, number);
  };
  TESSER_TRANSPORT_ASSIGN(std::vector<double> us, repeat(options, round));
  for (double& time : us) {
    time /= 2;
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(round(kEnd));
  // Tells the peer that its last tensor is here, so that it may take its buffers down.
  TESSER_TRANSPORT_RETURN_IF_FAILED(send(tensors, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.settle());
  return summarise(system, tensors, std::move(us));
}

Outcome<void> follow_there_and_back(TensorCarrier& tensors) {
  for (std::uint64_t round = kFirst; round != kEnd;) {
    TESSER_TRANSPORT_ASSIGN(round, receive(tensors));
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(tensors, round));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(receive(tensors, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.settle());
  return {};
}

Outcome<Measurement> lead_exchange(TensorCarrier& tensors, TensorCarrier& turn, const std::string& system,
                                   const RoundOptions& options) {
  const auto round = [&](std::uint64_t number) -> Outcome<void> {
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(turn, number));
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(tensors, number));
    TESSER_TRANSPORT_RETURN_IF_FAILED(receive(tensors, number));
    return receive(turn, number);
  };
  TESSER_TRANSPORT_ASSIGN(std::vector<double> us, repeat(options, round));
  TESSER_TRANSPORT_RETURN_IF_FAILED(send(turn, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(receive(turn, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(send(turn, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(turn.settle());
  return summarise(system, tensors, std::move(us));
}

Outcome<void> follow_exchange(TensorCarrier& tensors, TensorCarrier& turn) {
  while (true) {
    TESSER_TRANSPORT_ASSIGN(const std::uint64_t round, receive(turn));
    if (round == kEnd) {
      break;
    }
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(tensors, round));
    TESSER_TRANSPORT_RETURN_IF_FAILED(receive(tensors, round));
    TESSER_TRANSPORT_RETURN_IF_FAILED(send(turn, round));
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(send(turn, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(receive(turn, kEnd));
  TESSER_TRANSPORT_RETURN_IF_FAILED(tensors.settle());
  return {};
}

Measurement measure_memcpy(std::span<std::byte> memory, const RoundOptions& options) {
  const std::size_t bytes = memory.size() / 4;
  std::uint64_t seen = 0;
  const auto copy = [&](std::span<std::byte> source, std::span<std::byte> target, std::uint64_t round) {
    mark(source, round);
    std::memcpy(target.data(), source.data(), bytes);
    seen += marked(target).value_or(kEnd);  // keeps the copy from being left out
  };
  const auto round = [&](std::uint64_t number) -> Outcome<void> {
    copy(memory.subspan(0, bytes), memory.subspan(2 * bytes, bytes), number);
    copy(memory.subspan(bytes, bytes), memory.subspan(3 * bytes, bytes), number);
    return {};
  };
  std::vector<double> us = *repeat(options, round);
  for (double& time : us) {
    time /= 2;
  }
  TESSER_CHECK(seen < kEnd / 2, std::to_string(seen));
  return summarise("memcpy", bytes, 1, std::move(us));
}

}  // namespace tesser::transport
