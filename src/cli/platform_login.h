// Which server the platform's commands speak to, and what they say of it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "platform/client/client.h"

namespace tesser::cli {

struct Login {
  std::string url;
  std::string token;
  std::string authorities;  // PEM file of whom to trust to be the server, with https://; empty: the system's
};

// TESSER_SERVER, TESSER_TOKEN and TESSER_CA_FILE, and for what they leave out the file of `tesser login`. kNotFound
// when no server is named anywhere. A token that is kept is given to its own server alone.
Result<Login> read_login();
// Keeps it in ~/.config/tesser/login.json (or below XDG_CONFIG_HOME), mode 0600; returns the path.
Result<std::string> write_login(const Login& login);

// A client of the server that is logged in to.
Result<std::unique_ptr<platform::Client>> open_client();

// For an unknown job, the error with the nearest id that the server has.
Error with_nearest_job(Error error, platform::Client& client, const std::string& id);

}  // namespace tesser::cli
