// `tesser transport`: what connects this machine with others, and how fast it is.

#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "transport/device.h"
#include "transport/measure.h"
#include "transport/measured_processes.h"

namespace tesser::cli {
namespace {

using transport::Channel;
using transport::Device;
using transport::DeviceOptions;
using transport::MeasuredTransfer;
using transport::Measurement;

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
  bool tcp = false;
  bool json = false;
  bool exchange = false;
  std::vector<std::string> systems{"static", "dynamic", "memcpy"};
  std::vector<std::uint64_t> sizes;
  int milliseconds = 200;
  int spin = 50;
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
  options.paths = arguments.tcp       ? transport::Paths::kTcpOnly
                  : arguments.network ? transport::Paths::kNetworkOnly
                                      : transport::Paths::kAny;
  options.ucx_transports = arguments.transports;
  options.ucx_devices = arguments.devices;
  options.spin = std::chrono::microseconds(arguments.spin);
  return options;
}

std::string machine_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return fmt::format("{} (process {})", name, ::getpid());
}

void print_path(const Channel& channel) {
  print_output("{}: {} ({})\n", channel.peer(), channel.path().name, channel.path().reason);
}

Result<int> run_info(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          or_error(Device::open(device_options(arguments, machine_name()))));
  const transport::DeviceReport report = device->report();
  std::string adapters;
  for (const std::string& adapter : report.adapters) {
    adapters += (adapters.empty() ? "" : ", ") + adapter;
  }
  print_output("same machine         shared memory\n");
  print_output("other machines       {}\n",
               report.why_no_rdma.empty() ? std::string("RDMA through UCX where the peer has an adapter too, else TCP")
                                          : fmt::format("TCP ({})", report.why_no_rdma));
  print_output("UCX                  {}\n", report.ucx);
  print_output("adapters for RDMA    {}\n", adapters.empty() ? "none" : adapters);
  print_output("locked memory limit  {} (an adapter for RDMA must lock what it registers)\n",
               report.locked_memory_limit);
  print_output("huge pages           transparent: {}; reserved: {}\n",
               report.shared_huge_pages.empty() ? "not in this kernel" : report.shared_huge_pages,
               report.reserved_huge_pages);
  print_output("address              {}\n", report.address);
  for (const std::string& peer : arguments.peers) {
    TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                            or_error(device->connect(peer, transport::in(kLookTime))));
    print_path(*channel);
  }
  return 0;
}

void print_table(const std::vector<Measurement>& measurements) {
  print_output("{:18} {:>12} {:>14} {:>14} {:>10} {:>8}\n", "system", "bytes", "median us", "lowest us", "GB/s",
               "rounds");
  for (const Measurement& row : measurements) {
    print_output("{:18} {:12} {:14.2f} {:14.2f} {:10.3f} {:8}\n", row.system, row.bytes, row.us_median, row.us_lowest,
                 row.gb_s(), row.rounds);
  }
}

// What the report calls a transfer over this channel.
std::string system_name(const Channel& channel, MeasuredTransfer transfer) {
  const bool is_static = transfer == MeasuredTransfer::kStatic;
  if (channel.path().path == transport::Path::kTcp) {
    return is_static ? "tesser-tcp" : "tesser-tcp-dynamic";
  }
  if (channel.path().path == transport::Path::kUcx) {
    return is_static ? "tesser-rdma" : "tesser-rdma-dynamic";
  }
  return is_static ? "tesser-static" : "tesser-dynamic";
}

// One side of all measurements; the first side prints them. The systems take turns size by size.
Result<int> bench_side(Device& device, const std::shared_ptr<Channel>& channel, bool first,
                       const Arguments& arguments) {
  const transport::RoundOptions options{.time = std::chrono::milliseconds(arguments.milliseconds)};
  if (first && !arguments.json) {
    print_path(*channel);
  }
  // An exchange is of all sizes at once.
  std::vector<std::vector<std::uint64_t>> sets;
  if (arguments.exchange) {
    sets.push_back(arguments.sizes);
  } else {
    for (const std::uint64_t bytes : arguments.sizes) {
      sets.push_back({bytes});
    }
  }
  std::vector<Measurement> measurements;
  for (const std::vector<std::uint64_t>& set : sets) {
    for (const std::string& system : arguments.systems) {
      if (system == "memcpy") {
        if (first && !arguments.exchange) {
          TESSER_ASSIGN_OR_RETURN(Measurement row, or_error(transport::measure_copy(set.front(), options)));
          measurements.push_back(std::move(row));
        }
        continue;
      }
      const auto transfer = system == "static" ? MeasuredTransfer::kStatic : MeasuredTransfer::kDynamic;
      const std::string name = system_name(*channel, transfer);
      TESSER_ASSIGN_OR_RETURN(
          Measurement row,
          or_error(arguments.exchange
                       ? transport::measure_exchange(device, channel, first, transfer, name, set, options)
                       : transport::measure_transfer(device, channel, first, transfer, name, set.front(), options)));
      measurements.push_back(std::move(row));
    }
  }
  if (first && arguments.json) {
    for (const Measurement& row : measurements) {
      print_output("{}\n", transport::json_line(row));
    }
  } else if (first) {
    print_table(measurements);
  }
  return 0;
}

// Of a process that ends here: what it has printed counts.
int exit_code_of(Result<int> outcome, std::string_view process) {
  if (const Result<void> written = flush_output(); outcome && !written) {
    outcome = tl::unexpected<Error>(written.error());
  }
  if (!outcome) {
    print_message("{}: {}\n", process, outcome.error().message);
  }
  return outcome ? *outcome : exit_code(outcome.error());
}

Result<int> lead_here(const Arguments& arguments, const transport::TellAddress& tell) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          or_error(Device::open(device_options(arguments, "first process"))));
  tell(device->address());
  TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                          or_error(device->accept(transport::in(kConnectTime))));
  return bench_side(*device, channel, true, arguments);
}

Result<int> follow_here(const Arguments& arguments, const std::string& address) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          or_error(Device::open(device_options(arguments, "second process"))));
  TESSER_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel,
                          or_error(device->connect(address, transport::in(kConnectTime))));
  return bench_side(*device, channel, false, arguments);
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
    return transport::run_two_processes(
        [&](const transport::TellAddress& tell) { return exit_code_of(lead_here(arguments, tell), "first process"); },
        [&](const std::string& address) { return exit_code_of(follow_here(arguments, address), "second process"); });
  }
  DeviceOptions options = device_options(arguments, machine_name());
  if (!arguments.listen.empty()) {
    options.listen = arguments.listen;
    TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, or_error(Device::open(options)));
    print_message("listening; on the other machine: tesser transport bench --peers {}\n",
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
  command.add_option("--transports", arguments.transports, "UCX transports for RDMA, as UCX_TLS: rc, ud");
  command.add_option("--devices", arguments.devices, "Adapters for RDMA, as UCX_NET_DEVICES: mlx5_0:1");
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
  bench->add_flag("--network", arguments->network, "Use RDMA or TCP even on one machine");
  bench->add_flag("--tcp", arguments->tcp, "Use TCP even on one machine or where there is an adapter for RDMA");
  bench->add_flag("--json", arguments->json, "Write one JSON object a line");
  bench->add_option("--systems", arguments->systems, "static, dynamic, memcpy; the same on both sides")
      ->delimiter(',')
      ->check(CLI::IsMember({"static", "dynamic", "memcpy"}));
  bench->add_flag("--exchange", arguments->exchange,
                  "Both sides send tensors of all --sizes to each other, all at once");
  bench->add_option("--sizes", arguments->sizes, "Bytes of the tensors; the same on both sides")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{8}, std::uint64_t{1} << 40));
  bench->add_option("--spin", arguments->spin, "Microseconds a side waits awake before it sleeps (50)")
      ->check(CLI::Range(0, 1'000'000));
  bench->add_option("--time", arguments->milliseconds, "Milliseconds for each size")->check(CLI::Range(1, 100'000));
  bench->callback([arguments, &action] { action = [arguments] { return run_bench(*arguments); }; });
}

}  // namespace tesser::cli
