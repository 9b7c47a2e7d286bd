// Writes and reads lowered programs (docs/formats/lowered.md).
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "graph/program.h"
#include "lowering/lower.h"

namespace tesser::lowering {

// What lowering.json says besides the programs.
struct LoweredIndex {
  std::string name;
  std::string program_hash;  // of the captured program
  std::string plan_hash;
  int workers = 0;
  std::int64_t transfers = 0;
  std::int64_t bytes = 0;  // sent by all workers in one step
};

// The directory appears complete or not at all; one that exists is replaced only if it holds a lowered program.
Result<void> write_lowered(const Lowered& lowered, const std::string& program_hash, const std::string& plan_hash,
                           const std::filesystem::path& directory);

Result<LoweredIndex> read_index(const std::filesystem::path& directory);

// The program of one worker, verified. kInvalidInput for a worker that the index does not have.
Result<graph::Program> read_worker(const std::filesystem::path& directory, int worker);

}  // namespace tesser::lowering
