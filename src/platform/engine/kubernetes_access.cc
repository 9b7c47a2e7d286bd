#include "platform/engine/kubernetes_access.h"

#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

constexpr const char* kServer = "Kubernetes' API server";
constexpr const char* kAccountDirectory = "/var/run/secrets/kubernetes.io/serviceaccount";

// The entry named `name` of a list of {name, KIND: {...}}.
Result<YAML::Node> named(const YAML::Node& file, const std::string& list, const std::string& kind,
                         const std::string& name, const std::filesystem::path& path) {
  if (const YAML::Node entries = file[list]; entries && entries.IsSequence()) {
    for (const YAML::Node& entry : entries) {
      if (entry.IsMap() && entry["name"].as<std::string>("") == name && entry[kind] && entry[kind].IsMap()) {
        return entry[kind];
      }
    }
  }
  return invalid_input(fmt::format("{}: {} has no entry named '{}'", path.string(), list, name));
}

// KEY-data holds the text in Base64, KEY the name of a file with it.
Result<std::string> text_or_file(const YAML::Node& node, const std::string& key, const std::filesystem::path& path) {
  if (node[key + "-data"].IsDefined()) {
    const Result<std::string> text = base64_decoded(node[key + "-data"].as<std::string>());
    return text ? text : invalid_input(fmt::format("{}: {}-data: {}", path.string(), key, text.error().message));
  }
  if (node[key].IsDefined()) {
    return read_file(path.parent_path() / node[key].as<std::string>());
  }
  return "";
}

Result<KubernetesAccess> access_of(const YAML::Node& file, const std::filesystem::path& path) {
  if (!file.IsMap()) {
    return invalid_input(fmt::format("{}: is no kubeconfig file", path.string()));
  }
  const std::string current = file["current-context"].as<std::string>("");
  if (current.empty()) {
    return invalid_input(fmt::format("{}: has no current-context; kubectl config use-context sets it", path.string()));
  }
  TESSER_ASSIGN_OR_RETURN(const YAML::Node context, named(file, "contexts", "context", current, path));
  TESSER_ASSIGN_OR_RETURN(const YAML::Node cluster,
                          named(file, "clusters", "cluster", context["cluster"].as<std::string>(""), path));
  TESSER_ASSIGN_OR_RETURN(const YAML::Node user,
                          named(file, "users", "user", context["user"].as<std::string>(""), path));

  KubernetesAccess access;
  access.https.what = kServer;
  access.server = cluster["server"].as<std::string>("");
  while (access.server.ends_with('/')) {
    access.server.pop_back();
  }
  if (!access.server.starts_with("https://") && !access.server.starts_with("http://")) {
    return invalid_input(fmt::format("{}: the cluster's server '{}' is no URL", path.string(), access.server));
  }
  if (cluster["tls-server-name"].IsDefined()) {
    return invalid_input(
        fmt::format("{}: tls-server-name is not supported: name the server as its certificate does", path.string()));
  }
  access.https.verify = !cluster["insecure-skip-tls-verify"].as<bool>(false);
  TESSER_ASSIGN_OR_RETURN(access.https.authorities, text_or_file(cluster, "certificate-authority", path));

  for (const char* program : {"exec", "auth-provider"}) {
    if (user[program].IsDefined()) {
      return invalid_input(
          fmt::format("{}: users by '{}' are not supported: give a token or a client certificate, as of a service "
                      "account",
                      path.string(), program));
    }
  }
  access.token = user["token"].as<std::string>("");
  if (const std::string token_file = user["tokenFile"].as<std::string>(""); !token_file.empty()) {
    access.token_file = path.parent_path() / token_file;
  }
  TESSER_ASSIGN_OR_RETURN(access.https.client_certificate, text_or_file(user, "client-certificate", path));
  TESSER_ASSIGN_OR_RETURN(access.https.client_key, text_or_file(user, "client-key", path));
  return access;
}

}  // namespace

Result<KubernetesAccess> parse_kubeconfig(const std::string& text, const std::filesystem::path& file) {
  try {
    return access_of(YAML::Load(text), file);
  } catch (const YAML::Exception& error) {
    return invalid_input(fmt::format("{}: line {}: {}", file.string(), error.mark.line + 1, error.msg));
  }
}

Result<KubernetesAccess> read_kubeconfig(const std::filesystem::path& file) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(file, std::uint64_t{16} << 20));
  return parse_kubeconfig(text, file);
}

Result<KubernetesAccess> service_account_access() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  const std::filesystem::path directory = kAccountDirectory;
  std::error_code error;
  if (host == nullptr || port == nullptr || !std::filesystem::exists(directory / "token", error)) {
    return not_found("this is no pod with a service account; say with --kubeconfig FILE how the cluster is reached");
  }
  KubernetesAccess access;
  access.https.what = kServer;
  access.https.authorities_file = directory / "ca.crt";
  const bool is_ipv6 = std::string_view(host).find(':') != std::string_view::npos;
  access.server = is_ipv6 ? fmt::format("https://[{}]:{}", host, port) : fmt::format("https://{}:{}", host, port);
  access.token_file = directory / "token";
  return access;
}

Result<std::string> base64_decoded(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int digits = 0;
  int padding = 0;
  for (const char digit : text) {
    if (digit == '\n' || digit == '\r' || digit == ' ' || digit == '\t') {
      continue;
    }
    const std::size_t value = kDigits.find(digit);
    if (digit == '=' ? digits < 2 : value == std::string_view::npos || padding > 0) {
      return invalid_input("is not Base64");
    }
    padding += digit == '=' ? 1 : 0;
    bits = (bits << 6) | (digit == '=' ? 0 : static_cast<std::uint32_t>(value));
    if (++digits == 4) {
      for (int byte = 0; byte < 3 - padding; ++byte) {
        bytes += static_cast<char>(bits >> (16 - 8 * byte));
      }
      bits = 0;
      digits = 0;
    }
  }
  if (digits != 0 || padding > 2) {
    return invalid_input("is not Base64: it ends early");
  }
  return bytes;
}

}  // namespace tesser::platform
