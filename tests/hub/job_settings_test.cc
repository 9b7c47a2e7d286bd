#include "hub/job_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_run.h"

namespace tesser::hub {
namespace {

using ::testing::HasSubstr;

JobSettings unusual_settings() {
  JobSettings settings = settings_for(5, {3, 4}, {.algorithm = Algorithm::kAdam, .amsgrad = true, .maximize = true});
  settings.groups.push_back({.has_momentum = true, .nesterov = true});
  settings.keys[1].group = 1;
  settings.keys[1].row_elements = 2;
  settings.keys[1].name = "with \"quotes\" and ünicode";
  settings.average = false;
  settings.clip_norm = 0.1;
  settings.keys[0].in_norm = false;
  settings.norm_group = "parts";
  settings.norm_jobs = 3;
  settings.norm_job = 2;
  settings.wire = DType::kBFloat16;
  settings.update_time = UpdateTime::kAtOnce;
  settings.on_loss = OnLoss::kContinue;
  settings.chunk_bytes = 4096;
  settings.one_machine = true;
  return settings;
}

TEST(JobSettingsTest, ComeBackFromJson) {
  const JobSettings settings = unusual_settings();
  const auto read = read_job_settings(to_json(settings));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, settings);
  EXPECT_EQ(difference(*read, settings), "");
}

TEST(JobSettingsTest, DifferencesAreNamed) {
  const JobSettings settings = unusual_settings();
  JobSettings other = settings;
  other.keys[0].elements = 7;
  EXPECT_THAT(difference(settings, other), HasSubstr("[\"tensor0\",3,0,0,0] here and [\"tensor0\",7,0,0,0] there"));
  other = settings;
  other.clip_norm = 0.2;
  EXPECT_THAT(difference(settings, other), HasSubstr("\"clip_norm\":0.1"));
  other = settings;
  other.groups[1].nesterov = false;
  EXPECT_THAT(difference(settings, other), HasSubstr("parameter group 1"));
}

void expect_refused(const std::function<void(JobSettings&)>& change, const std::string& reason) {
  JobSettings settings = settings_for(2, {3, 4});
  change(settings);
  const auto outcome = read_job_settings(to_json(settings));
  ASSERT_FALSE(outcome.has_value()) << reason;
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(outcome.error().message, HasSubstr(reason));
}

TEST(JobSettingsTest, WhatCannotBeIsRefused) {
  expect_refused([](JobSettings& settings) { settings.replicas = 65; }, "65 replicas");
  expect_refused([](JobSettings& settings) { settings.keys[1].name = "tensor0"; }, "'tensor0'");
  expect_refused([](JobSettings& settings) { settings.keys[1].elements = 0; }, "0 elements");
  expect_refused([](JobSettings& settings) { settings.keys[1].elements = std::int64_t{1} << 62; }, "elements");
  expect_refused([](JobSettings& settings) { settings.keys[1].group = 1; }, "parameter group 1");
  expect_refused([](JobSettings& settings) { settings.chunk_bytes = 100; }, "multiple of 64");
  expect_refused([](JobSettings& settings) { settings.wire = DType::kInt64; }, "int64");
  expect_refused([](JobSettings& settings) { settings.groups[0].nesterov = true; }, "Nesterov");
  expect_refused([](JobSettings& settings) { settings.clip_norm = -1; }, "norm");
  expect_refused([](JobSettings& settings) { settings.norm_jobs = 2; }, "name their group, and clip");
  expect_refused(
      [](JobSettings& settings) {
        settings.update_time = UpdateTime::kAtOnce;
        settings.on_loss = OnLoss::kWait;
      },
      "cannot wait");
}

}  // namespace
}  // namespace tesser::hub
