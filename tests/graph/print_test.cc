#include "graph/print.h"

#include <gtest/gtest.h>

#include "sample_program.h"

namespace tesser::graph {
namespace {

TEST(PrintTest, PrintsAsTheGoldenFiles) {
  EXPECT_EQ(print(sample("step.json")), sample_text("step.txt"));
  EXPECT_EQ(print(sample("forward.json")), sample_text("forward.txt"));
}

}  // namespace
}  // namespace tesser::graph
