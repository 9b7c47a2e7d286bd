// Any bytes as what other programs say to the platform: S3, Slurm, a kubeconfig, and as traces, cursors, secrets and
// settings in files. The first byte chooses whose. An error, or values that hold together.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "platform/data/s3_answers.h"
#include "platform/engine/engine.h"
#include "platform/engine/kubernetes_access.h"
#include "platform/engine/slurm_text.h"
#include "platform/job/secrets.h"
#include "platform/learner/log_reader.h"
#include "platform/scheduler/trace.h"
#include "platform/web/url.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tesser;
  using namespace tesser::platform;
  if (size == 0) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 9) {
    case 0:
      if (const auto page = read_s3_page(text)) {
        TESSER_CHECK(page->objects.size() <= text.size(), std::to_string(page->objects.size()));
      }
      element_text(text, "Code");
      break;
    case 1:
      slurm_jobs_from_squeue(text, "mark");
      label_from_comment(text);
      break;
    case 2:
      nodes_from_scontrol(text, "");
      node_states_from_scontrol(text);
      partitions_from_scontrol(text);
      break;
    case 3:
      why_not_ready(text);
      is_lost(text);
      is_refusal(text);
      first_error(text);
      break;
    case 4:
      (void)parse_kubeconfig(text, "/nowhere/kubeconfig");
      (void)base64_decoded(text);
      break;
    case 5:
      if (const auto jobs = read_trace(text, "trace")) {
        TESSER_CHECK(jobs->size() <= text.size(), std::to_string(jobs->size()));
      }
      break;
    case 6:
      if (const auto cursor = LogCursor::parse(text)) {
        TESSER_CHECK(LogCursor::parse(cursor->text())->text() == cursor->text(), cursor->text());
      }
      break;
    case 7:
      if (const auto secrets = secrets_from_json(text)) {
        TESSER_CHECK(*secrets_from_json(to_json(*secrets)) == *secrets, "other secrets");
      }
      (void)secret_references(text);
      break;
    default:
      (void)deployment_from_json(text);
      (void)engine_settings_from_json(text);
      split_url(text);
      break;
  }
  return 0;
}
