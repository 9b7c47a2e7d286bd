#include "platform/learner/learner_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"

namespace tesser::platform {
namespace {

using Words = std::vector<std::string>;

class LearnerCommandTest : public testing::Test {
 protected:
  LearnerCommandTest() { std::filesystem::create_directories(volume_.code()); }

  LearnerPlace place(int rank, int learners) const {
    return {volume_, 2, rank, {learners, "10.0.0.1", 21'000}, "/opt/tesser", "token"};
  }
  static bool has(const Words& words, const Words& part) {
    return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
  }

  TemporaryDirectory directory_;
  Volume volume_{directory_.path() / "jobs" / "job-7"};
};

TEST_F(LearnerCommandTest, EnvironmentOfACommand) {
  ::setenv("TESSER_SECRET_OF_THE_SERVER", "x", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  Manifest manifest;
  manifest.command = {"python", "train.py"};
  manifest.each.millicpus = 2500;
  manifest.each.accelerators = {{"v100", 2}};
  manifest.environment = {{"TOKEN", "a-${T}"}, {"OMP_NUM_THREADS", "9"}, {"TESSER_LEARNER", "other"}};
  const auto command = learner_command(manifest, {{"T", "secret"}}, place(1, 3));
  ASSERT_TRUE(command) << command.error().message;
  ASSERT_EQ(command->stages.size(), 1U);
  EXPECT_EQ(command->stages[0].words, manifest.command);
  EXPECT_EQ(command->directory, volume_.code());
  const auto& environment = command->environment;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"LEARNER_ID", "1"},
                                                        {"NUM_LEARNERS", "3"},
                                                        {"GPU_COUNT", "2"},
                                                        {"TRAINING_ID", "job-7"},
                                                        {"TESSER_RESTART", "2"},
                                                        {"RANK", "1"},
                                                        {"WORLD_SIZE", "3"},
                                                        {"MASTER_ADDR", "10.0.0.1"},
                                                        {"MASTER_PORT", "21000"},
                                                        {"PET_NODE_RANK", "1"},
                                                        {"TOKEN", "a-secret"},
                                                        {"OMP_NUM_THREADS", "9"},
                                                        {"TESSER_LEARNER", "job-7/2/1"},
                                                        {"CUDA_VISIBLE_DEVICES", "3"},
                                                        {"CHECKPOINT_DIR", volume_.checkpoints()},
                                                        {"LOG_DIR", volume_.log_files(1)}}) {
    ASSERT_TRUE(environment.contains(name)) << name;
    EXPECT_EQ(environment.at(name), value) << name;
  }
  EXPECT_TRUE(environment.contains("PATH"));
  EXPECT_FALSE(environment.contains("TESSER_SECRET_OF_THE_SERVER"));
  EXPECT_FALSE(learner_command(manifest, {}, place(1, 3))) << "a secret is missing";
}

TEST_F(LearnerCommandTest, ATesserProgramOfOneLearner) {
  Manifest manifest;
  manifest.program = TesserProgram{"net.tesser", "mnist/train", {}, {}, "", {"--epochs", "3", "--keep=9"}};
  manifest.data_stores.emplace_back().id = "mnist";
  manifest.checkpoint_every = 50;
  const auto command = learner_command(manifest, {}, place(0, 1));
  ASSERT_TRUE(command);
  ASSERT_EQ(command->stages.size(), 2U);
  const Words& train = command->stages[0].words;
  EXPECT_TRUE(
      has(train, {"/opt/tesser", "train", volume_.code() / "net.tesser", "--data", volume_.data() / "mnist/train"}));
  EXPECT_TRUE(has(train, {"--checkpoint", volume_.checkpoints(), "--resume"}));
  EXPECT_TRUE(has(train, {"--every", "50"}));
  EXPECT_TRUE(has(train, {"--epochs", "3", "--keep=9"}));
  EXPECT_FALSE(has(train, {"--keep"}));
  EXPECT_FALSE(has(train, {"--external"}));
  EXPECT_TRUE(command->stages[0].beside.empty());
  EXPECT_EQ(command->stages[1].words[1], "export");
}

TEST_F(LearnerCommandTest, ATesserProgramOfSeveral) {
  Manifest manifest;
  manifest.program = TesserProgram{"step.py", "data", {}, 2, "", {}};
  auto first = learner_command(manifest, {}, place(0, 4));
  ASSERT_TRUE(first);
  ASSERT_EQ(first->stages.size(), 3U);
  EXPECT_EQ(first->stages[0].words,
            (Words{"/opt/tesser", "capture", volume_.code() / "step.py", "-o", volume_.state() / "step.tesser"}));
  EXPECT_FALSE(first->stages[0].needs_port);
  const CommandStage& train = first->stages[1];
  EXPECT_EQ(train.words[2], volume_.state() / "step.tesser");
  EXPECT_TRUE(has(train.words, {"--data", volume_.code() / "data"}));
  EXPECT_TRUE(has(train.words, {"--workers", "2", "--external", "--listen", "10.0.0.1:21000", "--replicas", "2"}));
  ASSERT_EQ(train.beside.size(), 1U);
  EXPECT_TRUE(has(train.beside[0], {"worker", "--coordinator", "http://10.0.0.1:21000", "--worker", "0"}));
  EXPECT_EQ(first->environment.at("TESSER_RUN_TOKEN"), "token");
  std::filesystem::create_directories(volume_.state() / "step.tesser");
  EXPECT_EQ(learner_command(manifest, {}, place(0, 4))->stages.size(), 2U) << "captured once";

  const auto other = learner_command(manifest, {}, place(3, 4));
  ASSERT_EQ(other->stages.size(), 1U);
  EXPECT_TRUE(has(other->stages[0].words, {"worker", "--coordinator", "http://10.0.0.1:21000", "--worker", "3"}));
  for (const CommandStage& stage : first->stages) {
    EXPECT_FALSE(has(stage.words, {"token"})) << "a command line is for all to see";
  }
  EXPECT_FALSE(learner_command(manifest, {}, place(0, 3))) << "3 learners of 2 replicas";
}

TEST_F(LearnerCommandTest, FindsPrograms) {
  const auto code = volume_.code();
  std::ofstream(code / "run.sh") << "#!/bin/sh\n";
  EXPECT_EQ(find_program("sh", code, "/nowhere:/bin")->string(), "/bin/sh");
  const auto message = [&](const std::string& word) {
    return find_program(word, code, "/bin:/usr/bin").error().message;
  };
  EXPECT_NE(message("pyhton3").find("command not found: 'pyhton3'"), std::string::npos);
  EXPECT_NE(message("run.sh").find("./run.sh"), std::string::npos);
  EXPECT_NE(message("./run.sh").find("not executable"), std::string::npos);
  EXPECT_NE(message("./none").find("is no file"), std::string::npos);
  EXPECT_NE(message("/bin").find("is no file"), std::string::npos);
  std::filesystem::permissions(code / "run.sh", std::filesystem::perms::owner_all);
  EXPECT_TRUE(find_program("./run.sh", code, ""));
}

}  // namespace
}  // namespace tesser::platform
