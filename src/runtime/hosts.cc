#include "runtime/hosts.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "control/control_http.h"

namespace tesser::runtime {
namespace {

constexpr int kMostPlaces = 1 << 16;

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "[::1]"; }

// For a shell: one word, whatever it holds.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

Result<void> check_name(const std::string& where, const std::string& host) {
  if (host.empty() || host.front() == '-' || host.find_first_of(" \t'\"\\$;&|") != std::string::npos) {
    return invalid_input(fmt::format("{}: '{}' is no name of a host", where, host));
  }
  return {};
}

Result<std::vector<std::string>> read_file_of_hosts(const std::string& path) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<std::string> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    std::string places_text;
    std::string rest;
    if (!(words >> host)) {
      continue;
    }
    const std::string where = fmt::format("{}:{}", path, number);
    TESSER_RETURN_IF_ERROR(check_name(where, host));
    int places = 1;
    if (words >> places_text) {
      const char* const end = places_text.data() + places_text.size();
      const auto parsed = std::from_chars(places_text.data(), end, places);
      if (parsed.ec != std::errc() || parsed.ptr != end || places < 1 || places > kMostPlaces || words >> rest) {
        return invalid_input(fmt::format("{}: expected 'HOST [PLACES]', as in 'node7 2', and found '{}'", where, line));
      }
    }
    hosts.insert(hosts.end(), static_cast<std::size_t>(places), host);
  }
  if (hosts.empty()) {
    return invalid_input(fmt::format("{}: names no host; expected a line 'HOST [PLACES]' for each", path));
  }
  return hosts;
}

}  // namespace

Result<std::vector<std::string>> read_hosts(const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_regular_file(text, error)) {
    return read_file_of_hosts(text);
  }
  std::vector<std::string> hosts;
  std::istringstream names(text);
  for (std::string host; std::getline(names, host, ',');) {
    TESSER_RETURN_IF_ERROR(check_name("--hosts " + text, host));
    hosts.push_back(host);
  }
  if (hosts.empty()) {
    return invalid_input("--hosts: names no host");
  }
  return hosts;
}

Result<std::vector<std::string>> addresses_towards(const std::vector<std::string>& hosts) {
  std::map<std::string, std::string> known;
  std::string reachable;  // from other machines
  for (const std::string& host : std::set<std::string>(hosts.begin(), hosts.end())) {
    const std::string machine = host.substr(host.find('@') + 1);  // ssh takes USER@HOST
    TESSER_ASSIGN_OR_RETURN(const auto client, control::ControlClient::open(fmt::format("http://{}:1", machine), "-",
                                                                            std::chrono::milliseconds(1)));
    const Result<std::string> own = client->own_host();
    if (!own) {
      return invalid_input(
          fmt::format("host {}: this machine does not find it by that name, so say with --listen ADDRESS:PORT by which "
                      "address of this machine its workers reach the coordinator",
                      host));
    }
    known[host] = *own;
    if (!is_loopback(*own)) {
      reachable = *own;
    }
  }
  std::vector<std::string> addresses;
  for (const std::string& host : hosts) {
    addresses.push_back(is_loopback(known[host]) && !reachable.empty() ? reachable : known[host]);
  }
  return addresses;
}

ProcessOptions process_of(const RemoteWorker& worker) {
  ProcessOptions process;
  process.command = worker.launcher;
  process.command.push_back(worker.host);
  process.command.emplace_back("sh");
  const std::string program = quoted(worker.program);
  // In braces, so that the shell has read all of it before the rest of the input is waited for.
  process.input = fmt::format(
      "{{ command -v {0} >/dev/null || {{ echo there is no {0} here, and --remote-tesser says where else it is >&2; "
      "exit 127; }}\n"
      "export {1}={2}\n"
      "exec 3<&0\n"
      "{0} worker --coordinator {3} --worker {4} </dev/null 3<&- &\n"
      "worker=$!\n"
      "{{ cat <&3; kill -KILL $worker; }} >/dev/null 2>&1 &\n"
      "watch=$!\n"
      "wait $worker\n"
      "code=$?\n"
      "kill $watch 2>/dev/null\n"
      "exit $code; }}\n",
      program, control::kRunTokenVariable, quoted(worker.token), quoted(worker.url), worker.worker);
  process.relays = true;
  return process;
}

}  // namespace tesser::runtime
