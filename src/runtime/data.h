// The samples a program is fed with: a data directory of docs/formats/data.md, mapped, checked against the program's
// batch values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "graph/program.h"

namespace tesser::runtime {

// One batch value of a program: shape is [B, ...].
struct BatchValue {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// The batch values among the program's inputs, in their order.
std::vector<BatchValue> batch_values(const graph::Program& program);

// A checked, mapped data directory. Immutable: any number of threads may read. Files must not be cut short while it
// lives.
class DataSet {
 public:
  // `path` is a data directory, or a single .npy (when there is one batch value) or .safetensors file (with all of
  // them). Every value's file is there, well-formed, of the value's dtype and sample shape, all have the same number of
  // samples, and that is at least one batch; else kInvalidInput or kNotFound naming the file, what was expected and
  // what was found.
  static Result<DataSet> open(const std::filesystem::path& path, std::vector<BatchValue> values);

  DataSet(DataSet&&) noexcept;
  DataSet& operator=(DataSet&&) noexcept;
  ~DataSet();

  const std::vector<BatchValue>& values() const { return values_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t batch_size() const { return batch_size_; }
  std::int64_t batches() const { return samples_ / batch_size_; }   // full batches in an epoch
  std::int64_t left_out() const { return samples_ % batch_size_; }  // samples an epoch leaves out

  // Eight hexadecimal digits; docs/formats/data.md.
  const std::string& fingerprint() const { return fingerprint_; }

  // Copies these samples of values()[value] one after the other to `target`, in the value's dtype. Reads the disk where
  // pages are not in memory.
  void gather(std::size_t value, std::span<const std::uint32_t> samples, void* target) const;

 private:
  class Source;
  DataSet();

  std::vector<BatchValue> values_;
  std::vector<std::unique_ptr<Source>> sources_;  // one a value
  std::int64_t samples_ = 0;
  std::int64_t batch_size_ = 0;
  std::string fingerprint_;
};

}  // namespace tesser::runtime
