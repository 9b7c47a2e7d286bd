// Buckets of S3, and of what speaks like it: fetching data, storing results.
//
// One thread at a time per call; calls block on network and disk, and end soon after `stop` is set, with kFailed. What
// may pass (no connection, a server in trouble) is tried again with growing pauses. Errors: kNotFound for a bucket or a
// prefix that is not there, kInvalidInput for what no further try can change (keys refused, names that are no paths),
// kFailed otherwise (out of reach, disk full). No message has a key's value in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "platform/job/manifest.h"
#include "platform/job/secrets.h"

namespace tesser::platform {

struct TransferOptions {
  int tries = 8;                               // of each request
  std::chrono::milliseconds first_pause{250};  // doubled after each try, up to 10 s
  int page = 1000;                             // objects of a listing's page
  std::uint64_t part_bytes = 16 << 20;         // of larger uploads; S3 wants at least 5 MiB
};

struct TransferSummary {
  std::int64_t files = 0;
  std::int64_t bytes = 0;    // that were moved now
  std::int64_t resumed = 0;  // bytes that an earlier call had left
};

// Makes the directory `to`, which appears complete: until then everything lies in `to`.partial, from where a later call
// goes on, also in the middle of a file. What is there already stays as it is. Sizes are checked, and contents where
// the entity tag tells them.
Result<TransferSummary> fetch_from_s3(const DataStore& store, const Secrets& secrets, const std::filesystem::path& to,
                                      const std::atomic<bool>& stop, const TransferOptions& options = {});

// Stores all files below `from` as PREFIX/BELOW/NAME. Objects appear complete; a repeated call replaces them.
Result<TransferSummary> store_to_s3(const DataStore& store, const Secrets& secrets, const std::string& below,
                                    const std::filesystem::path& from, const std::atomic<bool>& stop,
                                    const TransferOptions& options = {});

}  // namespace tesser::platform
