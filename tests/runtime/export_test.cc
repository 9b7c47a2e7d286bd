#include "runtime/export.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_samples.h"
#include "runtime/checkpoint_writer.h"
#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using ::testing::UnorderedElementsAre;

TEST(Export, HasTheNamesOfStateDictAliasesIncluded) {
  const test::TemporaryDirectory directory;
  const test::SampleState state(4);
  const auto lock = CheckpointLock::acquire(directory / "run");
  ASSERT_TRUE(write_checkpoint(*lock, {}, state.info(), state.values(), state.contents()).has_value());
  std::vector<std::string> notes;
  const auto checkpoint = Checkpoint::open(directory / "run", notes);
  ASSERT_TRUE(checkpoint.has_value());
  const auto exported =
      export_weights(*checkpoint, AtomicFile::create_output(directory / "weights.safetensors").value());
  ASSERT_TRUE(exported.has_value()) << exported.error().message;
  EXPECT_EQ(exported->tensors, 3);
  const auto file = SafetensorsFile::open(directory / "weights.safetensors");
  ASSERT_TRUE(file.has_value());
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file->entries()) {
    names.push_back(entry.name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("layer.weight", "head.weight", "norm.num_batches_tracked"));
  const TensorView alias = file->view(*file->find("head.weight"));
  EXPECT_EQ(std::memcmp(alias.data, state.contents()[0].data, alias.bytes()), 0);
}

}  // namespace
}  // namespace tesser::runtime
