#include "platform/job/manifest.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Manifest read(const std::string& yaml) {
  const auto manifest = read_manifest(yaml, "job.yaml");
  EXPECT_TRUE(manifest.has_value()) << manifest.error().message;
  return manifest.value_or(Manifest{});
}

std::string message(const std::string& yaml) {
  const auto manifest = read_manifest(yaml, "job.yaml");
  EXPECT_FALSE(manifest.has_value()) << yaml;
  EXPECT_TRUE(manifest || manifest.error().code == ErrorCode::kInvalidInput);
  return manifest ? "" : manifest.error().message;
}

constexpr const char* kEverything = R"(# a job
name: resnet-50
description: "images: all of them"
team: vision
command: [torchrun, --nproc-per-node, 2, train.py]
learners: 4
cpus: 2.5
memory: 24GiB
accelerators: {v100: 2}
priority: 80
environment:
  EPOCHS: 3
  FLAG: true
  EMPTY: ''
  URL: https://${USER_NAME}:${PASSWORD}@host
data_stores:
  - {id: images, type: host, path: /data/images}
  - id: bucket
    type: s3
    endpoint: http://127.0.0.1:9000
    region: eu-central-1
    bucket: my.photos
    prefix: train/
    access_key: ${ACCESS}
    secret_key: ${SECRET}
results: bucket/runs/1
checkpoints: {keep: 5}
restarts: 0
time_limit: 2h
start_limit: 90
grace: 1m
log_limit: 64MiB
metrics:
  - {type: regex, pattern: 'loss (?<loss>[0-9.]+)'}
  - {type: json, path: metrics.jsonl}
  - {type: tensorboard, path: runs}
)";

TEST(Manifest, EveryKeyIsRead) {
  const Manifest manifest = read(kEverything);
  EXPECT_EQ(manifest.name, "resnet-50");
  EXPECT_EQ(manifest.description, "images: all of them");
  EXPECT_EQ(manifest.team, "vision");
  EXPECT_THAT(manifest.command, ElementsAre("torchrun", "--nproc-per-node", "2", "train.py"));
  EXPECT_FALSE(manifest.program.has_value());
  EXPECT_EQ(manifest.learners, 4);
  EXPECT_EQ(manifest.each.millicpus, 2500);
  EXPECT_EQ(manifest.each.memory_bytes, std::int64_t{24} << 30);
  EXPECT_EQ(manifest.each.accelerators.at("v100"), 2);
  EXPECT_EQ(manifest.priority, 80);
  EXPECT_EQ(manifest.environment.at("EPOCHS"), "3");
  EXPECT_EQ(manifest.environment.at("FLAG"), "true");
  EXPECT_EQ(manifest.environment.at("EMPTY"), "");
  EXPECT_EQ(manifest.data_stores.at(0).path, "/data/images");
  const DataStore& bucket = manifest.data_stores.at(1);
  EXPECT_EQ(bucket.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(bucket.region, "eu-central-1");
  EXPECT_EQ(bucket.bucket, "my.photos");
  EXPECT_EQ(bucket.prefix, "train/");
  EXPECT_EQ(bucket.access_key, "ACCESS");
  EXPECT_EQ(bucket.secret_key, "SECRET");
  EXPECT_EQ(manifest.results, "bucket/runs/1");
  EXPECT_EQ(manifest.keep_checkpoints, 5);
  EXPECT_EQ(manifest.restarts, 0);
  EXPECT_EQ(manifest.time_limit.count(), 7200);
  EXPECT_EQ(manifest.start_limit.count(), 90);
  EXPECT_EQ(manifest.grace.count(), 60);
  EXPECT_EQ(manifest.log_bytes, std::int64_t{64} << 20);
  ASSERT_EQ(manifest.metrics.size(), 3U);
  EXPECT_EQ(manifest.metrics[0].pattern, "loss (?<loss>[0-9.]+)");
  EXPECT_EQ(manifest.metrics[2].path, "runs");
}

TEST(Manifest, AProgramNeedsOnlyItselfDataAndASize) {
  const Manifest manifest = read(
      "name: mnist\nprogram: mnist.tesser\ndata: data/train\nworkers: 2\nreplicas: 3\n"
      "arguments: [--epochs, 3]\npreset: tofu\ncheckpoints: {every: 100}\n");
  ASSERT_TRUE(manifest.program.has_value());
  EXPECT_EQ(manifest.program->program, "mnist.tesser");
  EXPECT_EQ(manifest.program->data, "data/train");
  EXPECT_EQ(manifest.program->workers, 2);
  EXPECT_EQ(manifest.program->preset, "tofu");
  EXPECT_THAT(manifest.program->arguments, ElementsAre("--epochs", "3"));
  EXPECT_EQ(manifest.learners, 6);
  EXPECT_EQ(manifest.checkpoint_every, 100);
  EXPECT_TRUE(manifest.command.empty());
  EXPECT_EQ(read("name: mnist\nprogram: step.py\ndata: data\nmemory: 4GiB\n").learners, 1);
}

TEST(Manifest, AShellLineIsGivenToTheShell) {
  EXPECT_THAT(read("name: a\ncommand: python train.py && echo done\n").command,
              ElementsAre("sh", "-c", "python train.py && echo done"));
  EXPECT_THAT(read("name: a\ncommand: |\n  set -e\n  make\n").command, ElementsAre("sh", "-c", "set -e\nmake\n"));
}

TEST(Manifest, JsonHasAllOfIt) {
  for (const std::string& yaml :
       {std::string(kEverything), std::string("name: a\ncommand: x\n"),
        std::string("name: a\nprogram: p.tesser\ndata: d\nworkers: 2\narguments: ['ä\"\\']\n"),
        std::string("name: a\nprogram: p.tesser\ndata: d\n")}) {
    const Manifest manifest = read(yaml);
    const auto again = manifest_from_json(to_json(manifest));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(*again, manifest);
    EXPECT_EQ(to_json(*again), to_json(manifest));
  }
  EXPECT_FALSE(manifest_from_json("{}").has_value());
  EXPECT_FALSE(manifest_from_json("[]").has_value());
  std::string broken = to_json(read(kEverything));
  broken.replace(broken.find("\"learners\":4"), 12, "\"learners\":0");
  EXPECT_THAT(manifest_from_json(broken).error().message, HasSubstr("learners"));
}

TEST(Manifest, WrongOnesAreRefusedWithLineAndAdvice) {
  const std::string head = "name: a\ncommand: x\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {head + "memmory: 2GiB\n", "job.yaml, line 3: 'memmory' is no key of a manifest; did you mean 'memory'?"},
      {head + "qqqqqqqqq: 2\n", "job.yaml, line 3: 'qqqqqqqqq' is no key of a manifest"},
      {"name: a\ncomand: x\n", "job.yaml, line 2: 'comand' is no key of a manifest; did you mean 'command'?"},
      {"command: x\n", "job.yaml: has no 'name'"},
      {"name: a\n", "job.yaml: says nothing to run"},
      {"name: a\ncommand: x\nprogram: p\ndata: d\n", "job.yaml: has both 'command' and 'program'"},
      {"name: a\nprogram: p\n", "job.yaml: has 'program' without 'data'"},
      {"name: a\nprogram: p\ndata: d\nlearners: 2\n", "job.yaml, line 4: 'learners' is for commands"},
      {"name: a\nprogram: /p\ndata: d\n", "job.yaml, line 2: 'program' is '/p', expected a path without '..'"},
      {"name: a\nprogram: p\ndata: a/../../d\n", "job.yaml, line 3: 'data' is 'a/../../d', expected a path"},
      {"name: a\nprogram: p\ndata: d\nworkers: 200\nreplicas: 200\n", "job.yaml: 'workers' times 'replicas' is 40000"},
      {head + "workers: 2\n", "job.yaml, line 3: 'workers' belongs to a tesser program"},
      {head + "checkpoints: {every: 3}\n", "job.yaml, line 3: 'every' counts the steps of a tesser program"},
      {"name: Big\ncommand: x\n", "job.yaml, line 1: 'name' is 'Big', expected small letters"},
      {"name: 7\ncommand: x\n", "job.yaml, line 1: 'name' is a number, expected text; in quotes it is text: '7'"},
      {head + "name2:\n", "job.yaml, line 3: 'name2' is no key of a manifest; did you mean 'name'?"},
      {head + "memory:\n", "job.yaml, line 3: 'memory' has no value"},
      {head + "memory: 2 gallons\n", "job.yaml, line 3: 'memory' is 2 gallons, expected an amount of memory such as"},
      {head + "memory: 1\n", "job.yaml, line 3: 'memory' is 1, expected 1.0 MiB to 1024.0 TiB"},
      {head + "memory: -5GiB\n", "job.yaml, line 3: 'memory' is -5GiB, expected an amount"},
      {head + "learners: 0\n", "job.yaml, line 3: 'learners' is 0, expected a whole number from 1 to 10000"},
      {head + "learners: 1e18\n", "job.yaml, line 3: 'learners' is 1e18"},
      {head + "learners: 2.5\n", "job.yaml, line 3: 'learners' is 2.5"},
      {head + "learners: '2'\n", "job.yaml, line 3: 'learners' is text, expected a whole number"},
      {head + "cpus: 0\n", "job.yaml, line 3: 'cpus' is 0, expected a number from 0.001"},
      {head + "cpus: many\n", "job.yaml, line 3: 'cpus' is many"},
      {head + "cpus: .nan\n", "job.yaml, line 3: 'cpus' is .nan"},
      {head + "accelerators: {v100: 0}\n", "job.yaml, line 3: 'v100' is 0, expected a whole number from 1 to 1024"},
      {head + "time_limit: 1h30\n", "job.yaml, line 3: 'time_limit' is 1h30, expected a time such as 90m"},
      {head + "time_limit: 0\n", "job.yaml, line 3: 'time_limit' is 0, expected 1 to"},
      {head + "priority: 101\n", "job.yaml, line 3: 'priority' is 101"},
      {head + "environment:\n  A-B: c\n", "job.yaml, line 4: 'A-B' is no name of an environment variable"},
      {head + "environment:\n  A: [c]\n", "job.yaml, line 4: 'A' is a list, expected text"},
      {head + "environment:\n  A: '${1}'\n", "job.yaml, line 4: '${' is not followed by a name"},
      {head + "environment:\n  TESSER_LEARNER: x\n", "job.yaml, line 4: 'TESSER_LEARNER' is the platform's own"},
      {head + "data_stores:\n- {id: a, type: nfs}\n", "job.yaml, line 4: 'type' is 'nfs', expected host or s3"},
      {head + "data_stores:\n- {id: a, type: host}\n", "job.yaml, line 4: this data store has no 'path'"},
      {head + "data_stores:\n- {id: a, type: host, path: b}\n",
       "job.yaml, line 4: 'path' is 'b', expected a directory"},
      {head + "data_stores:\n- {id: a, type: host, path: /b, bucket: c}\n", "job.yaml, line 4: 'bucket' is no key"},
      {head + "data_stores:\n- {id: a, type: s3}\n", "job.yaml, line 4: this data store has no 'bucket'"},
      {head + "data_stores:\n- {id: a, type: host, path: /a}\n- {id: a, type: host, path: /b}\n",
       "job.yaml, line 5: a second data store has the id 'a'"},
      {head + "results: a\n", "job.yaml, line 3: 'results' is 'a', but no data store has the id 'a'"},
      {head + "metrics: [{type: regex}]\n", "job.yaml, line 3: this entry of 'metrics' has no 'pattern'"},
      {head + "metrics: [{type: regex, pattern: x}]\n", "job.yaml, line 3: the pattern 'x' names no metric"},
      {head + "metrics:\n- type: regex\n  pattern: '(?<loss>['\n",
       "job.yaml, line 5: the pattern '(?<loss>[' is no regular expression: missing ]"},
      {head + "metrics: {type: regex}\n", "job.yaml, line 3: 'metrics' is a mapping, expected a list"},
      {"[1, 2]\n", "job.yaml, line 1: expected keys and values of a manifest"},
      {"just words\n", "job.yaml, line 1: expected keys and values of a manifest"},
      {head + "command: y\n", "job.yaml, line 3: 'command' stands here a second time; line 2 has it already"},
      {"name: a\ncommand: []\n", "job.yaml, line 2: 'command' is an empty list"},
      {"name: a\ncommand: [[x]]\n", "job.yaml, line 2: 'command' has a list in it, expected words"},
  };
  for (const auto& [yaml, expected] : cases) {
    EXPECT_THAT(message(yaml), StartsWith(expected)) << yaml;
  }
}

TEST(Manifest, TheFirstWrongLineIsTold) {
  EXPECT_THAT(message("name: a\nlearnerss: 2\nmemory: x\ncommand: c\n"), StartsWith("job.yaml, line 2: "));
  EXPECT_THAT(message("name: a\nmemory: x\nlearnerss: 2\ncommand: c\n"), StartsWith("job.yaml, line 2: "));
}

}  // namespace
}  // namespace tesser::platform
