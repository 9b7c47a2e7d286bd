#include "partition/format.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/own_checksum.h"
#include "graph/write.h"
#include "step_program.h"

namespace tesser::partition {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class Format : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tesser-format-" + std::to_string(getpid()) + "-" +
                                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_ / "step.tesser");
    ASSERT_TRUE(graph::write_program(program_, folder_ / "step.tesser" / "program.json").has_value());
    record_.plan = batch_plan(program_, semantics_, 4);
    record_.plan.program_hash = program_hash(program_);
    record_.plan.levels[0].link = "net \"1\"";
    record_.plan.layouts[0] = {{}};
    record_.plan.layouts[static_cast<std::size_t>(program_.find("w"))] = {{1, 16}};
    record_.plan.layouts[static_cast<std::size_t>(program_.find("w.new"))] = {{1, 16}};
    record_.program_path = "step.tesser";
    record_.memory_bytes = 123;
    record_.topology.links = {{"net \"1\"", 4, 1e9, 0}};
    record_.predicted = {1000, {1000}, 300, 900, 0.25};
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "step.plan"; }
  void write() { ASSERT_TRUE(write_plan(record_, program_, AtomicFile::create(path()).value()).has_value()); }
  void write_text(const std::string& text) { std::ofstream(path()) << text; }
  std::string text() const { return plan_text(record_, program_); }
  // The text with one thing changed, which must be there.
  std::string changed(const std::string& from, const std::string& to) const {
    std::string all = text();
    const std::size_t place = all.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return place == std::string::npos ? all : all.replace(place, from.size(), to);
  }
  std::string error() const {
    const Result<OpenedPlan> opened = open_plan(path());
    return opened.has_value() ? "" : opened.error().message;
  }

  graph::Program program_ = layer_step();
  std::vector<tdl::NodeSemantics> semantics_ = semantics_of(program_);
  PlanRecord record_;
  fs::path folder_;
};

TEST_F(Format, WhatIsWrittenIsRead) {
  write();
  const Result<OpenedPlan> opened = open_plan(path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(plan_text(opened->record, opened->expanded), text());
  EXPECT_EQ(opened->record.plan.levels, record_.plan.levels);
  EXPECT_EQ(opened->record.plan.layouts, record_.plan.layouts);
  EXPECT_EQ(opened->record.plan.nodes, record_.plan.nodes);
  EXPECT_EQ(opened->record.predicted, record_.predicted);
  EXPECT_EQ(opened->record.topology, record_.topology);
  EXPECT_EQ(opened->record.memory_bytes, 123);
  EXPECT_EQ(opened->semantics.size(), program_.nodes.size());
  EXPECT_TRUE(is_plan(path()));
  EXPECT_FALSE(is_plan(folder_ / "step.tesser"));
  EXPECT_FALSE(is_plan(folder_ / "step.tesser" / "program.json"));
}

TEST_F(Format, IsOneEntryALineWithShortCuts) {
  EXPECT_THAT(text(), HasSubstr("\n[\"w\",\"1x16\"],\n"));
  EXPECT_THAT(text(), HasSubstr("\n[\"x\",\"0\"],\n"));
  EXPECT_THAT(text(), HasSubstr("\n[\"update\",\"r\"]\n]\n}\n"));
  EXPECT_THAT(text(), HasSubstr("\n\"levels\":[{\"parts\":4,\"link\":\"net \\\"1\\\"\"}],\n"));
}

TEST_F(Format, AHashIsOfTheProgramsText) {
  EXPECT_EQ(program_hash(program_).size(), 16u);
  graph::Program other = program_;
  EXPECT_EQ(program_hash(other), program_hash(program_));
  std::get<std::int64_t>(other.nodes[4].args[2]) = 1;
  EXPECT_NE(program_hash(other), program_hash(program_));
}

TEST_F(Format, APlanOfAnotherProgramIsRefused) {
  write();
  graph::Program other = program_;
  std::get<std::int64_t>(other.nodes[4].args[2]) = 1;
  ASSERT_TRUE(graph::write_program(other, folder_ / "step.tesser" / "program.json").has_value());
  EXPECT_THAT(error(), HasSubstr("step.plan: is a plan of another program: of step with hash"));
}

TEST_F(Format, AProgramThatIsGoneIsNamed) {
  write();
  fs::rename(folder_ / "step.tesser", folder_ / "moved.tesser");
  EXPECT_THAT(error(), HasSubstr("step.tesser"));
  EXPECT_THAT(error(), HasSubstr("--of NAME.tesser"));
  EXPECT_TRUE(open_plan(path(), folder_ / "moved.tesser").has_value());
  EXPECT_EQ(read_plan_header(folder_ / "none.plan").error().code, ErrorCode::kNotFound);
}

TEST_F(Format, WhatDoesNotFitIsRefusedByName) {
  const std::pair<std::pair<std::string, std::string>, std::string> kCases[] = {
      {{"{\n", "[\n"}, "step.plan: line"},
      {{"\"tesser.plan\"", "\"tesser.program\""}, "is no plan"},
      {{"\"version\":1", "\"version\":2"}, "version 2; this tesser reads version 1"},
      {{"\"preset\":", "\"presets\":"}, "'preset' is missing"},
      {{"\"workers\":4", "\"workers\":8"}, "'workers' is 8, but the levels' parts make 4"},
      {{"\"parts\":4,\"link\"", "\"parts\":0,\"link\""}, "levels[0]: 'parts' is 0"},
      {{"\"level_bytes\":[1000]", "\"level_bytes\":[]"}, "'level_bytes' has 0 entries for 1 levels"},
      {{"[\"w\",\"1x16\"]", "[\"v\",\"1x16\"]"}, "layouts[2] is of \"v\", but the program has \"w\" there"},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"1x16\",\"r\"]"}, "layouts[2], of \"w\", has 2 cuts for 1 levels"},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"1x0\"]"}, "layouts[2], of \"w\": cut 0 is \"1x0\"; expected \"r\""},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"-1\"]"}, "cut 0 is \"-1\""},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"1x\"]"}, "cut 0 is \"1x\""},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"99999999999\"]"}, "cut 0 is \"99999999999\""},
      {{"[\"w\",\"1x16\"]", "[\"w\",1]"}, "cut 0 is no string"},
      {{"[\"w\",\"1x16\"]", "7"}, "layouts[2] is no list that begins with a name"},
      {{"[\"w\",\"1x16\"]", "[\"w\",\"2\"]"}, "value w is cut along dimension 2; it is float32[64, 32]"},
      {{"[\"w\",\"1x16\"],\n", ""}, "'layouts' has"},
      {{"[\"update\",\"r\"]", "[\"update\",\"17\"]"}, "node update, tesser::sgd, is cut along variable 17"},
      {{"\"bandwidth\":1000000000.0", "\"bandwidth\":0"}, "'bandwidth' is 0.0, expected more than 0"},
  };
  for (const auto& [change, message] : kCases) {
    write_text(changed(change.first, change.second));
    EXPECT_THAT(error(), HasSubstr(message)) << change.first << " to " << change.second;
  }
}

TEST_F(Format, AChangedDigitIsRefusedUnlessTheChecksumIsLeftOut) {
  write();
  std::string whole = read_file(path()).value();
  whole.replace(whole.find("\"seconds\":0.25"), 14, "\"seconds\":0.26");
  write_text(whole);
  EXPECT_THAT(error(), AllOf(HasSubstr("step.plan: has checksum"), EndsWith("delete the line \"checksum\"")));
  EXPECT_FALSE(read_plan_header(path()).has_value());
  write_text(without_checksum(whole));
  EXPECT_EQ(error(), "");
}

TEST_F(Format, TopologiesAreRead) {
  const fs::path file = folder_ / "machines.json";
  std::ofstream(file) << R"({"links": [{"name": "network", "parts": 4, "bandwidth": 1.25e10},
                              {"name": "memory", "parts": 2, "latency": 0}], "flops": 1000000000000})";
  const Result<Topology> topology = read_topology(file);
  ASSERT_TRUE(topology.has_value()) << topology.error().message;
  ASSERT_EQ(topology->links.size(), 2u);
  EXPECT_EQ(topology->links[0], (Link{"network", 4, 1.25e10, 10e-6}));
  EXPECT_EQ(topology->links[1], (Link{"memory", 2, 5e9, 0}));
  EXPECT_EQ(topology->flops, 1e12);
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"links": [{"name": "a", "parts": 2}, {"name": "a", "parts": 2}]})", "links[1]: its name is that of another"},
      {R"({"links": [{"name": "a", "parts": 0}]})", "links[0]: 'parts' is 0"},
      {R"({"links": [{"name": "a", "parts": 2, "bandwidth": -1}]})", "'bandwidth' is -1.0, expected more than 0"},
      {R"({"links": [{"name": "a", "parts": 2, "speed": 1}]})", "links[0]: unknown key \"speed\""},
      {R"({})", "'links' is missing"},
      {R"({"links": [)", "machines.json: line 1"},
  };
  for (const auto& [wrong, message] : kWrong) {
    std::ofstream(file) << wrong;
    const Result<Topology> refused = read_topology(file);
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr(message));
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
  }
}

TEST_F(Format, AVariableThatCannotBeCutIsRefused) {
  tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  ASSERT_TRUE(catalogue.add("aten::relu(x) -> y:\n    y[i, j] = x[i, :j]\n", "whole.tdl").has_value());
  semantics_[1] = tdl::analyze(program_, program_.nodes[1], catalogue);
  Plan plan = replicated_plan(program_, {2});
  EXPECT_TRUE(verify(plan, program_, semantics_).has_value());
  plan.nodes[1][0].axis = variable(semantics_[1], "i");
  EXPECT_TRUE(verify(plan, program_, semantics_).has_value());
  plan.nodes[1][0].axis = variable(semantics_[1], "j");
  const Result<void> refused = verify(plan, program_, semantics_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "node relu, aten::relu, is cut along j, along which its description has no cut");
  plan.nodes[1].clear();
  EXPECT_THAT(verify(plan, program_, semantics_).error().message, HasSubstr("has 0 cuts for 1 level"));
}

TEST_F(Format, NewContentThatDoesNotLieAsItsStateIsRefused) {
  Plan plan = replicated_plan(program_, {2});
  const graph::StateOutput& output = program_.state_outputs.front();
  plan.layouts[static_cast<std::size_t>(output.value)][0].axis = 1;
  EXPECT_EQ(verify(plan, program_, semantics_).error().message,
            "value w.new, the new content of w, is laid out otherwise than that");
  plan.layouts[static_cast<std::size_t>(output.state)][0].axis = 1;
  EXPECT_TRUE(verify(plan, program_, semantics_).has_value());
}

}  // namespace
}  // namespace tesser::partition
