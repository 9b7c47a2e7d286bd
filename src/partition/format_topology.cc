#include "partition/format_topology.h"

#include <set>
#include <utility>

#include "base/file.h"
#include "graph/entry_reader.h"
#include "partition/format.h"

namespace tesser::partition {
namespace {

// A number that stays as it is when the key is absent.
void read_number(graph::EntryReader& entry, const std::string& key, double& number, bool may_be_zero = false) {
  if (entry.optional(key) == nullptr) return;
  number = entry.number(key);
  if (!entry.failed() && !(number > 0 || (may_be_zero && number == 0))) {
    entry.fail("'" + key + "' is " + json_float(number) + ", expected " + (may_be_zero ? "0 or more" : "more than 0"));
  }
}

}  // namespace

std::string topology_json(const Topology& topology) {
  std::string text = "{\"links\":[";
  for (std::size_t index = 0; index < topology.links.size(); ++index) {
    const Link& link = topology.links[index];
    text += (index == 0 ? "" : ",") + std::string("{\"name\":") + json_string(link.name) +
            ",\"parts\":" + std::to_string(link.parts) + ",\"bandwidth\":" + json_float(link.bandwidth) +
            ",\"latency\":" + json_float(link.latency) +
            (link.processor_time > 0 ? ",\"processor_time\":" + json_float(link.processor_time) : "") + "}";
  }
  return text + "],\"flops\":" + json_float(topology.flops) +
         ",\"memory_bandwidth\":" + json_float(topology.memory_bandwidth) + "}";
}

Topology topology_from_json(const Json& json, const std::string& where, std::optional<std::string>& defect) {
  constexpr std::int64_t kMostParts = std::int64_t{1} << 20;
  Topology topology;
  graph::EntryReader entry(json, where, defect);
  std::set<std::string> names;
  const Json::Array& links = entry.array("links");
  for (std::size_t index = 0; index < links.size() && !defect; ++index) {
    graph::EntryReader of_link(links[index],
                               where + (where.empty() ? "" : ": ") + "links[" + std::to_string(index) + "]", defect);
    Link link;
    link.name = of_link.name("name");
    const std::int64_t parts = of_link.integer("parts");
    if (!defect && (parts < 1 || parts > kMostParts)) of_link.fail("'parts' is " + std::to_string(parts));
    if (!defect && !names.insert(link.name).second) of_link.fail("its name is that of another link");
    link.parts = static_cast<int>(parts);
    read_number(of_link, "bandwidth", link.bandwidth);
    read_number(of_link, "latency", link.latency, true);
    read_number(of_link, "processor_time", link.processor_time, true);
    of_link.finish();
    topology.links.push_back(std::move(link));
  }
  read_number(entry, "flops", topology.flops);
  read_number(entry, "memory_bandwidth", topology.memory_bandwidth);
  entry.finish();
  return topology;
}

Result<Topology> read_topology(const std::filesystem::path& path) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  Result<Json> json = parse_json(text);
  std::optional<std::string> defect;
  Topology topology;
  if (json) {
    topology = topology_from_json(*json, "", defect);
  } else {
    defect = json.error().message;
  }
  if (defect) return invalid_input(path.string() + ": " + *defect);
  return topology;
}

}  // namespace tesser::partition
