#include "platform/engine/slurm_text.h"

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

TEST(SlurmText, ALabelIsReadAsItWasWritten) {
  const SlurmLabel label{3, 128, "0123456789abcdef"};
  const auto read = label_from_comment(to_comment(label));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->attempt, 3);
  EXPECT_EQ(read->learners, 128);
  EXPECT_EQ(read->ticket, label.ticket);
}

TEST(SlurmText, CommentsOfOthersAreNoLabels) {
  for (const char* comment :
       {"", "(null)", "tesser", "tesser attempt=1 learners=2", "tesser attempt=1 learners=2 ticket=xyz",
        "tesser attempt=1 learners=0 ticket=0123456789abcdef", "tesser attempt=-1 learners=1 ticket=0123456789abcdef",
        "tesser attempt=1 learners=99999999999 ticket=0123456789abcdef",
        "tesser attempt=1 learners=1 ticket=0123456789abcde/", "other attempt=1 learners=1 ticket=0123456789abcdef",
        "tesser attempt=1 learners=1 ticket=0123456789abcdef more"}) {
    EXPECT_FALSE(label_from_comment(comment)) << comment;
  }
}

TEST(SlurmText, JobsOfSqueue) {
  EXPECT_EQ(squeue_format("m"), "--format=m|%i|%T|%r|%U|%k|%D|%N|%Z|m");
  const auto jobs = slurm_jobs_from_squeue(
      "m|12|RUNNING|None|7|tesser attempt=1 learners=2 ticket=0123456789abcdef|2|node[1-2]|/jobs/a|b c|m\n"
      "m|13|PENDING|ReqNodeNotAvail, UnavailableNodes:node2|0|tesser attempt=2 learners=1 ticket=fedcba9876543210|1||/v"
      "|m\n"
      "m|14|RUNNING|None|7|(null)|1|node1|/v|m\n"
      "m|15|RUNNING|m\nm|m\nm|\n|m\n"
      "\n",
      "m");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].id, "12");
  EXPECT_EQ(jobs[0].directory, "/jobs/a|b c");
  EXPECT_EQ(jobs[0].label.learners, 2);
  EXPECT_EQ(jobs[0].node_count, 2);
  EXPECT_EQ(jobs[0].nodes, "node[1-2]");
  EXPECT_EQ(jobs[0].user, 7);
  EXPECT_EQ(jobs[1].state, "PENDING");
  EXPECT_EQ(waiting_in_words(jobs[1].reason),
            "waits for nodes that are not available (Slurm: ReqNodeNotAvail, UnavailableNodes:node2)");
}

TEST(SlurmText, ACommentMakesNoLineOfAnother) {
  const std::string label = "tesser attempt=1 learners=2 ticket=0123456789abcdef";
  const std::string forged = "12|RUNNING|None|0|" + label + "|2|node1|/jobs/a";
  EXPECT_TRUE(
      slurm_jobs_from_squeue("m|13|RUNNING|None|7|x\n" + forged + "\nm|" + forged + "\n|1|node1|/v|m\n", "m").empty());
  // What its fields hold besides, is of its own directory.
  const auto jobs = slurm_jobs_from_squeue("m|13|RUNNING|None|7|" + label + "|2|node1|/jobs/a|1|node1|/v|m\n", "m");
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].user, 7);
  EXPECT_EQ(jobs[0].directory, "/jobs/a|1|node1|/v");
}

TEST(SlurmText, TasksOfWhichSrunSaysThatTheyEndedBadly) {
  const std::set<int> expected{0, 2, 3, 4, 7};
  EXPECT_EQ(tasks_that_ended_badly("srun: error: node1: task 0: Killed\n"
                                   "srun: Force Terminated StepId=4.0\n"
                                   "srun: error: node[2-3]: tasks 2-4,7: Exited with exit code 1\n"
                                   "srun: error: node1: task x: Killed\nerror: node1: task 9: Killed\n"),
            expected);
}

// As Slurm 22.05 prints it, shortened.
constexpr const char* kNodes =
    "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=6 CPUTot=8 Gres=gpu:h200:2(S:0,1),gpu:1,disk:3 "
    "NodeAddr=10.0.0.1 Version=22.05.8 OS=Linux 6.1 #1 SMP  RealMemory=4000 MemSpecLimit=500 Sockets=8 State=MIXED "
    "Partitions=main,night  CfgTRES=cpu=8\n"
    "NodeName=node2 CPUTot=4 Gres=(null) RealMemory=2000 State=IDLE*+DRAIN Partitions=main Reason=disk is old "
    "[State=IDLE] [root@2026-11-29T22:45:25]\n"
    "NodeName=node3 CPUTot=4 Gres=gpu:4 RealMemory=2000 State=DOWN+DRAIN+NOT_RESPONDING Partitions=night\n"
    "NodeName=node4 CPUTot=4 RealMemory=2000 State=IDLE Partitions=mainly\n";

TEST(SlurmText, NodesOfAPartition) {
  const auto nodes = nodes_from_scontrol(kNodes, "main");
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].name, "node1");
  EXPECT_TRUE(nodes[0].is_ready) << nodes[0].not_ready;
  EXPECT_EQ(nodes[0].capacity.millicpus, 6000);
  EXPECT_EQ(nodes[0].capacity.memory_bytes, std::int64_t{3500} << 20);
  EXPECT_EQ(nodes[0].capacity.accelerators, (std::map<std::string, std::int64_t>{{"h200", 2}, {"gpu", 1}}));
  EXPECT_FALSE(nodes[1].is_ready);
  EXPECT_EQ(nodes[1].not_ready, "it does not answer Slurm, it is drained: disk is old [State=IDLE]");
  EXPECT_TRUE(nodes[1].capacity.accelerators.empty());

  const auto others = nodes_from_scontrol(kNodes, "night");
  ASSERT_EQ(others.size(), 2U);
  EXPECT_EQ(others[1].not_ready, "it is down, it is drained, it does not answer Slurm");
  EXPECT_EQ(others[1].capacity.accelerators.at("gpu"), 4);
}

TEST(SlurmText, OnlyNodesThatAreDownAreLost) {
  const auto states = node_states_from_scontrol(kNodes);
  ASSERT_EQ(states.size(), 4U);
  EXPECT_FALSE(is_lost(states[1].second));
  EXPECT_TRUE(is_lost(states[2].second));
  EXPECT_TRUE(is_lost("DOWN*"));
  EXPECT_FALSE(is_lost("ALLOCATED+DRAIN"));
  EXPECT_FALSE(is_lost("POWERED_DOWN"));
}

TEST(SlurmText, RefusalsAreToldFromFailures) {
  EXPECT_TRUE(is_refusal("sbatch: error: Batch job submission failed: Requested node configuration is not available"));
  EXPECT_TRUE(is_refusal("sbatch: error: Batch job submission failed: Invalid node name specified"));
  EXPECT_TRUE(is_refusal("sbatch: error: invalid partition specified: nowhere"));
  EXPECT_FALSE(is_refusal("sbatch: error: Batch job submission failed: Unable to contact slurm controller"));
  EXPECT_FALSE(is_refusal("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying."));
}

TEST(SlurmText, TheFirstErrorIsSaidWithoutTheProgram) {
  EXPECT_EQ(first_error("\nsbatch: error: CPU count is too high\nsbatch: error: more\n"), "CPU count is too high");
  EXPECT_EQ(first_error(""), "it gives no reason");
}

}  // namespace
}  // namespace tesser::platform
