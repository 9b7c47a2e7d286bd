#include "platform/job/program_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"

namespace tesser::platform {
namespace {

using testing::HasSubstr;

TEST(ProgramFiles, AreInTheSubmittedDirectoryOrInAStore) {
  const TemporaryDirectory directory;
  Manifest manifest;
  EXPECT_TRUE(check_program_files(manifest, "")) << "a command needs none";
  manifest.program = TesserProgram{};
  manifest.program->program = "step.py";
  manifest.program->data = "data/train";

  EXPECT_THAT(check_program_files(manifest, "").error().message, HasSubstr("'program' is 'step.py'"));
  EXPECT_THAT(check_program_files(manifest, directory.path()).error().message, HasSubstr("'program' is 'step.py'"));
  ASSERT_TRUE(write_file_atomically(directory.path() / "step.py", ""));
  EXPECT_THAT(check_program_files(manifest, directory.path()).error().message, HasSubstr("'data' is 'data/train'"));
  std::filesystem::create_directories(directory.path() / "data" / "train");
  EXPECT_TRUE(check_program_files(manifest, directory.path()));
  EXPECT_EQ(data_of_program(manifest, "/code", "/stores"), "/code/data/train");

  manifest.data_stores.emplace_back().id = "images";
  manifest.program->data = "images/train";
  EXPECT_TRUE(check_program_files(manifest, directory.path()));
  EXPECT_EQ(data_of_program(manifest, "/code", "/stores"), "/stores/images/train");
  manifest.program->data = "images2/train";
  EXPECT_FALSE(check_program_files(manifest, directory.path())) << "the id is the whole first name";
}

}  // namespace
}  // namespace tesser::platform
