// State values and contents for tests of checkpoints.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint.h"

namespace tesser::test {

// A run's state whose every element says which step it belongs to.
class SampleState {
 public:
  explicit SampleState(std::int64_t step, std::int64_t width = 5) {
    using runtime::StateValue;
    values_.push_back({"layer.weight", graph::Role::kParameter, DType::kFloat32, {3, width}, true, {"head.weight"}});
    values_.push_back({"layer.weight/exp_avg", graph::Role::kOptimizerState, DType::kFloat32, {3, width}, true, {}});
    values_.push_back({"norm.num_batches_tracked", graph::Role::kBuffer, DType::kInt64, {}, true, {}});
    values_.push_back({"mask", graph::Role::kBuffer, DType::kBool, {2}, false, {}});
    for (const StateValue& value : values_) {
      std::vector<char> memory(static_cast<std::size_t>(element_count(value.shape)) * element_size(value.dtype));
      for (std::size_t i = 0; i < memory.size(); ++i) {
        memory[i] = static_cast<char>(value.dtype == DType::kBool ? i % 2 : static_cast<std::size_t>(step) * 7 + i);
      }
      memory_.push_back(std::move(memory));
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      contents_.push_back({values_[i].dtype, values_[i].shape, memory_[i].data()});
    }
    info_ = {"sample", "01234567", step, {step / 3, step % 3}, -5, true, "89abcdef"};
  }

  const runtime::CheckpointInfo& info() const { return info_; }
  const std::vector<runtime::StateValue>& values() const { return values_; }
  const std::vector<TensorView>& contents() const { return contents_; }

  // Whether the checkpoint holds exactly this.
  bool equals(const runtime::Checkpoint& checkpoint) const {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const auto found = checkpoint.find(values_[i].name);
      if (!found || found->dtype != values_[i].dtype || found->shape != values_[i].shape ||
          std::memcmp(found->data, memory_[i].data(), memory_[i].size()) != 0) {
        return false;
      }
    }
    const runtime::CheckpointInfo& info = checkpoint.info();
    return info.step == info_.step && info.next == info_.next && info.seed == info_.seed &&
           info.shuffle == info_.shuffle && info.program == info_.program &&
           info.program_checksum == info_.program_checksum && info.data_fingerprint == info_.data_fingerprint;
  }

 private:
  std::vector<runtime::StateValue> values_;
  std::vector<std::vector<char>> memory_;
  std::vector<TensorView> contents_;
  runtime::CheckpointInfo info_;
};

}  // namespace tesser::test
