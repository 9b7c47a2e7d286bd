// The mapping of cores to processors and adapters, on machines that are only described.
#include "hub/topology.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hub/chunk_map.h"
#include "replica_run.h"

namespace tesser::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two sockets, each with two hardware cores of two processors, and with the adapters whose names are given.
std::string two_sockets(const std::vector<std::vector<std::string>>& adapters) {
  int next = 100;
  const auto set = [](int begin, int count) {
    char text[160];
    const unsigned mask = ((1U << count) - 1) << begin;
    std::snprintf(text, sizeof(text),
                  R"(cpuset="0x%08x" complete_cpuset="0x%08x" nodeset="0x1" complete_nodeset="0x1")", mask, mask);
    return std::string(text);
  };
  const auto object = [&](const std::string& type, const std::string& attributes, const std::string& inside) {
    return "<object type=\"" + type + "\" gp_index=\"" + std::to_string(next++) + "\" " + attributes + ">" + inside +
           "</object>\n";
  };
  std::string sockets;
  for (int socket = 0; socket < 2; ++socket) {
    std::string inside;
    for (int core = 0; core < 2; ++core) {
      std::string units;
      for (int unit = 0; unit < 2; ++unit) {
        const int number = socket * 4 + core * 2 + unit;
        units += object("PU", "os_index=\"" + std::to_string(number) + "\" " + set(number, 1), "");
      }
      inside += object("Core", "os_index=\"" + std::to_string(core) + "\" " + set(socket * 4 + core * 2, 2), units);
    }
    int slot = 0;
    for (const std::string& name : adapters[static_cast<std::size_t>(socket)]) {
      const std::string bus = "0000:" + std::to_string(socket * 40 + 10) + ":0" + std::to_string(slot++) + ".0";
      const std::string device =
          object("OSDev", "name=\"" + name + "\" osdev_type=\"3\"", "<info name=\"Port1State\" value=\"4\"/>");
      inside += object("PCIDev", "pci_busid=\"" + bus + "\" pci_type=\"0207 [15b3:1017] [15b3:0007] 00\"", device);
    }
    sockets += object("Package", "os_index=\"" + std::to_string(socket) + "\" " + set(socket * 4, 4), inside);
  }
  const std::string memory = object("NUMANode", "os_index=\"0\" local_memory=\"1073741824\" " + set(0, 8), "");
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
         "version=\"2.0\">" +
         object("Machine", "os_index=\"0\" allowed_cpuset=\"0xff\" allowed_nodeset=\"0x1\" " + set(0, 8),
                memory + sockets) +
         "</topology>\n";
}

// While it lives, hwloc takes the description for this machine.
class Described {
 public:
  explicit Described(const std::string& xml)
      : path_(std::filesystem::temp_directory_path() / ("topology." + std::to_string(::getpid()) + ".xml")) {
    std::ofstream(path_) << xml;
    ::setenv("HWLOC_XMLFILE", path_.c_str(), 1);
  }
  ~Described() {
    ::unsetenv("HWLOC_XMLFILE");
    std::filesystem::remove(path_);
  }

 private:
  const std::filesystem::path path_;
};

std::vector<int> numbers(const Result<std::vector<Processor>>& processors) {
  std::vector<int> numbers;
  for (const Processor& each : processors.value()) {
    numbers.push_back(each.number);
  }
  return numbers;
}

TEST(TopologyTest, CoresGoToHardwareCoresSocketBySocket) {
  const Described machine(two_sockets({{}, {}}));
  EXPECT_THAT(numbers(processors()), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(numbers(choose_processors("")), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(numbers(choose_processors("4-7")), ElementsAre(4, 6, 5, 7));
  const auto chosen = choose_processors("1,6");
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(numbers(chosen), ElementsAre(6, 1));
  EXPECT_EQ((*chosen)[0].socket, 1);
  EXPECT_EQ((*chosen)[1].socket, 0);
  EXPECT_THAT(choose_processors("8").error().message, HasSubstr("no processor 8"));
}

TEST(TopologyTest, AdaptersAreThoseOfTheCoresSockets) {
  const Described machine(two_sockets({{"mlx5_0", "mlx5_1"}, {"mlx5_2"}}));
  const auto found = adapters();
  ASSERT_TRUE(found.has_value()) << found.error().message;
  ASSERT_EQ(found->size(), 3);
  const auto near = [&](const std::string& list) { return adapters_near(*found, choose_processors(list).value()); };
  EXPECT_EQ(near("0-3"), "mlx5_0:1,mlx5_1:1");
  EXPECT_EQ(near("4"), "mlx5_2:1");
  EXPECT_EQ(near("3,4"), "") << "all of them";
  EXPECT_EQ(near(""), "");
}

TEST(TopologyTest, AdaptersOfAnotherSocketAreBetterThanNone) {
  const Described machine(two_sockets({{}, {"mlx5_0"}}));
  const auto found = adapters();
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(adapters_near(*found, choose_processors("0-3").value()), "");
  EXPECT_EQ(adapters_near({}, choose_processors("0-3").value()), "");
  EXPECT_EQ(adapters_near({{"rxe0", {1}, -1}, {"mlx5_0", {1, 2}, 1}}, choose_processors("0-3").value()), "rxe0:1");
  EXPECT_EQ(adapters_near({{"mlx5_0", {1, 2}, 0}, {"mlx5_1", {1}, 1}}, choose_processors("0-3").value()),
            "mlx5_0:1,mlx5_0:2");
}

TEST(TopologyTest, LargestChunksFirstLeaveTheCoresOfBothSocketsAlike) {
  const Described machine(two_sockets({{}, {}}));
  const int cores = static_cast<int>(choose_processors("").value().size());
  JobSettings settings = settings_for(2, {70'000, 3, 50'000, 40'000, 30'000, 20'000, 10'000, 5000, 900});
  settings.chunk_bytes = std::int64_t{1} << 20;  // a chunk a tensor
  const auto map = map_chunks(settings, {cores});
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  for (const ChunkMap::Load& load : map->loads[0]) {
    least = std::min(least, load.elements);
    most = std::max(most, load.elements);
  }
  EXPECT_EQ(most, 70'000);  // the largest tensor alone
  EXPECT_GE(least, 50'000);
}

}  // namespace
}  // namespace tesser::hub
