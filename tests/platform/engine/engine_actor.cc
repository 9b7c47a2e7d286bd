// Deploys from a process of its own, which tests kill: engine_actor SETTINGS_FILE DEPLOYMENT_FILE
#include <cstdio>

#include "base/file.h"
#include "platform/engine/engine.h"

namespace {

tesser::Result<void> deploy(const char* settings_file, const char* deployment_file) {
  TESSER_ASSIGN_OR_RETURN(const std::string settings_text, tesser::read_file(settings_file));
  TESSER_ASSIGN_OR_RETURN(const auto settings, tesser::platform::engine_settings_from_json(settings_text));
  TESSER_ASSIGN_OR_RETURN(const std::string deployment_text, tesser::read_file(deployment_file));
  TESSER_ASSIGN_OR_RETURN(const auto deployment, tesser::platform::deployment_from_json(deployment_text));
  TESSER_ASSIGN_OR_RETURN(const auto engine, tesser::platform::make_engine(settings));
  return engine->deploy(deployment);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    return 2;
  }
  const auto outcome = deploy(words[1], words[2]);
  if (!outcome) {
    std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
  }
  return outcome ? 0 : 1;
}
