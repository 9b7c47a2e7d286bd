// `tesser login`: which server this user's commands speak to, and with which token.
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/platform_login.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser login http://127.0.0.1:8470                 asks for the token, without showing it
  tesser login http://127.0.0.1:8470 < token-file    reads it from a file
  tesser login https://jobs.example.org:8470 --ca-file tls.pem

The token is kept in ~/.config/tesser/login.json, for this user alone. TESSER_SERVER, TESSER_TOKEN and TESSER_CA_FILE go before it.)";

struct Options {
  std::string url;
  std::filesystem::path authorities;
  bool json = false;
};

// A line of standard input; typed without being shown.
std::string read_token() {
  const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
  termios shown{};
  if (is_terminal && ::tcgetattr(STDIN_FILENO, &shown) == 0) {
    termios hidden = shown;
    hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &hidden);
    print_message("Token: ");
  }
  std::string token;
  std::getline(std::cin, token);
  if (is_terminal) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &shown);
    print_message("\n");
  }
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) {
    token.pop_back();
  }
  return token;
}

Result<int> log_in(const Options& options) {
  const char* given = std::getenv("TESSER_TOKEN");
  Login login{options.url, given != nullptr ? given : read_token(), ""};
  if (login.token.empty()) {
    return invalid_input("no token was given: its line is read from standard input, or TESSER_TOKEN holds it");
  }
  if (!options.authorities.empty()) {  // commands run anywhere
    std::error_code error;
    login.authorities = std::filesystem::canonical(options.authorities, error);
    if (error) {
      return not_found(fmt::format("{}: {}", options.authorities.string(), error.message()));
    }
  }
  TESSER_ASSIGN_OR_RETURN(const auto client, platform::Client::open({login.url, login.token, login.authorities}));
  // A request that needs the token: what is kept is known to work.
  TESSER_ASSIGN_OR_RETURN(const std::string me, client->get("/v1/me"));
  while (login.url.ends_with('/')) {
    login.url.pop_back();
  }
  TESSER_ASSIGN_OR_RETURN(const std::string path, write_login(login));
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(me));
  const std::string user = JsonReader(json, "the answer").string("user");
  if (options.json) {
    print_output("{}\n", JsonMembers().add("server", login.url).add("file", path).add("user", user).object());
  } else {
    print_output("logged in at {} as {}; kept in {}\n", login.url, user, path);
  }
  return 0;
}

}  // namespace

void add_login(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("login", "Name the platform's server, and keep a token for it");
  const auto options = std::make_shared<Options>();
  command->add_option("server", options->url, "http://HOST:PORT")->required();
  command->add_option("--ca-file", options->authorities, "Whom to trust to be the server, with https://: a PEM file");
  command->add_flag("--json", options->json, "Write JSON");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return log_in(*options); }; });
}

}  // namespace tesser::cli
