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

}  // namespace

Result<std::vector<Processor>> processors() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return failed("the machine's processors cannot be found out (hwloc)");
  }
  const Topology topology(raw, hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) {
    return failed("the machine's processors cannot be found out (hwloc)");
  }
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
