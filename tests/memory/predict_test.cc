#include "memory/predict.h"

#include <gtest/gtest.h>

#include "graph/read.h"
#include "layout/program_builder.h"

namespace tesser::memory {
namespace {

using graph::Role;
using graph::ValueId;

TEST(PredictTest, FindsThePeakAndWhatIsLiveThere) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {16});                                       // 64 bytes
  build.input(Role::kParameter, {17});                                                     // 68, rounded up to 128
  const ValueId a = build.one("aten::relu", {value(x)}, {16});                             // 64
  const ValueId b = build.one("aten::cat", {std::vector<graph::ValueRef>(4, {a})}, {64});  // 256
  const ValueId v = build.one("aten::view", {value(b), integers({8, 8})}, {8, 8});
  const ValueId c = build.one("aten::neg", {value(v)}, {8, 8});                 // 256, with a and b alive
  const ValueId d = build.one("aten::sum", {value(c)}, {});                     // 4, rounded up to 64
  const ValueId e = build.one("aten::mul.Tensor", {value(a), value(d)}, {16});  // 64
  build.program().results = {{"e", e}};
  const MemoryPrediction prediction = predict(build.program());
  EXPECT_EQ(prediction.state_bytes, 64 + 128);
  EXPECT_EQ(prediction.live_bytes, 64 + 256 + 256);
  EXPECT_EQ(prediction.arena_bytes, 64 + 256 + 256);
  EXPECT_EQ(prediction.peak_bytes, prediction.state_bytes + prediction.arena_bytes);
  EXPECT_EQ(prediction.peak_node, 3);
  ASSERT_EQ(prediction.live_at_peak.size(), 3U);
  EXPECT_EQ(prediction.live_at_peak[0].value, b);
  EXPECT_EQ(prediction.live_at_peak[1].value, c);
  EXPECT_EQ(prediction.live_at_peak[2].value, a);
  EXPECT_EQ(prediction.live_at_peak[0].bytes, 256);
}

TEST(PredictTest, SurvivesProgramsWithoutNodes) {
  ProgramBuilder build;
  build.input(Role::kBatch, {16});
  const MemoryPrediction prediction = predict(build.program());
  EXPECT_EQ(prediction.peak_bytes, 64);
  EXPECT_EQ(prediction.peak_node, graph::kNone);
  EXPECT_TRUE(prediction.live_at_peak.empty());
}

// Programs captured from models/, whose layouts must come close to what is live.
TEST(PredictTest, LaysRealProgramsOutTightly) {
  for (const char* const name : {"gpt.json", "lstm.json", "resnet.json"}) {
    const Result<graph::Program> program =
        graph::read_program(std::string(TESSER_SOURCE_DIR "/tests/memory/programs/") + name);
    ASSERT_TRUE(program.has_value()) << program.error().message;
    const MemoryPrediction prediction = predict(*program);
    EXPECT_GE(prediction.arena_bytes, prediction.live_bytes);
    EXPECT_LE(static_cast<double>(prediction.arena_bytes), 1.02 * static_cast<double>(prediction.live_bytes)) << name;
  }
}

}  // namespace
}  // namespace tesser::memory
