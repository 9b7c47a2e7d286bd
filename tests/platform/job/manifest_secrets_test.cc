#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/job/manifest.h"

namespace tesser::platform {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

Submission read(const std::string& yaml) {
  const auto submission = read_submission(yaml, "job.yaml");
  EXPECT_TRUE(submission.has_value()) << submission.error().message;
  return submission.value_or(Submission{});
}

std::string message(const std::string& yaml) {
  const auto submission = read_submission(yaml, "job.yaml");
  EXPECT_FALSE(submission.has_value()) << yaml;
  return submission ? "" : submission.error().message;
}

constexpr const char* kHead = "name: a\ncommand: x\n";

TEST(ManifestSecrets, MarkedValuesLeaveTheTextAndMeetAgainInTheEnvironment) {
  const std::string head = kHead;
  for (const std::string written :
       {"hunter2-hunter2", "'hunter2-hunter2'", "\"hunter2-hunter2\"", "\"hunter2\\x2dhunter2\""}) {
    const Submission submission =
        read(head + "environment:\n  KEY: {secret: " + written + "}  # of Ann\n  PLAIN: here\n");
    EXPECT_EQ(submission.text, head + "environment:\n  KEY: {secret: \"${KEY}\"}  # of Ann\n  PLAIN: here\n");
    EXPECT_THAT(submission.secrets, ElementsAre(Pair("KEY", "hunter2-hunter2")));
    EXPECT_TRUE(submission.missing.empty());
    EXPECT_THAT(to_json(submission.manifest), Not(HasSubstr("hunter2")));
    const auto environment = resolved_environment(submission.manifest, submission.secrets);
    ASSERT_TRUE(environment.has_value()) << environment.error().message;
    EXPECT_THAT(*environment, ElementsAre(Pair("KEY", "hunter2-hunter2"), Pair("PLAIN", "here")));
    const auto again = read_submission(submission.text, "job.yaml");
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->manifest, submission.manifest);
    EXPECT_THAT(again->missing, ElementsAre(Pair("KEY", 4)));
  }
}

TEST(ManifestSecrets, KeysOfBucketsAreSecretHoweverTheyAreWritten) {
  const std::string yaml = std::string(kHead) +
                           "data_stores:\n- id: my-data\n  type: s3\n  bucket: photos\n  access_key: AKIDEXAMPLE\n"
                           "  secret_key: ${AWS_SECRET}\n";
  const Submission submission = read(yaml);
  EXPECT_THAT(submission.text,
              AllOf(Not(HasSubstr("AKIDEXAMPLE")), HasSubstr("access_key: \"${MY_DATA_ACCESS_KEY}\"")));
  EXPECT_EQ(submission.manifest.data_stores.at(0).access_key, "MY_DATA_ACCESS_KEY");
  EXPECT_EQ(submission.manifest.data_stores.at(0).secret_key, "AWS_SECRET");
  EXPECT_THAT(submission.missing, ElementsAre(Pair("AWS_SECRET", 8)));
}

TEST(ManifestSecrets, ANameThatIsTakenIsNotUsedForAnother) {
  const Submission submission =
      read(std::string(kHead) + "environment:\n  KEY: {secret: one-value}\n  OTHER: 'user:${KEY}'\n");
  EXPECT_THAT(submission.secrets, ElementsAre(Pair("KEY_", "one-value")));
  EXPECT_THAT(submission.missing, ElementsAre(Pair("KEY", 5)));
}

TEST(ManifestSecrets, ASecretThatStandsElsewhereIsToldWithoutShowingIt) {
  const std::string told =
      message(std::string(kHead) + "# was hunter2hunter2\nenvironment:\n  KEY: {secret: hunter2hunter2}\n");
  EXPECT_THAT(
      told, AllOf(StartsWith("job.yaml, line 3: the secret of line 5 stands here as well"), Not(HasSubstr("hunter2"))));
}

TEST(ManifestSecrets, NoMessageShowsAValue) {
  const std::string head = std::string(kHead) + "environment:\n";
  for (const std::string& wrong :
       {head + "  KEY: {secret: hunter2hunter2, secrett: 1}\n", head + "  KEY: {secret: [hunter2hunter2]}\n",
        head + "  KEY:\n    secret: |\n      hunter2hunter2\n", head + "  KEY: {secret: &a hunter2hunter2}\n",
        head + "  KEY: {secret: 'hunter2hunter2${'}\n", head + "  KEY: {secret: hunter2hunter2}\n  KEY: b\n",
        std::string(kHead) + "data_stores:\n- {id: a, type: s3, bucket: abc, access_key: hunter2hunter2}\n"}) {
    const std::string told = message(wrong);
    EXPECT_THAT(told, Not(HasSubstr("hunter2"))) << told;
  }
}

TEST(ManifestSecrets, ReferencesAreReplacedAndEscapesAreNot) {
  const Secrets secrets = {{"USER", "ann"}, {"KEY", "a${USER}b"}};
  EXPECT_EQ(with_secrets("https://${USER}:${KEY}@host", secrets).value(), "https://ann:a${USER}b@host");
  EXPECT_EQ(with_secrets("$${USER} $USER $ ${USER}", secrets).value(), "${USER} $USER $ ann");
  EXPECT_EQ(with_secrets("", secrets).value(), "");
  EXPECT_FALSE(with_secrets("${1}", secrets).has_value());
  EXPECT_FALSE(with_secrets("${USER", secrets).has_value());
  EXPECT_THAT(with_secrets("${OTHER}", secrets).error().message, HasSubstr("'OTHER' was not given"));
  const Secrets hard = {{"A", "line\n\"quoted\" \xc3\xa4"}, {"B", ""}};
  EXPECT_EQ(secrets_from_json(to_json(hard)).value(), hard);
  EXPECT_THAT(secrets_from_json("{\"A\": hunter2}").error().message, Not(HasSubstr("hunter2")));
  EXPECT_FALSE(secrets_from_json("{\"A\": 1}").has_value());
}

}  // namespace
}  // namespace tesser::platform
