#include "hub/topology.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

namespace tesser::hub {
namespace {

constexpr int kMostPorts = 8;

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

int number_above(hwloc_topology_t topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  const hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, object);
  return above == nullptr ? 0 : static_cast<int>(above->logical_index);
}

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

// The numbers of "0-3,8"; nothing where it is no such list.
bool read_list(std::string_view list, std::set<int>& numbers) {
  while (true) {
    const std::string_view part = list.substr(0, list.find(','));
    const std::size_t dash = part.find('-');
    int first = 0;
    int last = 0;
    if (!read_number(part.substr(0, dash), first) ||
        !(dash == std::string_view::npos ? read_number(part, last) : read_number(part.substr(dash + 1), last)) ||
        last < first || last - first > 4096) {
      return false;
    }
    for (int number = first; number <= last; ++number) {
      numbers.insert(number);
    }
    if (part.size() == list.size()) {
      return true;
    }
    list.remove_prefix(part.size() + 1);
  }
}

Result<Topology> load(bool with_devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return failed("the machine's processors cannot be found out (hwloc)");
  }
  Topology topology(raw, hwloc_topology_destroy);
  if (with_devices) {
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  }
  if (hwloc_topology_load(raw) != 0) {
    return failed("the machine's processors cannot be found out (hwloc)");
  }
  return topology;
}

// hwloc has "Port2State" and the like for each port of an adapter.
std::vector<int> ports_of(hwloc_obj_t device) {
  std::vector<int> ports;
  for (int port = 1; port <= kMostPorts; ++port) {
    if (hwloc_obj_get_info_by_name(device, fmt::format("Port{}State", port).c_str()) != nullptr) {
      ports.push_back(port);
    }
  }
  return ports.empty() ? std::vector<int>{1} : ports;
}

}  // namespace

Result<std::vector<Adapter>> adapters() {
  TESSER_ASSIGN_OR_RETURN(const Topology topology, load(true));
  std::vector<Adapter> found;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology.get(), device)) != nullptr;) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS) {
      continue;
    }
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology.get(), device);
    int socket = -1;
    for (hwloc_obj_t above = place; above != nullptr; above = above->parent) {
      if (above->type == HWLOC_OBJ_PACKAGE) {
        socket = static_cast<int>(above->logical_index);
      }
    }
    found.push_back({device->name, ports_of(device), socket});
  }
  return found;
}

std::string adapters_near(const std::vector<Adapter>& adapters, const std::vector<Processor>& processors) {
  std::string names;
  bool is_all = true;
  for (const Adapter& adapter : adapters) {
    const bool is_near =
        adapter.socket < 0 || std::any_of(processors.begin(), processors.end(),
                                          [&](const Processor& each) { return each.socket == adapter.socket; });
    is_all = is_all && is_near;
    for (const int port : adapter.ports) {
      names += is_near ? fmt::format("{}{}:{}", names.empty() ? "" : ",", adapter.name, port) : "";
    }
  }
  return is_all ? "" : names;
}

Result<std::vector<Processor>> processors() {
  TESSER_ASSIGN_OR_RETURN(const Topology topology, load(false));
  const hwloc_topology_t raw = topology.get();
  std::vector<Processor> found;
  for (hwloc_obj_t unit = nullptr; (unit = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, unit)) != nullptr;) {
    found.push_back({static_cast<int>(unit->os_index), number_above(raw, unit, HWLOC_OBJ_CORE),
                     number_above(raw, unit, HWLOC_OBJ_PACKAGE)});
  }
  // How many processors of the same core come before each.
  std::vector<int> turns;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < found.size(); ++i) {
    turns.push_back(static_cast<int>(std::count_if(
        found.begin(), found.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const Processor& other) { return other.core == found[i].core && other.socket == found[i].socket; })));
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return std::tie(turns[left], found[left].socket, found[left].core) <
           std::tie(turns[right], found[right].socket, found[right].core);
  });
  std::vector<Processor> sorted;
  for (const std::size_t index : order) {
    sorted.push_back(found[index]);
  }
  return sorted;
}

Result<std::vector<Processor>> choose_processors(const std::string& list) {
  TESSER_ASSIGN_OR_RETURN(const std::vector<Processor> all, processors());
  std::vector<Processor> chosen;
  if (list.empty()) {
    std::set<std::pair<int, int>> cores;
    for (const Processor& each : all) {
      if (cores.emplace(each.socket, each.core).second) {
        chosen.push_back(each);
      }
    }
    return chosen;
  }
  std::set<int> numbers;
  if (!read_list(list, numbers)) {
    return invalid_input(fmt::format("'{}' is no list of processors; write one like 0-3,8", list));
  }
  for (const Processor& each : all) {
    if (numbers.erase(each.number) != 0) {
      chosen.push_back(each);
    }
  }
  if (!numbers.empty()) {
    return invalid_input(fmt::format("there is no processor {} that this process may use", *numbers.begin()));
  }
  return chosen;
}

bool has_processors_for(std::int64_t threads) {
  return static_cast<std::int64_t>(std::thread::hardware_concurrency()) >= threads;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

void pin_this_thread(int processor) {
  if (processor < 0) {
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(processor), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace tesser::hub
