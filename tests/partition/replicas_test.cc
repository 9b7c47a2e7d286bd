#include "partition/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "step_program.h"

namespace tesser::partition {
namespace {

using ::testing::HasSubstr;

TEST(Replicas, MachinesAreDividedAtTheOutermostLinks) {
  Topology machines;
  machines.links = {{"network", 4, 1e9, 0}, {"memory", 2, 1e10, 0}};
  const auto parts = [&](int replicas) {
    std::vector<int> left;
    const Result<Topology> topology = topology_of_replica(machines, replicas);
    for (const Link& link : topology ? topology->links : std::vector<Link>{{"none", -1, 0, 0}}) {
      left.push_back(link.parts);
    }
    return left;
  };
  EXPECT_EQ(parts(1), (std::vector<int>{4, 2}));
  EXPECT_EQ(parts(2), (std::vector<int>{2, 2}));
  EXPECT_EQ(parts(4), (std::vector<int>{2}));
  EXPECT_EQ(parts(8), (std::vector<int>{}));
  EXPECT_EQ(parts(3), (std::vector<int>{-1})) << "three do not divide four machines";
}

TEST(Replicas, AHubAddsInPlaceOfTheUpdatesAndGradientsTravelBesideComputing) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  const Plan plan = replicated_plan(program, {});
  Topology topology;
  topology.memory_bandwidth = 1;
  const double weights = 64 * 32 * 4;
  // The update reads weights, gradient, rate and step, and writes weights; a hub for two reads two gradients and does
  // so on the processors of both.
  const double update = 3 * weights + 16;
  const double hub = 4 * weights / 2;
  EXPECT_NEAR(step_seconds_of_replicas(program, semantics, plan, topology, 1e6, 1, nullptr), 1e6, 1e-6);
  EXPECT_NEAR(step_seconds_of_replicas(program, semantics, plan, topology, 1e6, 2, nullptr), 1e6 - update + hub, 1e-6);
  Link slow{"network", 2, 1e-3, 5};
  EXPECT_NEAR(step_seconds_of_replicas(program, semantics, plan, topology, 1e6, 2, &slow), weights * 1e3 + 10, 1e-6);
  slow.bandwidth = 1e3;
  EXPECT_NEAR(step_seconds_of_replicas(program, semantics, plan, topology, 1e6, 2, &slow), 1e6 - update + hub + 10,
              1e-6);
}

TEST(Replicas, EveryDivisionIsCostedAndRefusalsSayWhy) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  SearchOptions options;
  options.workers = 4;
  Result<std::vector<ReplicaChoice>> choices = replica_choices(program, semantics, options);
  ASSERT_TRUE(choices.has_value()) << choices.error().message;
  ASSERT_EQ(choices->size(), 3U);
  EXPECT_EQ((*choices)[1].plan.workers(), 2);
  EXPECT_GT(fastest(*choices).batches_per_second(), 0);
  EXPECT_THAT(print(*choices), HasSubstr("2 x 2"));

  options.memory_bytes = (*choices)[2].predicted.peak_bytes - 1;
  choices = replica_choices(program, semantics, options);
  ASSERT_TRUE(choices.has_value()) << choices.error().message;
  EXPECT_THAT((*choices)[2].refused, HasSubstr("no plan fits"));
  EXPECT_LT(fastest(*choices).replicas, 4);

  options.memory_bytes = 1;
  EXPECT_FALSE(replica_choices(program, semantics, options).has_value());
}

}  // namespace
}  // namespace tesser::partition
