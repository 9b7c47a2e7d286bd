// `tesser transport`: what connects this machine with others, and how fast it is.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "transport/device.h"
#include "transport/measure.h"

namespace tesser::cli {
namespace {

using transport::Channel;
using transport::Device;
using transport::DeviceOptions;
using transport::Measurement;
using transport::MeasureOptions;

constexpr const char* kExamples = R"(
Examples:
  tesser transport info                                 this machine
  tesser transport bench                                two processes on this machine
  tesser transport bench --listen 0.0.0.0:7000          on one machine, and on the other:
  tesser transport bench --peers host1:7000
  tesser transport info --peers host1:7000              the path to it and why)";

constexpr std::chrono::seconds kConnectTime{10};  // for a peer that is just being started
constexpr std::chrono::seconds kLookTime{2};
constexpr std::chrono::hours kListenTime{24};

struct Arguments {
  std::string listen;
  std::vector<std::string> peers;
  std::string transports;
  std::string devices;
  bool network = false;
  bool json = false;
  bool dynamic = false;
  std::vector<std::uint64_t> sizes;
  int milliseconds = 200;
};

template <typename T>
Result<T> or_error(transport::Outcome<T> outcome) {
  if (!outcome) {
    return tl::unexpected<Error>(transport::to_error(outcome.error()));
  }
  return std::move(*outcome);
}

DeviceOptions device_options(const Arguments& arguments, std::string name) {
  DeviceOptions options;
  options.name = std::move(name);
  options.paths = arguments.network ? transport::Paths::kUcxOnly : transport::Paths::kAny;
  options.ucx_transports = arguments.transports;
  options.ucx_devices = arguments.devices;
  return options;
}

std::string machine_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return fmt::format("{} (process {})", name, ::getpid());
}

void print_path(const Channel& channel) {
  fmt::print("{}: {} ({})\n", channel.peer(), channel.path().name, channel.path().reason);
}

Result<int> run_info(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          or_error(Device::open(device_options(arguments, machine_name()))));
  const transport::DeviceReport report = device->report();
  std::string adapters;
  for (const std::string& adapter : report.adapters) {
    adapters += (adapters.empty() ? "" : ", ") + adapter;
  }
  fmt::print("same machine         shared memory\n");
  fmt::print("other machines       {}\n", report.ucx);
  fmt::print("adapters             {}\n", adapters.empty() ? "none" : adapters);
  fmt::print("locked memory limit  {} (an adapter for RDMA must lock what it registers)\n", report.locked_memory_limit);
  fmt::print("huge pages           transparent: {}; reserved: {}\n",
             report.shared_huge_pages.empty() ? "not in this kernel" : report.shared_huge_pages,
             report.reserved_huge_pages);
  fmt::print("address              {}\n", report.address);
  for (const std::string& peer : arguments.peers) {
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                            or_error(device->connect(peer, transport::in(kLookTime))));
    print_path(*channel);
  }
  return 0;
}

void print_table(const std::vector<Measurement>& measurements) {
  fmt::print("{:16} {:>12} {:>14} {:>14} {:>10} {:>8}\n", "system", "bytes", "median us", "lowest us", "GB/s",
             "rounds");
  for (const Measurement& row : measurements) {
    fmt::print("{:16} {:12} {:14.2f} {:14.2f} {:10.3f} {:8}\n", row.system, row.bytes, row.us_median, row.us_lowest,
               row.gb_s(), row.rounds);
  }
}

void print_json(const std::vector<Measurement>& measurements) {
  for (const Measurement& row : measurements) {
    fmt::print("{{\"system\":\"{}\",\"bytes\":{},\"us_median\":{:.4f},\"gb_s\":{:.4f}}}\n", row.system, row.bytes,
               row.us_median, row.gb_s());
  }
}

// One side of all measurements; the first side prints them.
Result<int> bench_side(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                       const Arguments& arguments) {
  const MeasureOptions options{arguments.sizes, std::chrono::milliseconds(arguments.milliseconds)};
  if (first && !arguments.json) {
    print_path(*channel);
  }
  const bool network = channel->path().path == transport::Path::kUcx;
  std::vector<Measurement> measurements;
  for (const auto transfer : {transport::MeasuredTransfer::kStatic, transport::MeasuredTransfer::kDynamic}) {
    const bool is_static = transfer == transport::MeasuredTransfer::kStatic;
    const std::string system = fmt::format("tesser-{}{}", network ? "tcp" : "",
                                           is_static ? (network ? "" : "static") : (network ? "-dynamic" : "dynamic"));
    TESSER_ASSIGN_OR_RETURN(const std::vector<Measurement> rows,
                            or_error(transport::measure_transfers(device, channel, first, transfer, system, options)));
    measurements.insert(measurements.end(), rows.begin(), rows.end());
  }
  if (first) {
    const std::vector<Measurement> limit = transport::measure_memcpy(options);
    measurements.insert(measurements.end(), limit.begin(), limit.end());
    arguments.json ? print_json(measurements) : print_table(measurements);
  }
  return 0;
}

// A child of this process is the second side.
Result<int> bench_here(const Arguments& arguments) {
  int addresses[2];
  if (::pipe(addresses) != 0) {
    return failed("no pipe can be made; raise ulimit -n");
  }
  const int child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char address[256] = "";
    std::size_t size = 0;
    while (size < sizeof(address) - 1 && ::read(addresses[0], address + size, 1) == 1 && address[size] != '\n') {
      ++size;
    }
    auto device = or_error(Device::open(device_options(arguments, "second process")));
    auto channel = device ? or_error((*device)->connect(std::string(address, size), transport::in(kConnectTime)))
                          : tl::unexpected<Error>(device.error());
    auto outcome = channel ? bench_side(**device, *channel, false, arguments) : tl::unexpected<Error>(channel.error());
    if (!outcome) {
      fmt::print(stderr, "second process: {}\n", outcome.error().message);
    }
    ::_exit(outcome ? 0 : 1);
  }
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          or_error(Device::open(device_options(arguments, "first process"))));
  const std::string address = device->address() + "\n";
  if (::write(addresses[1], address.data(), address.size()) != static_cast<ssize_t>(address.size())) {
    return failed("the second process is gone");
  }
  TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                          or_error(device->accept(transport::in(kConnectTime))));
  TESSER_ASSIGN_OR_RETURN(const int code, bench_side(*device, channel, true, arguments));
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? code : 1;
}

Result<int> run_bench(const Arguments& given) {
  Arguments arguments = given;
  if (arguments.sizes.empty()) {
    arguments.sizes = transport::default_sizes();
  }
  if (!arguments.listen.empty() && !arguments.peers.empty()) {
    return invalid_input("give --listen on one machine and --peers on the other");
  }
  if (arguments.listen.empty() && arguments.peers.empty()) {
    return bench_here(arguments);
  }
  DeviceOptions options = device_options(arguments, machine_name());
  if (!arguments.listen.empty()) {
    options.listen = arguments.listen;
    TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, or_error(Device::open(options)));
    fmt::print(stderr, "listening; on the other machine: tesser transport bench --peers {}\n",
               device->address().substr(0, device->address().find('/')));
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                            or_error(device->accept(transport::in(kListenTime))));
    return bench_side(*device, channel, false, arguments);
  }
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, or_error(Device::open(options)));
  for (const std::string& peer : arguments.peers) {
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                            or_error(device->connect(peer, transport::in(kConnectTime))));
    TESSER_RETURN_IF_ERROR(bench_side(*device, channel, true, arguments));
  }
  return 0;
}

void add_device_options(CLI::App& command, Arguments& arguments) {
  command.add_option("--peers", arguments.peers, "Devices to connect to: HOST:PORT")->delimiter(',');
  command.add_option("--transports", arguments.transports, "UCX transports, as UCX_TLS: tcp, rc, ud");
  command.add_option("--devices", arguments.devices, "UCX adapters, as UCX_NET_DEVICES: eth0, mlx5_0:1");
}

}  // namespace

void add_transport(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("transport", "What connects this machine with others, and how fast it is");
  command->require_subcommand(1);
  command->footer(kExamples);
  const auto arguments = std::make_shared<Arguments>();

  CLI::App* info =
      command->add_subcommand("info", "Print back ends, adapters, limits, and the path to each peer and why");
  add_device_options(*info, *arguments);
  info->callback([arguments, &action] { action = [arguments] { return run_info(*arguments); }; });

  CLI::App* bench = command->add_subcommand("bench", "Measure transfers of 64 bytes to 256 MiB, there and back");
  add_device_options(*bench, *arguments);
  bench->add_option("--listen", arguments->listen, "Be the other side, at HOST:PORT");
  bench->add_flag("--network", arguments->network, "Use UCX even on one machine");
  bench->add_flag("--json", arguments->json, "Write one JSON object a line");
  bench->add_option("--sizes", arguments->sizes, "Bytes of the tensors; the same on both sides")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{8}, std::uint64_t{1} << 40));
  bench->add_option("--time", arguments->milliseconds, "Milliseconds for each size")->check(CLI::Range(1, 100'000));
  bench->callback([arguments, &action] { action = [arguments] { return run_bench(*arguments); }; });
}

}  // namespace tesser::cli
