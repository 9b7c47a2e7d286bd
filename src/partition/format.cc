#include "partition/format.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/own_checksum.h"
#include "graph/entry_reader.h"
#include "graph/read.h"
#include "graph/write.h"
#include "partition/expand.h"
#include "partition/format_topology.h"
#include "partition/signature.h"

namespace tesser::partition {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "tesser.plan";
constexpr std::int64_t kVersion = 1;

std::string cut_text(const Cut& cut) {
  if (cut.axis == kReplicated) return "r";
  return std::to_string(cut.axis) + (cut.granularity == 1 ? "" : "x" + std::to_string(cut.granularity));
}

std::optional<Cut> cut_from_text(std::string_view text) {
  if (text == "r") return Cut{};
  Cut cut;
  const char* const end = text.data() + text.size();
  const auto [after_axis, axis_error] = std::from_chars(text.data(), end, cut.axis);
  if (axis_error != std::errc{} || cut.axis < 0) return std::nullopt;
  if (after_axis == end) return cut;
  const auto [after, error] = std::from_chars(after_axis + 1, end, cut.granularity);
  if (*after_axis != 'x' || error != std::errc{} || after != end || cut.granularity < 1) return std::nullopt;
  return cut;
}

template <typename List, typename Text>
std::string joined(const List& list, std::string_view separator, const Text& text) {
  std::string all;
  for (const auto& entry : list) {
    if (!all.empty()) all += separator;
    all += text(entry);
  }
  return all;
}

template <typename Named>
void append_cuts(std::string& text, std::string_view key, const std::vector<Named>& named,
                 const std::vector<std::vector<Cut>>& cuts) {
  text.append("\"").append(key).append("\":[\n");
  for (std::size_t index = 0; index < named.size(); ++index) {
    text += "[";
    append_json_string(text, named[index].name);
    for (const Cut& cut : cuts[index]) text.append(",\"").append(cut_text(cut)).append("\"");
    text += index + 1 < named.size() ? "],\n" : "]\n";
  }
  text += "]";
}

std::string invalid(const fs::path& path, const std::string& reason) { return path.string() + ": " + reason; }

// What stands in a plan file. `program` is nullptr for the header alone.
class PlanReader {
 public:
  PlanReader(const Json& json, const graph::Program* program) : reader_(json, "", defect_), program_(program) {}

  std::optional<std::string> read(PlanRecord& record) {
    if (reader_.string("format") != kFormat && !defect_) reader_.fail("is no plan: 'format' is not \"tesser.plan\"");
    const std::int64_t version = reader_.integer("version");
    if (!defect_ && version != kVersion) {
      reader_.fail("version " + std::to_string(version) + "; this tesser reads version " + std::to_string(kVersion));
    }
    reader_.optional("checksum");
    record.plan.program = reader_.name("program");
    record.plan.program_hash = reader_.string("program_hash");
    record.plan.preset = reader_.string("preset");
    const std::int64_t workers = reader_.integer("workers");
    read_levels(record.plan, workers);
    read_options(record);
    read_prediction(record);
    const Json::Array& layouts = reader_.array("layouts");
    const Json::Array& nodes = reader_.array("nodes");
    reader_.finish();
    if (program_ != nullptr && !defect_) {
      read_cuts(layouts, "layouts", "values", program_->values, record.plan.layouts, record.plan.levels.size());
      read_cuts(nodes, "nodes", "nodes", program_->nodes, record.plan.nodes, record.plan.levels.size());
    }
    return defect_;
  }

 private:
  void read_levels(Plan& plan, std::int64_t workers) {
    std::int64_t product = 1;
    const Json::Array& levels = reader_.array("levels");
    for (std::size_t index = 0; index < levels.size() && !defect_; ++index) {
      graph::EntryReader entry(levels[index], "levels[" + std::to_string(index) + "]", defect_);
      Level level;
      const std::int64_t parts = entry.integer("parts");
      level.link = entry.string("link");
      if (!defect_ && (parts < 1 || parts > kMostWorkers)) entry.fail("'parts' is " + std::to_string(parts));
      entry.finish();
      level.parts = static_cast<int>(parts);
      product *= parts;
      if (product > kMostWorkers) product = kMostWorkers + 1;
      plan.levels.push_back(std::move(level));
    }
    if (!defect_ && product != workers) {
      reader_.fail("'workers' is " + std::to_string(workers) + ", but the levels' parts make " +
                   std::to_string(product));
    }
  }

  std::vector<std::int64_t> sizes(graph::EntryReader& entry, std::string_view key) {
    const Json* const list = entry.required(key);
    return list == nullptr ? std::vector<std::int64_t>{} : entry.integers_of(*list, key);
  }

  void read_options(PlanRecord& record) {
    const Json* const json = reader_.required("options");
    if (json == nullptr) return;
    graph::EntryReader entry(*json, "options", defect_);
    if (const Json* const bound = entry.required("memory_bytes"); bound != nullptr && !bound->is_null()) {
      record.memory_bytes = entry.integer("memory_bytes");
    }
    if (entry.optional("replicas") != nullptr) {
      const std::int64_t replicas = entry.integer("replicas");
      if (!defect_ && (replicas < 2 || replicas > kMostWorkers)) {
        entry.fail("'replicas' is " + std::to_string(replicas));
      }
      record.replicas = static_cast<int>(replicas);
    }
    record.program_path = entry.string("program_path");
    if (const Json* const list = entry.required("descriptions"); list != nullptr) {
      record.descriptions = entry.names_of(*list, "descriptions");
    }
    if (const Json* const topology = entry.required("topology"); topology != nullptr && !topology->is_null()) {
      record.topology = topology_from_json(*topology, "options: topology", defect_);
    }
    entry.finish();
  }

  void read_prediction(PlanRecord& record) {
    const Json* const json = reader_.required("predicted");
    if (json == nullptr) return;
    graph::EntryReader entry(*json, "predicted", defect_);
    Prediction& predicted = record.predicted;
    predicted.bytes_per_step = entry.integer("bytes_per_step");
    predicted.level_bytes = sizes(entry, "level_bytes");
    predicted.state_bytes = entry.integer("state_bytes");
    predicted.peak_bytes = entry.integer("peak_bytes");
    predicted.seconds = entry.number("seconds");
    if (!defect_ && predicted.level_bytes.size() != record.plan.levels.size()) {
      entry.fail("'level_bytes' has " + std::to_string(predicted.level_bytes.size()) + " entries for " +
                 std::to_string(record.plan.levels.size()) + " levels");
    }
    entry.finish();
  }

  template <typename Named>
  void read_cuts(const Json::Array& entries, const std::string& key, const std::string& what,
                 const std::vector<Named>& named, std::vector<std::vector<Cut>>& cuts, std::size_t levels) {
    if (!defect_ && entries.size() != named.size()) {
      reader_.fail("'" + key + "' has " + std::to_string(entries.size()) + " entries, but the program has " +
                   std::to_string(named.size()) + " " + what);
    }
    for (std::size_t index = 0; index < entries.size() && !defect_; ++index) {
      const std::string where = key + "[" + std::to_string(index) + "]";
      const Json::Array* const entry = entries[index].array();
      const std::string* const name = entry == nullptr || entry->empty() ? nullptr : entry->front().string();
      if (name == nullptr) {
        reader_.fail(where + " is no list that begins with a name");
        return;
      }
      if (*name != named[index].name) {
        reader_.fail(where + " is of " + graph::brief(*name) + ", but the program has " +
                     graph::brief(named[index].name) + " there; make the plan again");
        return;
      }
      if (entry->size() != levels + 1) {
        reader_.fail(where + ", of " + graph::brief(*name) + ", has " + std::to_string(entry->size() - 1) +
                     " cuts for " + std::to_string(levels) + " levels");
        return;
      }
      std::vector<Cut>& of_one = cuts.emplace_back();
      for (std::size_t level = 0; level < levels; ++level) {
        const std::string* const text = (*entry)[level + 1].string();
        const std::optional<Cut> cut = text == nullptr ? std::nullopt : cut_from_text(*text);
        if (!cut) {
          reader_.fail(where + ", of " + graph::brief(*name) + ": cut " + std::to_string(level) +
                       (text == nullptr ? " is no string" : " is " + graph::brief(*text)) +
                       "; expected \"r\", an axis like \"0\", or axis and block like \"0x16\"");
          return;
        }
        of_one.push_back(*cut);
      }
    }
  }

  static constexpr std::int64_t kMostWorkers = std::int64_t{1} << 20;

  std::optional<std::string> defect_;
  graph::EntryReader reader_;
  const graph::Program* program_;
};

Result<PlanRecord> read(const fs::path& path, const graph::Program* captured, const graph::Program* expanded) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  Result<Json> json = parse_json(text);
  if (!json) return invalid_input(invalid(path, json.error().message));
  if (const Result<void> checked = check_own_checksum(text, *json); !checked) {
    return invalid_input(invalid(path, checked.error().message));
  }
  PlanRecord record;
  if (std::optional<std::string> defect = PlanReader(*json, nullptr).read(record)) {
    return invalid_input(invalid(path, *defect));
  }
  if (captured == nullptr) return record;
  if (const std::string hash = program_hash(*captured); hash != record.plan.program_hash) {
    return invalid_input(invalid(path, "is a plan of another program: of " + record.plan.program + " with hash " +
                                           graph::brief(record.plan.program_hash) + ", not of " + captured->name +
                                           " with hash " + graph::brief(hash) +
                                           ".\nWhat to do: make a plan of this program, with tesser plan"));
  }
  PlanRecord full;
  if (std::optional<std::string> defect = PlanReader(*json, expanded).read(full)) {
    return invalid_input(invalid(path, *defect));
  }
  return full;
}

// FNV-1a, 16 hexadecimal digits.
std::string text_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits(16, '0');
  for (std::size_t place = digits.size(); place-- > 0; hash >>= 4) {
    digits[place] = kDigits[hash & 15];
  }
  return digits;
}

}  // namespace

std::string program_hash(const graph::Program& captured) { return text_hash(graph::program_text(captured)); }

std::string plan_hash(const PlanRecord& record, const graph::Program& expanded) {
  return text_hash(plan_text(record, expanded));
}

std::string plan_text(const PlanRecord& record, const graph::Program& program) {
  const Plan& plan = record.plan;
  std::string text = "{\n\"format\":\"" + std::string(kFormat) + "\",\n\"version\":" + std::to_string(kVersion);
  text += ",\n\"program\":" + json_string(plan.program) + ",\n\"program_hash\":" + json_string(plan.program_hash);
  text += ",\n\"preset\":" + json_string(plan.preset) + ",\n\"workers\":" + std::to_string(plan.workers());
  text += ",\n\"levels\":[" + joined(plan.levels, ",", [](const Level& level) {
            return "{\"parts\":" + std::to_string(level.parts) + ",\"link\":" + json_string(level.link) + "}";
          });
  text += "],\n\"options\":{\"memory_bytes\":" + (record.memory_bytes ? std::to_string(*record.memory_bytes) : "null");
  text += record.replicas > 1 ? ",\"replicas\":" + std::to_string(record.replicas) : "";
  text += ",\"program_path\":" + json_string(record.program_path) + ",\"descriptions\":[" +
          joined(record.descriptions, ",", [](const std::string& path) { return json_string(path); });
  text += "],\"topology\":" + (record.topology == Topology{} ? "null" : topology_json(record.topology)) + "}";
  const Prediction& predicted = record.predicted;
  text += ",\n\"predicted\":{\"bytes_per_step\":" + std::to_string(predicted.bytes_per_step) + ",\"level_bytes\":[" +
          joined(predicted.level_bytes, ",", [](std::int64_t bytes) { return std::to_string(bytes); });
  text += "],\"state_bytes\":" + std::to_string(predicted.state_bytes) +
          ",\"peak_bytes\":" + std::to_string(predicted.peak_bytes) + ",\"seconds\":" + json_float(predicted.seconds) +
          "},\n";
  append_cuts(text, "layouts", program.values, plan.layouts);
  text += ",\n";
  append_cuts(text, "nodes", program.nodes, plan.nodes);
  text += "\n}\n";
  return text;
}

Result<void> write_plan(const PlanRecord& record, const graph::Program& program, AtomicFile file) {
  TESSER_RETURN_IF_ERROR(file.append(with_checksum(plan_text(record, program))));
  return file.commit();
}

bool is_plan(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  if (path.extension() == ".plan") return true;
  constexpr std::size_t kBeginning = 100;
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return false;
  const std::span<const std::byte> bytes = file->bytes().first(std::min(kBeginning, file->bytes().size()));
  const std::string_view beginning(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return beginning.find("\"tesser.plan\"") != std::string_view::npos;
}

Result<PlanRecord> read_plan_header(const fs::path& path) { return read(path, nullptr, nullptr); }

Result<PlanRecord> read_plan(const fs::path& path, const graph::Program& captured, const graph::Program& expanded) {
  return read(path, &captured, &expanded);
}

Result<OpenedPlan> open_plan(const fs::path& path, const std::optional<fs::path>& program_path) {
  TESSER_ASSIGN_OR_RETURN(const PlanRecord header, read_plan_header(path));
  OpenedPlan opened;
  const fs::path folder = path.parent_path();
  Result<graph::Program> captured = graph::read_program(program_path.value_or(folder / header.program_path));
  if (!captured && captured.error().code == ErrorCode::kNotFound && !program_path) {
    captured.error().message +=
        "; it is the program of " + path.string() + ".\nWhat to do: say where the program is, with --of NAME.tesser";
  }
  if (!captured) return tl::unexpected<Error>(captured.error());
  opened.captured = std::move(*captured);
  TESSER_ASSIGN_OR_RETURN(opened.expanded, expand(opened.captured));
  TESSER_ASSIGN_OR_RETURN(opened.record, read_plan(path, opened.captured, opened.expanded));
  opened.catalogue = tdl::Catalogue::shipped();
  for (const std::string& file : header.descriptions) {
    TESSER_RETURN_IF_ERROR(opened.catalogue.add_file((folder / file).string()));
  }
  opened.semantics = analyze_nodes(opened.expanded, opened.catalogue);
  if (const Result<void> verified = verify(opened.record.plan, opened.expanded, opened.semantics); !verified) {
    return invalid_input(invalid(path, verified.error().message));
  }
  return opened;
}

}  // namespace tesser::partition
