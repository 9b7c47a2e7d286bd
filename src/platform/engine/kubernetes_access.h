// How Kubernetes' API server is reached, and as whom: from a kubeconfig file, or as the service account of a pod.
//
// Values; any thread. Errors name the file and what is missing in it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "platform/web/https_client.h"

namespace tesser::platform {

struct KubernetesAccess {
  std::string server;  // "https://HOST:PORT", without a path's last "/"
  HttpsOptions https;
  std::string token;                 // of requests; empty: a client certificate says who we are, or nobody does
  std::filesystem::path token_file;  // read before each request where given: such tokens are replaced every hour
};

// Of the file's current context. Tokens, token files, client certificates (in the file or beside it), authorities and
// insecure-skip-tls-verify are understood; users whose word comes from a program (exec, auth-provider) are refused.
Result<KubernetesAccess> read_kubeconfig(const std::filesystem::path& file);
Result<KubernetesAccess> parse_kubeconfig(const std::string& text, const std::filesystem::path& file);

// What Kubernetes puts into every pod that has a service account. kNotFound outside of pods.
Result<KubernetesAccess> service_account_access();

// The bytes that Base64 (RFC 4648, with padding) stands for; white space is passed over.
Result<std::string> base64_decoded(std::string_view text);

}  // namespace tesser::platform
