#include "runtime/worker_trace.h"

#include <chrono>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace tesser::runtime {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

// What a span is of, which a viewer gives a colour.
std::string_view category(std::string_view op) {
  if (op == "tesser::receive" || op == "tesser::sent") {
    return "waiting";
  }
  return op == "tesser::send" || op == "tesser::open" ? "transfer" : op == "tesser::reduce" ? "reduction" : "computing";
}

}  // namespace

void WorkerTrace::add_step(std::int64_t step) {
  kept_.emplace_back(step, executor_.last_step());
  if (static_cast<std::int64_t>(kept_.size()) > steps_) {
    kept_.pop_front();
  }
}

Result<void> WorkerTrace::write(const std::filesystem::path& file, int worker, std::int64_t begin) const {
  // Workers' steady clocks have nothing in common; their system clocks are as good as their machines keep them.
  // One number for all, as microseconds since 1970 are not exact in a double.
  const Microseconds shift = std::chrono::system_clock::now().time_since_epoch() -
                             Microseconds(static_cast<double>(begin)) -
                             Microseconds(std::chrono::steady_clock::now().time_since_epoch());
  const auto time = [&](std::chrono::steady_clock::time_point at) {
    return (Microseconds(at.time_since_epoch()) + shift).count();
  };
  const std::vector<graph::Node>& nodes = executor_.prepared_program().nodes;
  std::string text;
  const auto add = [&](const std::string& name, std::string_view op, std::string_view kind, std::int64_t step,
                       const NodeSpan& span) {
    text += fmt::format(
        ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":0,\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{\"op\":{},\"step\":{}}}}}",
        json_string(name), kind, worker, time(span.begin), Microseconds(span.end - span.begin).count(), json_string(op),
        step);
  };
  for (const auto& [step, spans] : kept_) {
    if (spans.empty()) {
      continue;
    }
    add(fmt::format("step {}", step), "", "step", step, {spans.front().begin, spans.back().end});
    for (std::size_t node = 0; node < spans.size(); ++node) {
      add(nodes[node].name, nodes[node].op, category(nodes[node].op), step, spans[node]);
    }
  }
  return write_file_atomically(file, text);
}

}  // namespace tesser::runtime
