#include "hub/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace tesser::hub {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

template <typename Figure>
MetricFamily family(const std::vector<JobFigures>& jobs, const char* name, const char* help, MetricType type,
                    const Figure& figure) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  for (const JobFigures& job : jobs) {
    prometheus::ClientMetric metric;
    metric.label.push_back({"job", job.job});
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(figure(job));
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::string metrics_text(const std::vector<JobFigures>& jobs, std::uint64_t refused) {
  MetricFamily refusals;
  refusals.name = "tesser_hub_requests_refused_total";
  refusals.help = "Requests that named no job of this hub, or not its nonce";
  refusals.type = MetricType::Counter;
  refusals.metric.emplace_back();
  refusals.metric.back().counter.value = static_cast<double>(refused);
  return prometheus::TextSerializer().Serialize({
      refusals,
      family(jobs, "tesser_hub_workers", "Workers connected", MetricType::Gauge,
             [](const JobFigures& job) { return job.workers; }),
      family(jobs, "tesser_hub_memory_bytes", "Memory for weights, optimizer state and arriving gradients",
             MetricType::Gauge, [](const JobFigures& job) { return job.memory_bytes; }),
      family(jobs, "tesser_hub_chunk_updates_total", "Updates of chunks", MetricType::Counter,
             [](const JobFigures& job) { return job.updates; }),
      family(jobs, "tesser_hub_gradient_bytes_total", "Bytes of gradients taken in", MetricType::Counter,
             [](const JobFigures& job) { return job.gradient_bytes; }),
      family(jobs, "tesser_hub_weight_bytes_total", "Bytes of weights given to workers", MetricType::Counter,
             [](const JobFigures& job) { return job.weight_bytes; }),
      family(jobs, "tesser_hub_rack_bytes_total", "Bytes of sums and weights sent to other racks", MetricType::Counter,
             [](const JobFigures& job) { return job.rack_bytes; }),
      family(jobs, "tesser_hub_job_requests_refused_total", "Requests and connections refused", MetricType::Counter,
             [](const JobFigures& job) { return job.refused; }),
  });
}

}  // namespace tesser::hub
