// What UCX finds on this machine: contexts restricted to verbs, adapters, and why there is none.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "transport/ucx_context.h"

namespace tesser::transport {
namespace {

constexpr const char* kAdaptersOfKernel = "/sys/class/infiniband";
constexpr std::uint64_t kFeatures = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
constexpr std::string_view kFamilies[] = {"rc", "ud", "dc"};

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> entries;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma != 0) {
      entries.push_back(list.substr(0, comma));
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return entries;
}

// "rc", "rc_verbs", "rc_x": of the family rc.
bool is_of_family(std::string_view transport, std::string_view family) {
  return transport == family || (transport.starts_with(family) && transport[family.size()] == '_');
}

std::string_view requested_transports(const UcxOptions& options) {
  if (!options.transports.empty()) {
    return options.transports;
  }
  const char* variable = std::getenv("UCX_TLS");
  return variable == nullptr || *variable == '\0' ? "ib" : variable;
}

// "rc_verbs/mlx5_0:1" for each resource of a context; 1.13 tells them in no other way.
std::vector<std::string> resources_of(ucp_context_h context) {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) {
    return {};
  }
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  // "#            resource  4 :  md 1  dev 2  flags -- rc_verbs/mlx5_0:1"
  const std::string info(text, bytes);
  std::free(text);
  std::vector<std::string> resources;
  for (std::size_t at = info.find("resource"); at != std::string::npos; at = info.find("resource", at + 1)) {
    const std::size_t end = info.find('\n', at);
    const std::size_t begin = info.rfind(' ', end) + 1;
    if (begin > at && info.find('/', begin) < end) {
      resources.push_back(info.substr(begin, end - begin));
    }
  }
  return resources;
}

bool kernel_shows_adapters() {
  std::error_code error;
  return std::filesystem::is_directory(kAdaptersOfKernel, error) &&
         !std::filesystem::is_empty(kAdaptersOfKernel, error);
}

std::string find_why_no_rdma(const UcxOptions& options) {
  if (!kernel_shows_adapters()) {
    return fmt::format("no adapter for RDMA: the kernel shows none in {}", kAdaptersOfKernel);
  }
  const auto context = UcxContext::open(options);
  if (!context) {
    return context.error().message;
  }
  for (const std::string& resource : resources_of(context->get())) {
    for (const std::string_view family : kFamilies) {
      if (is_of_family(std::string_view(resource).substr(0, resource.find('/')), family)) {
        return "";
      }
    }
  }
  return fmt::format("UCX cannot use the adapters in {} with transports '{}' and devices '{}'; ucx_info -d lists them",
                     kAdaptersOfKernel, verbs_transports(options), options.devices);
}

}  // namespace

std::string verbs_transports(const UcxOptions& options) {
  std::string_view requested = requested_transports(options);
  const bool all_but = requested.starts_with('^');
  if (all_but) {
    requested.remove_prefix(1);
  }
  const std::vector<std::string_view> entries = split(requested);
  std::string transports;
  const auto add = [&](std::string_view transport) {
    transports += transports.empty() ? "" : ",";
    transports += transport;
  };
  for (const std::string_view family : kFamilies) {
    bool named_whole = false;
    for (const std::string_view entry : entries) {
      const bool whole = entry == family || entry == "ib" || entry == "all";
      named_whole |= whole;
      if (!all_but && !whole && is_of_family(entry, family)) {
        add(entry);
      }
    }
    if (named_whole != all_but) {
      add(family);
    }
  }
  // UCX warns of a family that no adapter has, unless it is asked for all of them at once.
  return transports == "rc,ud,dc" ? "ib" : transports;
}

Outcome<UcxContext> UcxContext::open(const UcxOptions& options) {
  const std::string transports = verbs_transports(options);
  if (transports.empty()) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("there is no RDMA transport among '{}'; name rc, ud or dc, in the option or in UCX_TLS",
                               requested_transports(options)));
  }
  ucp_config_t* config = nullptr;
  ucp_context_h context = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status == UCS_OK) {
    status = ucp_config_modify(config, "TLS", transports.c_str());
  }
  if (status == UCS_OK && !options.devices.empty()) {
    status = ucp_config_modify(config, "NET_DEVICES", options.devices.c_str());
  }
  if (status == UCS_OK) {
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = kFeatures;
    status = ucp_init(&parameters, config, &context);
  }
  if (config != nullptr) {
    ucp_config_release(config);
  }
  if (status != UCS_OK) {
    return failure(
        FailureKind::kUnavailable, "",
        fmt::format("UCX does not start ({}) with transports '{}', devices '{}'; ucx_info -d lists what this machine "
                    "has",
                    ucs_status_string(status), transports, options.devices));
  }
  return UcxContext(context);
}

UcxContext::UcxContext(UcxContext&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}

UcxContext& UcxContext::operator=(UcxContext&& other) noexcept {
  std::swap(context_, other.context_);
  return *this;
}

UcxContext::~UcxContext() {
  if (context_ != nullptr) {
    ucp_cleanup(context_);
  }
}

std::string why_no_rdma(const UcxOptions& options) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::string> answers;
  const std::lock_guard lock(mutex);
  const auto [answer, is_new] = answers.try_emplace({options.transports, options.devices});
  if (is_new) {
    answer->second = find_why_no_rdma(options);
  }
  return answer->second;
}

std::string ucx_description() { return fmt::format("UCX {}", ucp_get_version_string()); }

std::vector<std::string> ucx_adapters(const UcxOptions& options) {
  if (!kernel_shows_adapters()) {
    return {};
  }
  const auto context = UcxContext::open(options);
  return context ? resources_of(context->get()) : std::vector<std::string>();
}

}  // namespace tesser::transport
