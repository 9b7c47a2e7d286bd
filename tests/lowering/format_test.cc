#include "lowering/format.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/own_checksum.h"
#include "graph/write.h"
#include "partition/step_program.h"

namespace tesser::lowering {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class LoweredFormat : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tesser-lowered-" + std::to_string(getpid()) + "-" +
                                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    const graph::Program program = partition::layer_step();
    const std::vector<tdl::NodeSemantics> semantics = partition::semantics_of(program);
    Result<Lowered> made = lower(program, semantics, tdl::Catalogue::shipped(),
                                 partition::batch_plan(program, semantics, 2), LoweringOptions{});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    lowered_ = std::move(made).value();
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path directory() const { return folder_ / "step.lowered"; }
  fs::path index() const { return directory() / "lowering.json"; }
  void write() {
    ASSERT_TRUE(write_lowered(lowered_, "0123456789abcdef", "fedcba9876543210", directory()).has_value());
  }
  // As a person does, who deletes the line with the checksum.
  void change_index(const std::string& from, const std::string& to) {
    std::string text = without_checksum(read_file(index()).value());
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    std::ofstream(index()) << text.replace(place, from.size(), to);
  }
  std::string index_error() const {
    const Result<LoweredIndex> read = read_index(directory());
    return read.has_value() ? "" : read.error().message;
  }
  std::string worker_error(int worker) const {
    const Result<graph::Program> read = read_worker(directory(), worker);
    return read.has_value() ? "" : read.error().message;
  }
  std::vector<std::string> files_of(const fs::path& path) const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
    return names;
  }

  Lowered lowered_;
  fs::path folder_;
};

TEST_F(LoweredFormat, WhatIsWrittenIsRead) {
  write();
  const Result<LoweredIndex> read = read_index(directory());
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->name, "step");
  EXPECT_EQ(read->program_hash, "0123456789abcdef");
  EXPECT_EQ(read->plan_hash, "fedcba9876543210");
  EXPECT_EQ(read->workers, 2);
  EXPECT_EQ(read->transfers, lowered_.transfers);
  EXPECT_EQ(read->bytes, lowered_.bytes);
  for (int worker = 0; worker < 2; ++worker) {
    const Result<graph::Program> program = read_worker(directory(), worker);
    ASSERT_TRUE(program.has_value()) << program.error().message;
    EXPECT_EQ(graph::program_text(*program), graph::program_text(lowered_.workers[static_cast<std::size_t>(worker)]));
  }
  EXPECT_THAT(files_of(directory()), UnorderedElementsAre("lowering.json", "worker-0.json", "worker-1.json"));
  EXPECT_THAT(files_of(folder_), UnorderedElementsAre("step.lowered"));
}

TEST_F(LoweredFormat, OnlyALoweredProgramIsReplaced) {
  write();
  std::ofstream(directory() / "worker-2.json") << "of an older run with three workers";
  write();
  EXPECT_THAT(files_of(directory()), UnorderedElementsAre("lowering.json", "worker-0.json", "worker-1.json"));
  fs::create_directories(folder_ / "photos");
  std::ofstream(folder_ / "photos" / "summer.png") << "x";
  const Result<void> refused = write_lowered(lowered_, "", "", folder_ / "photos");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("photos: exists and holds no lowered program"), HasSubstr("choose another name")));
  EXPECT_THAT(files_of(folder_ / "photos"), UnorderedElementsAre("summer.png"));
  EXPECT_THAT(files_of(folder_), UnorderedElementsAre("step.lowered", "photos"));
}

TEST_F(LoweredFormat, ALinkIsWrittenThroughAndASlashAtTheEndIsNoName) {
  fs::create_directory_symlink("there", folder_ / "link");
  for (int again = 0; again < 2; ++again) {
    for (const char* name : {"link", "step.lowered/"}) {
      const Result<void> written = write_lowered(lowered_, "", "", folder_ / name);
      ASSERT_TRUE(written.has_value()) << written.error().message;
    }
  }
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_THAT(files_of(folder_ / "there"), UnorderedElementsAre("lowering.json", "worker-0.json", "worker-1.json"));
  EXPECT_THAT(files_of(folder_), UnorderedElementsAre("link", "there", "step.lowered"));
}

TEST_F(LoweredFormat, AChangedDigitIsRefused) {
  write();
  std::string text = read_file(index()).value();
  text.replace(text.find("\"transfers\":"), 12, "\"transfers\":1");
  std::ofstream(index()) << text;
  EXPECT_THAT(index_error(), HasSubstr("lowering.json: has checksum"));
}

TEST_F(LoweredFormat, AnIndexThatIsNoneIsRefused) {
  const Result<LoweredIndex> missing = read_index(directory());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("lowering.json"));
  write();
  change_index("tesser.lowered", "tesser.program");
  EXPECT_THAT(index_error(), HasSubstr("lowering.json: not the index of a lowered program"));
  write();
  change_index("\"version\":2", "\"version\":3");
  EXPECT_THAT(index_error(), HasSubstr("lowering.json: version 3; this tesser reads version 2"));
  for (const char* const workers : {"0", "-1", "4294967296", "\"2\"", "2.5", "null"}) {
    write();
    change_index("\"workers\":2", std::string("\"workers\":") + workers);
    EXPECT_THAT(index_error(), HasSubstr("workers, transfers and bytes are numbers")) << workers;
  }
  write();
  change_index("\"bytes\":", "\"bytes\":-");
  EXPECT_THAT(index_error(), HasSubstr("workers, transfers and bytes are numbers"));
  for (const char* const text : {"", "{", "[]", "7", "\"tesser.lowered\"", "\xff\xfe"}) {
    std::ofstream(index()) << text;
    EXPECT_THAT(index_error(), HasSubstr("lowering.json: ")) << text;
  }
}

TEST_F(LoweredFormat, AWorkerThatIsNoneIsRefused) {
  write();
  for (const int worker : {-1, 2, 100}) {
    EXPECT_THAT(worker_error(worker), HasSubstr("has workers 0 to 1, not " + std::to_string(worker)));
  }
  std::string text = read_file(directory() / "worker-1.json").value();
  std::ofstream(directory() / "worker-1.json") << text.substr(0, text.size() / 2);
  EXPECT_THAT(worker_error(1), HasSubstr("worker-1.json"));
  text.replace(text.find("%x"), 2, "%q");
  std::ofstream(directory() / "worker-1.json") << text;
  EXPECT_THAT(worker_error(1), HasSubstr("worker-1.json: has checksum"));
  text = without_checksum(text);
  std::ofstream(directory() / "worker-1.json") << text;
  EXPECT_THAT(worker_error(1), AllOf(HasSubstr("worker-1.json"), HasSubstr("q")));
  fs::remove(directory() / "worker-1.json");
  EXPECT_THAT(worker_error(1), HasSubstr("worker-1.json"));
  EXPECT_EQ(worker_error(0), "");
}

}  // namespace
}  // namespace tesser::lowering
