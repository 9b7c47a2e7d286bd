// Takes the values that are marked as secret out of a manifest's text. Internal to this folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "platform/job/manifest_fields.h"
#include "platform/job/secrets.h"
#include "platform/job/yaml_value.h"

namespace tesser::platform {

class SecretTaker {
 public:
  SecretTaker(std::string_view text, ManifestProblem& problem) : text_(text), problem_(problem) {}

  // The name of a secret whose value stands here: its own where it is "${NAME}", or else one made of `likely`.
  std::string take(const YamlValue& value, const std::string& likely);
  // Text that may refer to secrets.
  void refer(const YamlValue& value);

  // After all of the manifest has been read.
  std::string text_without_secrets();
  const Secrets& secrets() const { return secrets_; }
  const std::map<std::string, int>& missing() const { return missing_; }

 private:
  struct Taken {
    std::string name;
    std::size_t length = 0;  // in the text, with quotes
    int line = 0;
  };

  std::string free_name(const std::string& likely) const;

  std::string_view text_;
  ManifestProblem& problem_;
  std::map<std::size_t, Taken> taken_;  // by their place in the text
  Secrets secrets_;
  std::map<std::string, int> missing_;
};

}  // namespace tesser::platform
