#include "lowering/format.h"

#include <limits>
#include <system_error>

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/own_checksum.h"
#include "graph/read.h"
#include "graph/write.h"

namespace tesser::lowering {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "tesser.lowered";
constexpr std::int64_t kVersion = 2;
constexpr std::string_view kIndexFile = "lowering.json";

fs::path worker_file(const fs::path& directory, int worker) {
  return directory / ("worker-" + std::to_string(worker) + ".json");
}

std::string index_text(const Lowered& lowered, const std::string& program_hash, const std::string& plan_hash) {
  const auto entry = [](std::string_view key, const std::string& value) {
    return ",\n" + json_string(key) + ":" + value;
  };
  return "{\n\"format\":" + json_string(kFormat) + entry("version", std::to_string(kVersion)) +
         entry("name", json_string(lowered.name)) + entry("program_hash", json_string(program_hash)) +
         entry("plan_hash", json_string(plan_hash)) + entry("workers", std::to_string(lowered.workers.size())) +
         entry("transfers", std::to_string(lowered.transfers)) + entry("bytes", std::to_string(lowered.bytes)) +
         "\n}\n";
}

// A name beside the final one. What has it at the end is removed.
class DirectoryBeside {
 public:
  DirectoryBeside(const fs::path& final, const std::string& kind)
      : path_(final.string() + kind + std::to_string(::getpid())) {}
  DirectoryBeside(const DirectoryBeside&) = delete;
  DirectoryBeside& operator=(const DirectoryBeside&) = delete;
  ~DirectoryBeside() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Result<void> write_lowered(const Lowered& lowered, const std::string& program_hash, const std::string& plan_hash,
                           const fs::path& directory) {
  fs::path target = fs::absolute(directory).lexically_normal();
  if (!target.has_filename()) {
    target = target.parent_path();  // NAME.lowered/
  }
  TESSER_ASSIGN_OR_RETURN(target, output_place(target));
  std::error_code error;
  if (fs::exists(target, error) && !fs::exists(target / kIndexFile, error)) {
    return invalid_input(directory.string() +
                         ": exists and holds no lowered program.\nWhat to do: choose another name, or remove it");
  }
  const DirectoryBeside partial(target, ".partial-");
  fs::create_directories(partial.path(), error);
  if (error) {
    return tl::unexpected<Error>(file_error(partial.path(), "create", error.value()));
  }
  for (std::size_t worker = 0; worker < lowered.workers.size(); ++worker) {
    TESSER_RETURN_IF_ERROR(
        graph::write_program(lowered.workers[worker], worker_file(partial.path(), static_cast<int>(worker))));
  }
  TESSER_RETURN_IF_ERROR(
      write_file_atomically(partial.path() / kIndexFile, with_checksum(index_text(lowered, program_hash, plan_hash))));
  // What stands there is gone only when the new one has its name.
  const DirectoryBeside old(target, ".old-");
  const bool replaces = fs::exists(target, error);
  if (replaces) {
    fs::rename(target, old.path(), error);
  }
  if (!error) {
    fs::rename(partial.path(), target, error);
    if (std::error_code ignored; error && replaces) {
      fs::rename(old.path(), target, ignored);
    }
  }
  if (error) {
    return tl::unexpected<Error>(file_error(target, "write", error.value()));
  }
  return sync_directory(target.parent_path());
}

Result<LoweredIndex> read_index(const fs::path& directory) {
  const fs::path path = directory / kIndexFile;
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  Result<Json> json = parse_json(text);
  if (!json) {
    return invalid_input(path.string() + ": " + json.error().message);
  }
  if (const Result<void> checked = check_own_checksum(text, *json); !checked) {
    return invalid_input(path.string() + ": " + checked.error().message);
  }
  const auto string = [&](std::string_view key) {
    const Json* const found = json->find(key);
    return found == nullptr || found->string() == nullptr ? std::string() : *found->string();
  };
  const auto integer = [&](std::string_view key) {
    const Json* const found = json->find(key);
    return found == nullptr || found->integer() == nullptr ? std::int64_t{-1} : *found->integer();
  };
  if (string("format") != kFormat) {
    return invalid_input(path.string() + ": not the index of a lowered program");
  }
  if (integer("version") != kVersion) {
    return invalid_input(path.string() + ": version " + std::to_string(integer("version")) +
                         "; this tesser reads version " + std::to_string(kVersion) +
                         ".\nWhat to do: lower its plan again");
  }
  LoweredIndex index{string("name"),       string("program_hash"), string("plan_hash"), 0,
                     integer("transfers"), integer("bytes")};
  if (integer("workers") < 1 || integer("workers") > std::numeric_limits<int>::max() || index.transfers < 0 ||
      index.bytes < 0) {
    return invalid_input(path.string() + ": workers, transfers and bytes are numbers from 0 on, workers from 1 on");
  }
  index.workers = static_cast<int>(integer("workers"));
  return index;
}

Result<graph::Program> read_worker(const fs::path& directory, int worker) {
  TESSER_ASSIGN_OR_RETURN(const LoweredIndex index, read_index(directory));
  if (worker < 0 || worker >= index.workers) {
    return invalid_input(directory.string() + ": has workers 0 to " + std::to_string(index.workers - 1) + ", not " +
                         std::to_string(worker));
  }
  return graph::read_program(worker_file(directory, worker));
}

}  // namespace tesser::lowering
