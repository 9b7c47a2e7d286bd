#include "platform/engine/slurm_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

constexpr std::string_view kName = "tesser";
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kMostTasks = 65536;  // of one job

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Of "KEY=VALUE KEY=VALUE ...": the value up to the next space; empty when there is none.
std::string_view field(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    const std::size_t value = at + key.size();
    if ((at == 0 || line[at - 1] == ' ') && value < line.size() && line[value] == '=') {
      const std::string_view rest = line.substr(value + 1);
      return rest.substr(0, rest.find(' '));
    }
  }
  return {};
}

// The reason stands last, may have spaces, and ends with who gave it and when: "disk is old
// [root@2026-11-29T22:45:25]".
std::string reason_of_node(std::string_view line) {
  const std::size_t at = line.find(" Reason=");
  if (at == std::string_view::npos) {
    return "";
  }
  const std::string_view reason = line.substr(at + 8);
  return std::string(reason.substr(0, reason.rfind(" [")));
}

// "gpu:h200:8(S:0-1),gpu:2,disk:1" has 8 of type h200 and 2 of no type, which are called "gpu".
std::map<std::string, std::int64_t> accelerators_of(std::string_view gres) {
  std::string flat;
  int depth = 0;
  for (const char each : gres) {
    depth += each == '(' ? 1 : 0;
    if (depth == 0) {
      flat += each;
    }
    depth -= each == ')' ? 1 : 0;
  }
  std::map<std::string, std::int64_t> found;
  for (const std::string_view entry : split(flat, ',')) {
    const auto parts = split(entry, ':');
    if (parts.empty() || parts[0] != "gpu") {
      continue;
    }
    const auto last = number(parts.back());
    const bool is_typed = parts.size() == 3 || (parts.size() == 2 && !last);
    found[std::string(is_typed ? parts[1] : "gpu")] += last.value_or(1);
  }
  return found;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of "IDLE*+DRAIN": the flags, the mark of a node that does not answer among them.
std::vector<std::string_view> flags_of(std::string_view state) {
  std::vector<std::string_view> flags;
  for (std::string_view part : split(state, '+')) {
    const std::size_t end = std::min(part.find_last_not_of("*~#!%$@^-") + 1, part.size());
    if (part.substr(end).find('*') != std::string_view::npos) {
      flags.push_back("NOT_RESPONDING");
    }
    flags.push_back(part.substr(0, end));
  }
  return flags;
}

struct Wording {
  std::string_view of_slurm;
  std::string_view ours;
};

std::string_view wording(std::string_view word, const auto& table) {
  for (const Wording& each : table) {
    if (each.of_slurm == word) {
      return each.ours;
    }
  }
  return {};
}

constexpr std::array kNodeFlags{
    Wording{"DOWN", "it is down"},
    Wording{"DRAIN", "it is drained"},
    Wording{"NOT_RESPONDING", "it does not answer Slurm"},
    Wording{"MAINTENANCE", "it is in maintenance"},
    Wording{"MAINT", "it is in maintenance"},
    Wording{"RESERVED", "it is reserved"},
    Wording{"FAIL", "it is about to fail"},
    Wording{"FAILING", "it is about to fail"},
    Wording{"INVALID_REG", "it has not what Slurm's configuration says"},
    Wording{"POWERING_DOWN", "it is being switched off"},
    Wording{"REBOOT_ISSUED", "it starts again"},
    Wording{"REBOOT_REQUESTED", "it will start again"},
    Wording{"BLOCKED", "it is blocked"},
    Wording{"FUTURE", "it is not there yet"},
    Wording{"UNKNOWN", "Slurm does not know yet how it is"},
    Wording{"ERROR", "Slurm has an error for it"},
};

constexpr std::array kWaiting{
    Wording{"None", "waits until Slurm looks at it"},
    Wording{"Resources", "waits until enough of its nodes is free"},
    Wording{"Priority", "waits behind jobs of higher priority"},
    Wording{"Dependency", "waits for another job"},
    Wording{"PartitionDown", "waits until its partition is up"},
    Wording{"PartitionInactive", "waits until its partition is up"},
    Wording{"PartitionNodeLimit", "asks for more nodes than its partition gives"},
    Wording{"PartitionTimeLimit", "asks for more time than its partition gives"},
    Wording{"JobHeldUser", "is held by its user"},
    Wording{"JobHeldAdmin", "is held by an administrator"},
    Wording{"BeginTime", "waits for its time to begin"},
    Wording{"Licenses", "waits for licenses"},
    Wording{"Reservation", "waits for its reservation"},
    Wording{"NodeDown", "waits for a node that is down"},
    Wording{"BadConstraints", "asks for what no node has"},
    Wording{"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "waits for nodes that are down, drained or reserved"},
    Wording{"launch failed requeued held", "is held: it could not be started"},
};

constexpr std::array kEnds{
    Wording{"BOOT_FAIL", "its nodes did not start"},
    Wording{"CANCELLED", "somebody cancelled it"},
    Wording{"COMPLETED", "its learners have ended"},
    Wording{"DEADLINE", "its deadline is over"},
    Wording{"FAILED", "its learners ended with an error, or could not be started"},
    Wording{"NODE_FAIL", "a node failed"},
    Wording{"OUT_OF_MEMORY", "out of memory"},
    Wording{"PREEMPTED", "it had to make room for another"},
    Wording{"REVOKED", "it was taken back"},
    Wording{"TIMEOUT", "its time limit is reached"},
};

}  // namespace

std::string slurm_job_name(std::string_view job) { return fmt::format("{}-{}", kName, job); }

std::string to_comment(const SlurmLabel& label) {
  return fmt::format("{} attempt={} learners={} ticket={}", kName, label.attempt, label.learners, label.ticket);
}

std::optional<SlurmLabel> label_from_comment(std::string_view comment) {
  const auto attempt = number(field(comment, "attempt"));
  const auto learners = number(field(comment, "learners"));
  SlurmLabel label{0, 0, std::string(field(comment, "ticket"))};
  constexpr std::int64_t kMost = 1'000'000'000;
  const bool is_ticket = label.ticket.size() == 16 &&
                         std::all_of(label.ticket.begin(), label.ticket.end(),
                                     [](char at) { return std::isxdigit(static_cast<unsigned char>(at)) != 0; });
  if (!attempt || !learners || *attempt < 0 || *attempt > kMost || *learners < 1 || *learners > kMost || !is_ticket) {
    return std::nullopt;
  }
  label.attempt = static_cast<int>(*attempt);
  label.learners = static_cast<int>(*learners);
  return to_comment(label) == comment ? std::optional(label) : std::nullopt;
}

std::string squeue_format(std::string_view mark) {
  return fmt::format("--format={0}|%i|%T|%r|%U|%k|%D|%N|%Z|{0}", mark);
}

std::vector<SlurmJob> slurm_jobs_from_squeue(std::string_view text, std::string_view mark) {
  std::vector<SlurmJob> jobs;
  const std::string begin = fmt::format("{}|", mark);
  const std::string end_of_line = fmt::format("|{}", mark);
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(begin) || !line.ends_with(end_of_line) || line.size() < begin.size() + end_of_line.size()) {
      continue;
    }
    line = line.substr(begin.size(), line.size() - begin.size() - end_of_line.size());
    // The directory stands last, since it may hold anything, and so may the comment, which is as we made it or no
    // label.
    std::array<std::string_view, 7> first;
    bool is_whole = true;
    for (std::string_view& part : first) {
      const std::size_t end = line.find('|');
      is_whole = is_whole && end != std::string_view::npos;
      part = line.substr(0, end);
      line.remove_prefix(is_whole ? end + 1 : line.size());
    }
    const auto label = label_from_comment(first[4]);
    const auto user = number(first[3]);
    if (is_whole && label && user && number(first[0])) {
      jobs.push_back({std::string(first[0]), std::string(first[1]), std::string(first[2]), *user, *label,
                      static_cast<int>(number(first[5]).value_or(0)), std::string(first[6]), std::string(line)});
    }
  }
  return jobs;
}

bool is_waiting_in_slurm(std::string_view state) {
  return is_one_of(state, {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT",
                           "RESV_DEL_HOLD", "POWER_UP_NODE"});
}

bool is_running_in_slurm(std::string_view state) {
  return is_one_of(
      state, {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "UPDATE_DB"});
}

std::string waiting_in_words(std::string_view reason) {
  constexpr std::string_view kUnavailable = "ReqNodeNotAvail";
  if (reason.starts_with(kUnavailable)) {
    return fmt::format("waits for nodes that are not available (Slurm: {})", reason);
  }
  if (const auto words = wording(reason, kWaiting); !words.empty()) {
    return fmt::format("{} (Slurm: {})", words, reason);
  }
  return fmt::format("waits in Slurm: {}", reason);
}

std::string end_in_words(std::string_view state, std::string_view reason) {
  const std::string_view words = wording(state, kEnds);
  const bool says_more = !reason.empty() && reason != "None" && reason != "NonZeroExitCode";
  return fmt::format("Slurm has ended the job: {} ({}{}{})", words.empty() ? "for a reason of its own" : words, state,
                     says_more ? ", " : "", says_more ? reason : "");
}

std::string why_not_ready(std::string_view state) {
  std::string words;
  for (const std::string_view flag : flags_of(state)) {
    const std::string_view found = wording(flag, kNodeFlags);
    if (!found.empty() && words.find(found) == std::string::npos) {
      words += (words.empty() ? "" : ", ") + std::string(found);
    }
  }
  return words;
}

bool is_lost(std::string_view state) {
  const auto flags = flags_of(state);
  return std::find(flags.begin(), flags.end(), "DOWN") != flags.end();
}

std::vector<Node> nodes_from_scontrol(std::string_view text, std::string_view partition) {
  std::vector<Node> nodes;
  for (const std::string_view line : split(text, '\n')) {
    const auto partitions = split(field(line, "Partitions"), ',');
    if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end()) {
      continue;
    }
    Node node;
    node.name = field(line, "NodeName");
    const auto effective = number(field(line, "CPUEfctv"));
    node.capacity.millicpus = 1000 * effective.value_or(number(field(line, "CPUTot")).value_or(0));
    node.capacity.memory_bytes =
        kMebibyte * (number(field(line, "RealMemory")).value_or(0) - number(field(line, "MemSpecLimit")).value_or(0));
    node.capacity.accelerators = accelerators_of(field(line, "Gres"));
    node.not_ready = why_not_ready(field(line, "State"));
    node.is_ready = node.not_ready.empty();
    if (const std::string reason = reason_of_node(line); !node.is_ready && !reason.empty()) {
      node.not_ready += ": " + reason;
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<std::pair<std::string, std::string>> node_states_from_scontrol(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> states;
  for (const std::string_view line : split(text, '\n')) {
    if (const std::string_view name = field(line, "NodeName"); !name.empty()) {
      states.emplace_back(name, field(line, "State"));
    }
  }
  return states;
}

std::vector<SlurmPartition> partitions_from_scontrol(std::string_view text) {
  std::vector<SlurmPartition> partitions;
  for (const std::string_view line : split(text, '\n')) {
    if (const std::string_view name = field(line, "PartitionName"); !name.empty()) {
      partitions.push_back({std::string(name), field(line, "Default") == "YES", std::string(field(line, "State"))});
    }
  }
  return partitions;
}

std::set<int> tasks_that_ended_badly(std::string_view srun_errors) {
  std::set<int> tasks;
  for (std::string_view line : split(srun_errors, '\n')) {
    // "srun: error: ", nodes, and then the tasks.
    const std::size_t at = line.find(": task");
    const std::size_t begin = at == std::string_view::npos ? at : line.find(' ', at + 2);
    const std::size_t end = begin == std::string_view::npos ? begin : line.find(':', begin);
    if (!line.starts_with("srun: error: ") || end == std::string_view::npos) {
      continue;
    }
    for (const std::string_view part : split(line.substr(begin + 1, end - begin - 1), ',')) {
      const std::size_t dash = std::min(part.find('-'), part.size());
      const auto first = number(part.substr(0, dash));
      const auto last = dash < part.size() ? number(part.substr(dash + 1)) : first;
      for (std::int64_t task = first.value_or(0); first && last && task <= std::min(*last, *first + kMostTasks);
           ++task) {
        tasks.insert(static_cast<int>(task));
      }
    }
  }
  return tasks;
}

bool is_refusal(std::string_view errors) {
  constexpr std::array<std::string_view, 15> kRefusals{
      "node configuration is not available",
      "Invalid node name",
      "nvalid partition",
      "Memory specification can not",
      "Invalid generic resource",
      "ore processors requested than permitted",
      "Node count specification",
      "Invalid account",
      "nvalid gres",
      "Invalid feature",
      "CPU count per node can not",
      "No partition specified",
      "nvalid qos",
      "Invalid --",
      "Requested partition configuration",
  };
  return std::any_of(kRefusals.begin(), kRefusals.end(),
                     [&](std::string_view each) { return errors.find(each) != std::string_view::npos; });
}

std::string first_error(std::string_view errors) {
  for (std::string_view line : split(errors, '\n')) {
    for (const std::string_view mark : {": error: ", ": fatal: "}) {
      if (const std::size_t at = line.find(mark); at != std::string_view::npos) {
        line.remove_prefix(at + mark.size());
      }
    }
    if (!line.empty()) {
      return std::string(line);
    }
  }
  return "it gives no reason";
}

}  // namespace tesser::platform
