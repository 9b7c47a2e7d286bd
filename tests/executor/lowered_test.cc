// Lowered programs run by executors in processes of their own, over the transport, give the state that one executor
// gives for the whole program.
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lowering/lower.h"
#include "partition/expand.h"
#include "partition/search.h"
#include "partition/signature.h"
#include "program_text.h"
#include "runtime/executor.h"
#include "runtime/transport_exchange.h"

namespace tesser::runtime {
namespace {

using testing::step_program;

constexpr int kSteps = 3;

std::string value(const std::string& name, const std::string& shape) {
  return R"([")" + name + R"(","float32",)" + shape + "]";
}
std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& out,
                 const std::string& phase) {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[)" + out + R"(],"phase":")" +
         phase + R"("})";
}
std::string parameter(const std::string& name, const std::string& shape) {
  return R"({"name":")" + name + R"(","role":"parameter","dtype":"float32","shape":)" + shape + R"(,"trainable":true})";
}

// Two layers with a convolution before them, squared loss, momentum-free updates; sizes that do not divide.
graph::Program whole_program() {
  const auto update = [](const std::string& weight, const std::string& gradient, const std::string& shape) {
    return node("update " + weight, "tesser::sgd",
                R"("%)" + weight + R"(","%)" + gradient + R"(",null,"%lr","%step",0.0,0.0,0.0,false,false)",
                value(weight + ".new", shape) + ",null", "update");
  };
  return step_program(
      parameter("filter", "[5,2,3,3]") + "," + parameter("w", "[175,6]") + "," + parameter("v", "[6,3]") + "," +
          R"({"name":"x","role":"batch","dtype":"float32","shape":[5,2,7,5]},)" +
          R"({"name":"step","role":"step","dtype":"int64","shape":[]},{"name":"seed","role":"seed","dtype":"int64","shape":[]},)" +
          R"({"name":"lr","role":"learning_rate","dtype":"float64","shape":[],"schedule":0})",
      node("conv", "aten::convolution", R"("%x","%filter",null,[1,1],[1,1],[1,1],false,[0,0],1)",
           value("conv", "[5,5,7,5]"), "forward") +
          "," + node("act", "aten::relu", R"("%conv")", value("act", "[5,5,7,5]"), "forward") + "," +
          node("flat", "aten::view", R"("%act",[5,175])", value("flat", "[5,175]"), "forward") + "," +
          node("h", "aten::mm", R"("%flat","%w")", value("h", "[5,6]"), "forward") + "," +
          node("y", "aten::mm", R"("%h","%v")", value("y", "[5,3]"), "forward") + "," +
          node("square", "aten::mul.Tensor", R"("%y","%y")", value("square", "[5,3]"), "forward") + "," +
          node("loss", "aten::sum", R"("%square")", value("loss", "[]"), "forward") + "," +
          node("dy", "aten::mul.Tensor", R"("%y",2.0)", value("dy", "[5,3]"), "backward") + "," +
          node("ht", "aten::t", R"("%h")", value("ht", "[6,5]"), "backward") + "," +
          node("dv", "aten::mm", R"("%ht","%dy")", value("dv", "[6,3]"), "backward") + "," +
          node("vt", "aten::t", R"("%v")", value("vt", "[3,6]"), "backward") + "," +
          node("dh", "aten::mm", R"("%dy","%vt")", value("dh", "[5,6]"), "backward") + "," +
          node("ft", "aten::t", R"("%flat")", value("ft", "[175,5]"), "backward") + "," +
          node("dw", "aten::mm", R"("%ft","%dh")", value("dw", "[175,6]"), "backward") + "," +
          node("wt", "aten::t", R"("%w")", value("wt", "[6,175]"), "backward") + "," +
          node("df", "aten::mm", R"("%dh","%wt")", value("df", "[5,175]"), "backward") + "," +
          node("da", "aten::view", R"("%df",[5,5,7,5])", value("da", "[5,5,7,5]"), "backward") + "," +
          node("dc", "aten::threshold_backward", R"("%da","%act",0)", value("dc", "[5,5,7,5]"), "backward") + "," +
          node("dfilter", "aten::convolution_backward",
               R"("%dc","%x","%filter",[0],[1,1],[1,1],[1,1],false,[0,0],1,[false,true,false])",
               "null," + value("dfilter", "[5,2,3,3]") + ",null", "backward") +
          "," + update("filter", "dfilter", "[5,2,3,3]") + "," + update("w", "dw", "[175,6]") + "," +
          update("v", "dv", "[6,3]"),
      R"({"role":"loss","value":"%loss"},{"role":"state","name":"filter","value":"%filter.new"},)"
      R"({"role":"state","name":"w","value":"%w.new"},{"role":"state","name":"v","value":"%v.new"})");
}

// Made-up content of a whole value, the same for every process.
std::vector<float> content(const std::string& name, std::int64_t elements) {
  std::vector<float> numbers(static_cast<std::size_t>(elements));
  const auto salt = static_cast<double>(std::accumulate(name.begin(), name.end(), 0));
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    numbers[index] = static_cast<float>(std::sin(salt + 1.7 * static_cast<double>(index)) * 0.2);
  }
  return numbers;
}

// Copies a rectangle between a whole row-major tensor and one of its size.
template <typename Copy>
void visit_part(const graph::Value& part, const Copy& copy) {
  const Shape& whole = part.whole_shape.empty() ? part.shape : part.whole_shape;
  const Shape begin = part.region_begin.empty() ? Shape(part.shape.size(), 0) : part.region_begin;
  for (std::int64_t index = 0; index < part.elements(); ++index) {
    std::int64_t rest = index;
    std::int64_t place = 0;
    std::int64_t pitch = 1;
    for (std::size_t dimension = part.shape.size(); dimension-- > 0;) {
      place += (begin[dimension] + rest % part.shape[dimension]) * pitch;
      rest /= part.shape[dimension];
      pitch *= whole[dimension];
    }
    copy(static_cast<std::size_t>(index), static_cast<std::size_t>(place));
  }
}

std::vector<float> part_of(const graph::Value& part) {
  const std::vector<float> whole =
      content(part.name, element_count(part.whole_shape.empty() ? part.shape : part.whole_shape));
  std::vector<float> numbers(static_cast<std::size_t>(part.elements()));
  visit_part(part, [&](std::size_t inner, std::size_t outer) { numbers[inner] = whole[outer]; });
  return numbers;
}

// What a process leaves: the loss of every step and all state, whole.
struct Outcome {
  std::array<double, kSteps> losses;
  std::array<float, 5 * 2 * 3 * 3> filter;
  std::array<float, 175 * 6> w;
  std::array<float, 6 * 3> v;

  float* state(const std::string& name) { return name == "filter" ? filter.data() : name == "w" ? w.data() : v.data(); }
};

// Runs a program from the made-up state; writes its parts of the state. 0 when all went well.
int run_program(const graph::Program& program, Exchange* exchange, Outcome& outcome, bool report_loss) {
  ExecutorOptions options;
  options.threads = 1;
  options.exchange = exchange;
  auto executor = Executor::create(program, options);
  if (!executor) {
    std::fprintf(stderr, "%s\n", executor.error().message.c_str());
    return 1;
  }
  for (const graph::ValueId input : program.inputs) {
    const graph::Value& value = program.value(input);
    if (value.is_state()) {
      const std::vector<float> numbers = part_of(value);
      if (!(*executor)->write_state(value.name, {value.dtype, value.shape, numbers.data()})) return 2;
    } else if (value.role == graph::Role::kBatch) {
      const std::vector<float> numbers = part_of(value);
      std::memcpy((*executor)->batch(value.name).data, numbers.data(), numbers.size() * sizeof(float));
    }
  }
  for (int step = 0; step < kSteps; ++step) {
    const auto result = (*executor)->run(step, 1);
    if (!result) {
      std::fprintf(stderr, "%s\n", result.error().message.c_str());
      return 3;
    }
    if (report_loss) outcome.losses[static_cast<std::size_t>(step)] = result->loss;
  }
  for (const graph::ValueId input : program.inputs) {
    const graph::Value& value = program.value(input);
    if (!value.is_state()) continue;
    std::vector<float> numbers(static_cast<std::size_t>(value.elements()));
    if (!(*executor)->read_state(value.name, {value.dtype, value.shape, numbers.data()})) return 4;
    float* const whole = outcome.state(value.name);
    visit_part(value, [&](std::size_t inner, std::size_t outer) { whole[outer] = numbers[inner]; });
  }
  return 0;
}

// Memory that parent and children see.
Outcome& shared_outcome() {
  void* const memory = ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<Outcome*>(memory);
}

int exit_code(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// One worker: learns the others' addresses from files in `directory`.
int run_worker(const lowering::Lowered& lowered, int worker, const std::vector<int>& to_peers, transport::Paths paths,
               Outcome& outcome) {
  transport::DeviceOptions options;
  options.name = "worker " + std::to_string(worker);
  options.run = 7;
  options.paths = paths;
  auto device = transport::Device::open(options);
  if (!device) return 10;
  // Addresses go around through the parent's sockets, 128 bytes each.
  std::array<char, 128> text{};
  const std::string address = (*device)->address();
  std::copy(address.begin(), address.end(), text.begin());
  const auto workers = static_cast<int>(lowered.workers.size());
  std::vector<std::string> addresses(lowered.workers.size());
  if (::write(to_peers[static_cast<std::size_t>(worker)], text.data(), text.size()) != 128) return 11;
  for (int peer = 0; peer < workers; ++peer) {
    if (::read(to_peers[static_cast<std::size_t>(worker)], text.data(), text.size()) != 128) return 12;
    addresses[static_cast<std::size_t>(peer)] = text.data();
  }
  std::vector<std::shared_ptr<transport::Channel>> channels(lowered.workers.size());
  for (int peer = 0; peer < workers; ++peer) {
    if (peer == worker) continue;
    const auto deadline = transport::in(std::chrono::seconds(60));
    auto channel = peer < worker ? (*device)->connect(addresses[static_cast<std::size_t>(peer)], deadline)
                                 : (*device)->accept(deadline);
    if (!channel) {
      std::fprintf(stderr, "%s\n", channel.error().message.c_str());
      return 13;
    }
    const int number = std::stoi((*channel)->peer().substr(7));
    channels[static_cast<std::size_t>(number)] = *channel;
  }
  TransportExchangeOptions exchange_options;
  exchange_options.worker = worker;
  TransportExchange exchange(**device, channels, exchange_options);
  const int code = run_program(lowered.workers[static_cast<std::size_t>(worker)], &exchange, outcome, worker == 0);
  char byte = 0;  // nobody leaves before all have finished
  if (::write(to_peers[static_cast<std::size_t>(worker)], &byte, 1) != 1) return 14;
  if (::read(to_peers[static_cast<std::size_t>(worker)], &byte, 1) != 1) return 15;
  return code;
}

struct Case {
  int workers;
  partition::Preset preset;
  transport::Paths paths;
};

class LoweredTest : public ::testing::TestWithParam<Case> {};

TEST_P(LoweredTest, WorkersGiveTheStateOfOneExecutor) {
  const graph::Program program = whole_program();
  const auto expanded = partition::expand(program);
  ASSERT_TRUE(expanded.has_value()) << expanded.error().message;
  const auto semantics = partition::analyze_nodes(*expanded, tdl::Catalogue::shipped());
  partition::SearchOptions search_options;
  search_options.workers = GetParam().workers;
  search_options.preset = GetParam().preset;
  const auto plan = partition::search(*expanded, semantics, search_options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto lowered = lowering::lower(*expanded, semantics, tdl::Catalogue::shipped(), *plan, {});
  ASSERT_TRUE(lowered.has_value()) << lowered.error().message;
  ASSERT_GT(lowered->transfers, 0);

  Outcome& expected = shared_outcome();
  const pid_t alone = ::fork();
  if (alone == 0) ::_exit(run_program(program, nullptr, expected, true));
  ASSERT_EQ(exit_code(alone), 0);

  Outcome& found = shared_outcome();
  std::vector<int> parents_ends;
  std::vector<int> childrens_ends;
  for (int worker = 0; worker < GetParam().workers; ++worker) {
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    parents_ends.push_back(pair[0]);
    childrens_ends.push_back(pair[1]);
  }
  std::vector<pid_t> children;
  for (int worker = 0; worker < GetParam().workers; ++worker) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(run_worker(*lowered, worker, childrens_ends, GetParam().paths, found));
  }
  std::vector<std::array<char, 128>> addresses(children.size());
  for (std::size_t worker = 0; worker < children.size(); ++worker) {
    ::close(childrens_ends[worker]);
    ASSERT_EQ(::read(parents_ends[worker], addresses[worker].data(), 128), 128);
  }
  for (const int end : parents_ends) {
    for (const auto& address : addresses) ASSERT_EQ(::write(end, address.data(), 128), 128);
  }
  char byte = 0;
  for (const int end : parents_ends) ASSERT_EQ(::read(end, &byte, 1), 1) << "a worker ended early";
  for (const int end : parents_ends) ASSERT_EQ(::write(end, &byte, 1), 1);
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
  for (const int end : parents_ends) ::close(end);

  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(found.losses[at], expected.losses[at], 1e-5 * std::abs(expected.losses[at])) << "step " << step;
  }
  for (const auto& [name, elements] : {std::pair("filter", 90), std::pair("w", 175 * 6), std::pair("v", 18)}) {
    for (int index = 0; index < elements; ++index) {
      ASSERT_NEAR(found.state(name)[index], expected.state(name)[index], 1e-5) << name << "[" << index << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, LoweredTest,
                         ::testing::Values(Case{2, partition::Preset::kTofu, transport::Paths::kAny},
                                           Case{3, partition::Preset::kTofu, transport::Paths::kAny},
                                           Case{4, partition::Preset::kTofu, transport::Paths::kTcpOnly},
                                           Case{2, partition::Preset::kDataParallel, transport::Paths::kAny},
                                           Case{2, partition::Preset::kMegatron, transport::Paths::kTcpOnly}),
                         [](const auto& info) {
                           std::string name(partition::preset_name(info.param.preset));
                           return name + std::to_string(info.param.workers) +
                                  (info.param.paths == transport::Paths::kAny ? "Memory" : "Tcp");
                         });

}  // namespace
}  // namespace tesser::runtime
