#include <gtest/gtest.h>

#include "platform/engine/engine.h"

namespace tesser::platform {
namespace {

TEST(EngineSettings, ComeBackFromText) {
  EngineSettings settings;
  settings.kind = "kubernetes";
  settings.patience = std::chrono::milliseconds(1234);
  settings.nodes = {Node{"node \"1\"", Resources{1500, 1 << 30, {{"v100", 2}}}, true, ""},
                    Node{"node2", Resources{}, true, ""}};
  settings.state_directory = "/state";
  settings.slurm_configuration = "/etc/slurm.conf";
  settings.partition = "debug";
  settings.system_places = true;
  settings.volumes = "/data/jobs";
  settings.kubeconfig = "/kube/config";
  settings.image = "image:1";
  settings.namespace_prefix = "t-";
  settings.host_directories = {"/a", "/b"};
  const auto read = engine_settings_from_json(to_json(settings));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(settings));
  ASSERT_EQ(read->nodes.size(), 2U);
  EXPECT_EQ(read->nodes[0].name, "node \"1\"");
  EXPECT_EQ(read->nodes[0].capacity, settings.nodes[0].capacity);
  EXPECT_EQ(read->patience, settings.patience);
  EXPECT_EQ(read->host_directories, settings.host_directories);
  EXPECT_TRUE(read->system_places);
}

TEST(EngineSettings, WhatIsMissingIsNamed) {
  const auto read = engine_settings_from_json("{\"kind\":\"local\"}");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(read.error().message.find("patience"), std::string::npos) << read.error().message;
}

TEST(EngineSettings, LearnersTakeWholeProcessorsOfSlurmsNodes) {
  const Resources half{500, 1 << 20, {{"v100", 1}}};
  EXPECT_EQ(taken_of_node("slurm", half), (Resources{1000, 1 << 20, {{"v100", 1}}}));
  EXPECT_EQ(taken_of_node("slurm", Resources{2001, 0, {}}).millicpus, 3000);
  EXPECT_EQ(taken_of_node("slurm", Resources{2000, 0, {}}).millicpus, 2000);
  EXPECT_EQ(taken_of_node("local", half), half);
  EXPECT_EQ(taken_of_node("kubernetes", half), half);
}

TEST(EngineSettings, AnUnknownEngineIsNamedWithThoseThereAre) {
  EngineSettings settings;
  settings.kind = "cloud";
  const auto engine = make_engine(settings);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(engine.error().message.find("cloud"), std::string::npos);
  EXPECT_NE(engine.error().message.find("local"), std::string::npos);
}

TEST(Deployment, ComesBackFromText) {
  Deployment deployment;
  deployment.job = "job-1";
  deployment.team = "team";
  deployment.attempt = 7;
  deployment.command = {"sh", "-c", "echo 'a\n\"b\"'"};
  deployment.environment = {{"A", "1"}, {"B", "x=y\n"}};
  deployment.volume = "/volume";
  deployment.each = Resources{250, 1 << 20, {{"k80", 1}}};
  deployment.nodes = {"node1", "", "node2"};
  const auto read = deployment_from_json(to_json(deployment));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(deployment));
  EXPECT_EQ(read->command, deployment.command);
  EXPECT_EQ(read->environment, deployment.environment);
  EXPECT_EQ(read->each, deployment.each);
  EXPECT_EQ(read->nodes, deployment.nodes);
}

}  // namespace
}  // namespace tesser::platform
