// Any bytes as a program: an error, or a program that every later stage can take.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "graph/print.h"
#include "graph/read.h"
#include "graph/summary.h"
#include "graph/verify.h"
#include "graph/write.h"
#include "memory/predict.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tesser;
  const Result<graph::Program> program =
      graph::parse_program({reinterpret_cast<const char*>(data), size}, "program.json");
  if (!program.has_value()) {
    TESSER_CHECK(program.error().message.starts_with("program.json: "), program.error().message);
    return 0;
  }
  // What was read is written in the canonical form with its checksum, which reads and writes as itself.
  const std::string text = graph::program_file_text(*program);
  const Result<graph::Program> again = graph::parse_program(text, "again.json");
  TESSER_CHECK(again.has_value(), again.error().message);
  const std::string again_text = graph::program_file_text(*again);
  TESSER_CHECK(again_text == text, again_text);
  TESSER_CHECK(graph::print(*again) == graph::print(*program), "another print");

  const graph::Summary summary = graph::summarize(*program);
  TESSER_CHECK(summary.modules.size() >= 1, "no root module");
  for (const graph::Schedule& schedule : program->schedules) {
    (void)schedule.at(0);
    (void)schedule.at(std::int64_t{1} << 40);
  }
  const memory::MemoryPrediction memory = memory::predict(*program);
  TESSER_CHECK(memory.arena_bytes >= memory.live_bytes,
               std::to_string(memory.arena_bytes) + " bytes for " + std::to_string(memory.live_bytes));
  return 0;
}
