#include "lowering/verify_order.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::lowering {
namespace {

using graph::Argument;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;
using testing::AllOf;
using testing::HasSubstr;

using Integers = std::vector<std::int64_t>;

ValueId add_value(Program& program, const std::string& name, DType dtype, Shape shape) {
  graph::Value value;
  value.name = name;
  value.dtype = dtype;
  value.shape = std::move(shape);
  program.values.push_back(std::move(value));
  return static_cast<ValueId>(program.values.size()) - 1;
}

void add_node(Program& program, std::string name, std::string op, std::vector<Argument> args,
              std::vector<ValueId> outputs = {}) {
  graph::Node node;
  node.name = std::move(name);
  node.op = std::move(op);
  node.args = std::move(args);
  node.outputs = std::move(outputs);
  program.nodes.push_back(std::move(node));
}

// Each worker has x[4], sends rows 0 to 2 of it and receives as many.
class VerifyOrder : public testing::Test {
 protected:
  VerifyOrder() {
    for (Program& worker : workers_) add_value(worker, "x", DType::kFloat32, {4});
  }

  void open(int worker, int from, std::int64_t transfer, Integers size = {2}, DType dtype = DType::kFloat32) {
    Program& program = workers_[static_cast<std::size_t>(worker)];
    const std::string name = "open " + std::to_string(transfer);
    const ValueId buffer = add_value(program, name, dtype, size);
    add_node(program, name, "tesser::open",
             {Integers{from}, Integers{transfer}, Integers{0}, std::move(size), Integers{}}, {buffer});
  }
  void send(int worker, std::int64_t to, std::int64_t transfer) {
    add_node(workers_[static_cast<std::size_t>(worker)], "send " + std::to_string(transfer), "tesser::send",
             {ValueRef{0}, to, transfer, Integers{0}, Integers{2}, Integers{}});
  }
  void sent(int worker, std::int64_t to, std::int64_t transfer) {
    add_node(workers_[static_cast<std::size_t>(worker)], "sent " + std::to_string(transfer), "tesser::sent",
             {ValueRef{0}, to, transfer});
  }
  void receive(int worker, std::int64_t transfer) {
    Program& program = workers_[static_cast<std::size_t>(worker)];
    const std::string name = "receive " + std::to_string(transfer);
    add_node(program, name, "tesser::receive",
             {ValueRef{0}, Integers{transfer}, Integers{}, Integers{}, Integers{}, Integers{}},
             {add_value(program, name, DType::kFloat32, {2})});
  }
  // The error's message; empty when the order is right.
  std::string error() const {
    const Result<void> result = verify_order(workers_);
    if (result.has_value()) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
    return result.error().message;
  }

  std::vector<Program> workers_ = std::vector<Program>(2);
};

TEST_F(VerifyOrder, AnExchangeEnds) {
  open(0, 1, 7);
  send(0, 1, 8);
  receive(0, 7);
  sent(0, 1, 8);
  open(1, 0, 8);
  send(1, 0, 7);
  receive(1, 8);
  sent(1, 0, 7);
  EXPECT_EQ(error(), "");
}

TEST_F(VerifyOrder, BothWhoReceiveBeforeTheySendAreNamed) {
  open(0, 1, 7);
  receive(0, 7);
  send(0, 1, 8);
  open(1, 0, 8);
  receive(1, 8);
  send(1, 0, 7);
  EXPECT_THAT(error(), AllOf(HasSubstr("wait for each other for ever"),
                             HasSubstr("worker 0 at node receive 7 waits for worker 1 to send transfer 7"),
                             HasSubstr("worker 1 at node receive 8 waits for worker 0 to send transfer 8")));
}

TEST_F(VerifyOrder, ASendThatIsOpenedOnlyAfterItsAnswerIsNamed) {
  open(0, 1, 7);
  send(0, 1, 8);
  receive(0, 7);
  open(1, 0, 8);
  std::swap(workers_[0].nodes[0], workers_[0].nodes[1]);  // worker 0 sends, then opens
  receive(1, 8);
  send(1, 0, 7);
  EXPECT_EQ(error(), "");
  std::swap(workers_[1].nodes[0], workers_[1].nodes[2]);  // worker 1 sends and receives before it opens
  EXPECT_THAT(error(), AllOf(HasSubstr("worker 0 at node send 8 waits for worker 1 to open transfer 8"),
                             HasSubstr("worker 1 at node send 7 waits for worker 0 to open transfer 7")));
}

TEST_F(VerifyOrder, ATransferHappensOnce) {
  open(0, 1, 7);
  receive(0, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is opened 1, sent 0 and received 1 times; each happens once"));
  send(1, 0, 7);
  EXPECT_EQ(error(), "");
  send(1, 0, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is opened 1, sent 2 and received 1 times; each happens once"));
}

TEST_F(VerifyOrder, BothEndsMeanTheSame) {
  open(0, 1, 7, {3});
  receive(0, 7);
  send(1, 0, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is sent as float32[2], but opened as float32[3]"));
  workers_[0].nodes.clear();
  open(0, 1, 7, {2}, DType::kInt64);
  receive(0, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is sent as float32[2], but opened as int64[2]"));
  workers_[0].nodes.clear();
  open(0, 0, 7);
  receive(0, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is sent by worker 1 to 0, but opened by worker 0 for 0"));
}

TEST_F(VerifyOrder, OnlyWhoOpenedReceivesAndOnlyWhoSentWaitsForIt) {
  open(0, 1, 7);
  send(1, 0, 7);
  receive(1, 7);
  EXPECT_THAT(error(), HasSubstr("transfer 7 is opened by worker 0, but received by worker 1"));
  workers_[1].nodes.pop_back();
  receive(0, 7);
  sent(0, 0, 7);
  EXPECT_THAT(error(), HasSubstr("worker 0: node sent 7 waits for transfer 7, which it does not send"));
}

TEST_F(VerifyOrder, ArgumentsOfAnotherOperatorAreNamed) {
  open(0, 1, 7);
  workers_[0].nodes[0].args[3] = Integers{2, 2};
  EXPECT_THAT(error(), HasSubstr("worker 0: node open 7: the arguments are not those of tesser::open"));
  workers_[0].nodes.clear();
  send(1, 0, 7);
  workers_[1].nodes[0].args.pop_back();
  workers_[1].nodes[0].args.pop_back();
  EXPECT_THAT(error(), HasSubstr("worker 1: node send 7: the arguments are not those of tesser::send"));
  workers_[1].nodes.clear();
  receive(1, 7);
  workers_[1].nodes[0].args[1] = true;
  EXPECT_THAT(error(), HasSubstr("worker 1: node receive 7: the arguments are not those of tesser::receive"));
}

}  // namespace
}  // namespace tesser::lowering
