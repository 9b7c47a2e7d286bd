#include "cli/reporters.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json.h"
#include "cli/output.h"

namespace tesser::cli {
namespace {

using runtime::CheckpointWritten;
using runtime::Evaluation;
using runtime::OperatorTime;
using runtime::StepReport;
using runtime::TrainEnd;
using runtime::TrainStart;
using Clock = std::chrono::steady_clock;

// The run is worth more than what is said of it, so it goes on; the command ends with the error (command_line.cc).
void show(const std::string& text) {
  static bool is_said = false;
  write_output(text);
  if (const Result<void> written = flush_output(); !written && !is_said) {
    is_said = true;
    print_message("tesser train: {}; the run goes on without it and ends with exit code 1\n", written.error().message);
  }
}

void print_line(const std::string& line) { show(line + "\n"); }

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Mean duration of a step. The first step of a process traces its memory and is left out as soon as there are others;
// the last hundred or so count.
class StepTime {
 public:
  void add(double seconds) {
    ++count_;
    const double weight = count_ <= 2 ? 1.0 : std::max(1.0 / static_cast<double>(count_ - 1), 0.01);
    mean_ += weight * (seconds - mean_);
  }
  double mean() const { return std::max(mean_, 1e-9); }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
};

std::string metrics_text(const StepReport& report) {
  std::string text = fmt::format("loss {:.4g}", report.loss);
  for (const auto& [name, value] : report.metrics) {
    text += fmt::format("  {} {:.4g}", name, value);
  }
  return text;
}

// What the two styles for people have in common: the lines at the beginning, between and at the end.
class PeopleReporter : public runtime::TrainReporter {
 public:
  void started(const TrainStart& start) override {
    start_ = start;
    line(fmt::format(
        "{}: {} samples, batch {}, {} steps an epoch{}", start.program, start.samples, start.batch_size,
        start.batches_per_epoch,
        start.left_out > 0
            ? fmt::format(" (each epoch leaves out the {} samples that do not fill a batch)", start.left_out)
            : ""));
    line(fmt::format("steps {} to {}, seed {}, predicted peak memory {}", start.step + 1, start.until_step, start.seed,
                     bytes_text(start.predicted_peak_bytes)));
    if (start.workers > 1) {
      const std::string replicas = start.replicas > 1 ? fmt::format("{} replicas, ", start.replicas) : "";
      line(fmt::format("{}{} workers, over {}", replicas, start.workers, fmt::join(start.paths, ", ")));
    }
    if (start.resumed_from) {
      line(fmt::format("resumed from {} after step {}", start.resumed_from->string(), start.step));
    }
    if (start.step >= start.until_step) {
      line("nothing to do: as many steps as asked for are done already");
    }
  }
  void evaluated(std::int64_t step, std::int64_t epoch, const Evaluation& evaluation) override {
    line(fmt::format("epoch {}, step {}: evaluation: {} ({} samples)", epoch + 1, step, results_text(evaluation),
                     evaluation.samples));
  }
  void checkpoint_written(const CheckpointWritten& written) override {
    line(
        fmt::format("checkpoint {} ({}, {:.1f} s)", written.path.string(), bytes_text(written.bytes), written.seconds));
  }
  void ended(const TrainEnd& end) override {
    finish();
    line(fmt::format("{} after step {}{}: {} steps in {}, {:.1f} samples/s, peak memory {} (process {})",
                     end.interrupted ? "stopped" : "done", end.step,
                     end.final_loss ? fmt::format(", loss {:.6g}", *end.final_loss) : "", end.steps,
                     duration_text(end.seconds), end.samples_per_second,
                     bytes_text(end.memory.arena_bytes + end.memory.unplanned_bytes),
                     bytes_text(end.resident_peak_bytes)));
    workers_table(end);
    double total = 0;
    for (const OperatorTime& each : end.operators) total += each.seconds;
    for (const OperatorTime& each : end.operators) {
      line(fmt::format("{:9.3f} ms {:5.1f}%  {:4} x {}{}", each.seconds * 1e3, 100 * each.seconds / total, each.calls,
                       each.op, each.scratch_bytes > 0 ? ", scratch " + bytes_text(each.scratch_bytes) : ""));
    }
  }

 protected:
  virtual void line(const std::string& text) = 0;
  virtual void finish() {}

  // Where the time of each of several workers went, and what it needed.
  void workers_table(const TrainEnd& end) {
    if (end.workers.empty()) {
      return;
    }
    const bool has_replicas = end.workers.back().replica > 0;
    line(fmt::format("{}{:>6}  {:>9}  {:>9}  {:>9}  {:>10}  {:>11}  {:>11}  {}",
                     has_replicas ? fmt::format("{:>7}  ", "replica") : "", "worker", "computing", "waiting",
                     "transfers", "sent", "foreseen", "peak memory", "host"));
    for (const runtime::WorkerSummary& each : end.workers) {
      line(fmt::format("{}{:>6}  {:>7.2f} s  {:>7.2f} s  {:>7.2f} s  {:>10}  {:>11}  {:>11}  {}",
                       has_replicas ? fmt::format("{:>7}  ", each.replica) : "", each.worker, each.compute_seconds,
                       each.waiting_seconds, each.transfer_seconds, bytes_text(each.sent_bytes),
                       bytes_text(each.predicted_peak_bytes), bytes_text(each.peak_bytes), each.host));
    }
  }

  // "epoch 2/5  step 340/1320"
  std::string place(const StepReport& report) const {
    const std::int64_t epochs =
        start_.epoch + (start_.until_step - start_.step + start_.batches_per_epoch - 1) / start_.batches_per_epoch;
    return fmt::format("epoch {}/{}  step {}/{}", report.epoch + 1, std::max(epochs, report.epoch + 1), report.step,
                       start_.until_step);
  }
  std::string rate(const StepReport& report) const {
    const double seconds = time_.mean();
    return fmt::format("{:.{}f} steps/s  {:.0f} samples/s  {} left", 1 / seconds, 1 / seconds < 10 ? 2 : 0,
                       static_cast<double>(start_.batch_size) / seconds,
                       duration_text(seconds * static_cast<double>(start_.until_step - report.step)));
  }

  TrainStart start_;
  StepTime time_;
};

// For files and pipes: a line for the first and the last step and, between them, one a second at first and one every
// ten seconds later.
class LineReporter : public PeopleReporter {
 public:
  void stepped(const StepReport& report) override {
    time_.add(report.seconds);
    const bool first = !printed_;
    if (!first && report.step < start_.until_step && seconds_since(last_) < (seconds_since(begin_) < 60 ? 1.0 : 10.0) &&
        std::isfinite(report.loss)) {
      return;
    }
    printed_ = true;
    last_ = Clock::now();
    line(fmt::format("{}  {}  {}", place(report), metrics_text(report), rate(report)));
  }
  void note(const std::string& message) override { print_message("tesser: {}\n", message); }

 protected:
  void line(const std::string& text) override { print_line(text); }

 private:
  bool printed_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_;
};

// For a terminal: one line that is drawn over and over, ten times a second at most.
class BarReporter : public PeopleReporter {
 public:
  ~BarReporter() override { leave_drawn(); }

  void stepped(const StepReport& report) override {
    time_.add(report.seconds);
    last_report_ = report;
    if (!drawn_ || report.step == start_.until_step || seconds_since(last_) >= 0.1) {
      last_ = Clock::now();
      draw();
    }
  }
  void note(const std::string& message) override {
    erase();
    print_message("tesser: {}\n", message);
  }

 protected:
  void line(const std::string& text) override {
    erase();
    print_line(text);
  }
  // The bar of the last step stays above the summary.
  void finish() override {
    if (last_report_.step > 0) {
      draw();
    }
    leave_drawn();
  }

 private:
  void leave_drawn() {
    if (drawn_) {
      show("\n");
      drawn_ = false;
    }
  }

  void erase() {
    if (drawn_) {
      show("\r\x1b[K");
      drawn_ = false;
    }
  }

  void draw() {
    struct winsize size {};
    const std::size_t width = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    const std::string left = place(last_report_) + " ";
    const std::string right = fmt::format("  {}  {}", metrics_text(last_report_), rate(last_report_));
    std::string text = left;
    constexpr std::size_t kLeastBar = 7;
    if (left.size() + right.size() + kLeastBar < width) {
      const std::size_t bar = std::min<std::size_t>(width - left.size() - right.size() - 3, 40);
      const double part =
          start_.until_step > 0 ? static_cast<double>(last_report_.step) / static_cast<double>(start_.until_step) : 1.0;
      const std::size_t full = std::min(bar, static_cast<std::size_t>(part * static_cast<double>(bar)));
      text += fmt::format("[{}{}]", std::string(full, '='), std::string(bar - full, ' '));
    }
    text += right;
    text = text.substr(0, width - 1);
    show("\r\x1b[K" + text);
    drawn_ = true;
  }

  StepReport last_report_;
  bool drawn_ = false;
  Clock::time_point last_;
};

// The member "operators" of the end event, or nothing.
std::string operators_json(const std::vector<OperatorTime>& operators) {
  std::string text;
  for (const OperatorTime& each : operators) {
    text += fmt::format("{}{{\"op\":{},\"calls\":{},\"seconds\":{},\"scratch_bytes\":{}}}", text.empty() ? "" : ",",
                        json_string(each.op), each.calls, json_number(each.seconds), each.scratch_bytes);
  }
  return operators.empty() ? "" : ",\"operators\":[" + text + "]";
}

// The member "workers" of the end event, or nothing.
std::string workers_json(const std::vector<runtime::WorkerSummary>& workers) {
  std::string text;
  for (const runtime::WorkerSummary& each : workers) {
    text += fmt::format(
        "{}{{{}\"host\":{},\"compute_seconds\":{},\"waiting_seconds\":{},\"transfer_seconds\":{},\"sent_bytes\":{},"
        "{}\"predicted_peak_bytes\":{},\"peak_bytes\":{},\"resident_peak_bytes\":{}}}",
        text.empty() ? "" : ",",
        workers.back().replica > 0 ? fmt::format("\"replica\":{},\"worker\":{},", each.replica, each.worker) : "",
        json_string(each.host), json_number(each.compute_seconds), json_number(each.waiting_seconds),
        json_number(each.transfer_seconds), each.sent_bytes,
        workers.back().replica > 0 ? fmt::format("\"copied_gradient_bytes\":{},", each.copied_gradient_bytes) : "",
        each.predicted_peak_bytes, each.peak_bytes, each.resident_peak_bytes);
  }
  return workers.empty() ? "" : ",\"workers\":[" + text + "]";
}

class JsonReporter : public runtime::TrainReporter {
 public:
  void started(const TrainStart& start) override {
    std::vector<std::string> paths;
    for (const std::string& path : start.paths) {
      paths.push_back(json_string(path));
    }
    print_line(fmt::format(
        "{{\"event\":\"start\",\"program\":{},\"step\":{},\"until_step\":{},\"epoch\":{},\"batches_per_epoch\":{},"
        "\"batch_size\":{},\"samples\":{},"
        "\"left_out\":{},\"seed\":{},\"threads\":{},\"resumed_from\":{},\"predicted_peak_bytes\":{}{}}}",
        json_string(start.program), start.step, start.until_step, start.epoch + 1, start.batches_per_epoch,
        start.batch_size, start.samples, start.left_out, start.seed, start.threads,
        start.resumed_from ? json_string(start.resumed_from->string()) : "null", start.predicted_peak_bytes,
        (start.replicas > 1 ? fmt::format(",\"replicas\":{}", start.replicas) : "") +
            (start.workers > 1 ? fmt::format(",\"workers\":{},\"paths\":[{}]", start.workers, fmt::join(paths, ","))
                               : "")));
  }
  void stepped(const StepReport& report) override {
    std::string rates;
    for (const double rate : report.learning_rates) {
      rates += (rates.empty() ? "" : ",") + json_number(rate);
    }
    print_line(
        fmt::format("{{\"event\":\"step\",\"step\":{},\"epoch\":{},\"loss\":{},\"metrics\":{},\"learning_rate\":{},"
                    "\"seconds\":{}}}",
                    report.step, report.epoch + 1, json_number(report.loss), results_json(report.metrics),
                    report.learning_rates.size() == 1 ? rates : "[" + rates + "]", json_number(report.seconds)));
  }
  void evaluated(std::int64_t step, std::int64_t epoch, const Evaluation& evaluation) override {
    print_line(
        fmt::format("{{\"event\":\"evaluation\",\"step\":{},\"epoch\":{},\"results\":{},\"batches\":{},\"samples\":{},"
                    "\"left_out\":{},\"seconds\":{}}}",
                    step, epoch + 1, results_json(evaluation.results), evaluation.batches, evaluation.samples,
                    evaluation.left_out, json_number(evaluation.seconds)));
  }
  void checkpoint_written(const CheckpointWritten& written) override {
    print_line(fmt::format("{{\"event\":\"checkpoint\",\"step\":{},\"path\":{},\"seconds\":{},\"bytes\":{}}}",
                           written.step, json_string(written.path.string()), json_number(written.seconds),
                           written.bytes));
  }
  void note(const std::string& message) override {
    print_line(fmt::format("{{\"event\":\"note\",\"message\":{}}}", json_string(message)));
  }
  void ended(const TrainEnd& end) override {
    print_line(
        fmt::format("{{\"event\":\"end\",\"steps\":{},\"step\":{},\"seconds\":{},\"samples_per_second\":{},\"peak_"
                    "bytes\":{},\"predicted_peak_bytes\":{},"
                    "\"scratch_bytes\":{},\"unplanned_allocations\":{},\"unplanned_bytes\":{},\"resident_peak_bytes\":{"
                    "},\"interrupted\":{},"
                    "\"final_loss\":{},\"checkpoint\":{}{}{}}}",
                    end.steps, end.step, json_number(end.seconds), json_number(end.samples_per_second),
                    end.memory.arena_bytes + end.memory.unplanned_bytes, end.memory.predicted_peak_bytes,
                    end.memory.scratch_bytes, end.memory.unplanned_allocations, end.memory.unplanned_bytes,
                    end.resident_peak_bytes, end.interrupted, end.final_loss ? json_number(*end.final_loss) : "null",
                    end.checkpoint ? json_string(end.checkpoint->string()) : "null", operators_json(end.operators),
                    workers_json(end.workers)));
  }
};

}  // namespace

std::unique_ptr<runtime::TrainReporter> make_reporter(ReportStyle style) {
  switch (style) {
    case ReportStyle::kProgressBar:
      return std::make_unique<BarReporter>();
    case ReportStyle::kLines:
      return std::make_unique<LineReporter>();
    case ReportStyle::kJson:
      return std::make_unique<JsonReporter>();
  }
  return nullptr;
}

std::string results_text(const Evaluation& evaluation) {
  std::string text;
  for (const auto& [name, value] : evaluation.results) {
    text += fmt::format("{}{} {:.6g}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

std::string json_number(double number) { return std::isfinite(number) ? json_float(number) : "null"; }

std::string results_json(const std::vector<std::pair<std::string, double>>& results) {
  std::string text = "{";
  for (const auto& [name, value] : results) {
    text += (text.size() > 1 ? "," : "") + json_string(name) + ":" + json_number(value);
  }
  return text + "}";
}

void print_error_event(const Error& error) {
  print_line(fmt::format("{{\"event\":\"error\",\"message\":{},\"exit_code\":{}}}", json_string(error.message),
                         exit_code(error)));
}

}  // namespace tesser::cli
