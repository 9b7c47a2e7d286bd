// Files of named tensors in the safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes
// without gaps.
//
// The reader is strict: what a header claims is checked against the file before anything is handed out. The writer's
// files are deterministic (the same tensors give the same bytes), aligned, and appear complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/tensor.h"

namespace tesser {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t offset = 0;  // of its first byte after the header; a writer computes it
  std::uint64_t bytes = 0;   // likewise
};

// A tensor of a type that tesser does not have (F8_E4M3, U16). Only where it lies is checked, and it cannot be read.
struct SafetensorsOther {
  std::string name;
  std::string dtype;  // as the file has it
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Free text beside the tensors (`__metadata__`), in the file's order.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset, then by name
  std::vector<SafetensorsOther> others;   // likewise; together they cover the data without gaps
  SafetensorsMetadata metadata;
  std::uint64_t data_begin = 0;  // place in the file from which offsets count
};

// Checks the whole header against the file's bytes. Errors (kInvalidInput) do not name the file.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file);

// A mapped file; move-only. Any number of threads may read.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when there is none
  // Why find() gives nothing, for a message: "has no tensor 'x'", or which type it has.
  std::string absence(std::string_view name) const;

  // The tensor's bytes inside the mapping, valid for this object's life. Files of other writers may hold tensors at any
  // address: copy them, do not read elements through the pointer unless it is aligned.
  TensorView view(const SafetensorsEntry& entry) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, std::size_t>
      places_;  // of entries by name; the views point into header_.entries' strings
};

// Writes tensors one at a time, in any order, into a file whose header is known from the start; move-only.
class SafetensorsWriter {
 public:
  // Names must be unique and not "__metadata__" (aborts otherwise).
  static Result<SafetensorsWriter> create(AtomicFile file, std::vector<SafetensorsEntry> entries,
                                          const SafetensorsMetadata& metadata = {});

  // The tensors in the order in which they lie in the file: larger elements first, then by name.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // Writes one tensor; name, dtype and shape must be announced (aborts otherwise).
  Result<void> write(const std::string& name, const TensorView& tensor);
  // Makes the file durable under its name. Every tensor must have been written (aborts otherwise).
  Result<void> commit();

 private:
  SafetensorsWriter(AtomicFile file, std::vector<SafetensorsEntry> entries, std::uint64_t data_begin);

  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::uint64_t data_begin_;
  std::unordered_map<std::string, std::size_t> places_;
  std::vector<bool> written_;
};

}  // namespace tesser
