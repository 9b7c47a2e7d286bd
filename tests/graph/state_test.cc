#include "graph/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/temporary_directory.h"
#include "sample_program.h"

namespace tesser::graph {
namespace {

using testing::ElementsAre;

// Writes zeros for all values the program stores, after `change` had its way with them.
template <typename Change>
void write_state(const Program& program, const std::filesystem::path& path, const Change& change) {
  std::vector<SafetensorsEntry> entries;
  for (const ValueId id : stored_values(program)) {
    const Value& value = program.value(id);
    entries.push_back({value.name, value.dtype, value.shape});
  }
  change(entries);
  SafetensorsWriter writer = SafetensorsWriter::create(AtomicFile::create(path).value(), entries).value();
  const std::vector<char> zeros(100'000);
  for (const SafetensorsEntry& entry : entries) {
    ASSERT_TRUE(writer.write(entry.name, {entry.dtype, entry.shape, zeros.data()}).has_value());
  }
  ASSERT_TRUE(writer.commit().has_value());
}

TEST(StateTest, StoresStateAndConstantsThatDoNotStartAsZeros) {
  const Program program = sample("step.json");
  std::vector<std::string> names;
  for (const ValueId id : stored_values(program)) {
    names.push_back(program.value(id).name);
  }
  EXPECT_THAT(names,
              ElementsAre("conv.weight", "head.weight", "conv.weight/other", "steps_seen", "mask", "constant/0"));
}

TEST(StateTest, ChecksWhatTheFileHolds) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "state.safetensors").string();
  const Program program = sample("step.json");

  EXPECT_EQ(open_state(program, directory.path()).error().message,
            path + ": no such file; the program has no initial values, capture it again without --no-state");
  EXPECT_EQ(open_state(program, directory.path()).error().code, ErrorCode::kNotFound);

  write_state(program, path, [](auto& entries) { entries.push_back({"more", DType::kBool, {}}); });
  EXPECT_TRUE(open_state(program, directory.path()).has_value());
  // The forward program's parameter is among them.
  EXPECT_TRUE(open_state(sample("forward.json"), directory.path()).has_value());

  write_state(program, path, [](auto& entries) { entries.erase(entries.begin() + 1); });
  EXPECT_EQ(open_state(program, directory.path()).error().message,
            path + ": has no tensor 'head.weight'; the program starts from it");
  EXPECT_EQ(open_state(program, directory.path()).error().code, ErrorCode::kInvalidInput);

  write_state(program, path, [](auto& entries) { entries[1].shape = {8, 10}; });
  EXPECT_EQ(open_state(program, directory.path()).error().message,
            path + ": head.weight is float32[8, 10], but the program needs float32[10, 8]");

  write_state(program, path, [](auto& entries) { entries[5].dtype = DType::kInt32; });
  EXPECT_EQ(open_state(program, directory.path()).error().message,
            path + ": constant/0 is int32[3], but the program needs float32[3]");
}

}  // namespace
}  // namespace tesser::graph
