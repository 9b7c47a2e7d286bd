// Any bytes as a manifest: an error on one line, or a manifest that its JSON and its stored text read back to, without
// its secrets.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "platform/job/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tesser;
  const Result<platform::Submission> submission =
      platform::read_submission({reinterpret_cast<const char*>(data), size}, "job.yaml");
  if (!submission.has_value()) {
    const std::string& message = submission.error().message;
    TESSER_CHECK(message.starts_with("job.yaml: ") || message.starts_with("job.yaml, line "), message);
    TESSER_CHECK(message.find('\n') == std::string::npos, message);
    return 0;
  }
  const std::string json = platform::to_json(submission->manifest);
  const Result<platform::Manifest> again = platform::manifest_from_json(json);
  TESSER_CHECK(again.has_value(), again.error().message);
  TESSER_CHECK(*again == submission->manifest, json);
  const Result<platform::Submission> stored = platform::read_submission(submission->text, "job.yaml");
  TESSER_CHECK(stored.has_value(), stored.error().message);
  TESSER_CHECK(stored->manifest == submission->manifest, submission->text);
  TESSER_CHECK(stored->secrets.empty(), submission->text);
  platform::Secrets all = submission->secrets;
  for (const auto& [name, line] : submission->missing) {
    all.emplace(name, "value");
  }
  const auto environment = platform::resolved_environment(submission->manifest, all);
  TESSER_CHECK(environment.has_value(), environment.error().message);
  const Result<platform::Secrets> secrets = platform::secrets_from_json(platform::to_json(all));
  TESSER_CHECK(secrets.has_value() && *secrets == all, "secrets do not read back");
  return 0;
}
