// How a training run is shown: as a progress bar, as lines, or as JSON events (docs/formats/events.md).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/train.h"

namespace tesser::cli {

enum class ReportStyle { kProgressBar, kLines, kJson };

// Writes to standard output; notes go to standard error except in JSON.
std::unique_ptr<runtime::TrainReporter> make_reporter(ReportStyle style);

// The line of an evaluation's results, "loss 0.12, accuracy 0.97".
std::string results_text(const runtime::Evaluation& evaluation);
// The same as a JSON object.
std::string results_json(const std::vector<std::pair<std::string, double>>& results);
// A JSON number, or null for one that is not finite.
std::string json_number(double number);
// The last event of a run that failed.
void print_error_event(const Error& error);

}  // namespace tesser::cli
