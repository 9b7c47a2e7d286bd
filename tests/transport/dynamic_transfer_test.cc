// Transfers whose shape is known when they are sent.

#include <thread>

#include "conformance.h"
#include "transport/dynamic_transfer.h"
#include "transport/registered_arena.h"

namespace tesser::transport::testing {

TEST_P(Conformance, DynamicTransfersOfManyShapes) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    std::vector<Shape> shapes{{},         {0}, {1}, {3, 0, 5}, {17}, {4, 5}, {2, 3, 4, 5}, {1, 1, 1, 1, 1, 1, 1, 2},
                              {1000, 257}};
    for (int i = 0; i < 100; ++i) {
      shapes.push_back({i, i * 7 % 40});
    }
    auto arena = RegisteredArena(must(peer.device->allocate(4 * kMiB)));
    if (peer.index == 0) {
      auto sender = must(DynamicSender::open(peer.shared_channel(), "d", arena.region()));
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::uint64_t bytes = element_count(shapes[i]) * 4;
        const std::uint64_t offset = must(arena.allocate(bytes));
        fill(arena.at(offset), bytes, i);
        wait_until(peer, [&] { return must(sender.try_send(DType::kFloat32, shapes[i], offset)); });
        wait_until(peer, [&] { return must(sender.released()); });
        arena.free(offset);
      }
      EXPECT_FALSE(sender.try_send(DType::kFloat32, Shape(9, 1), 0));
      EXPECT_FALSE(sender.try_send(DType::kFloat32, {1 << 20, 2}, 0));
    } else {
      auto receiver = must(DynamicReceiver::open(peer.shared_channel(), "d"));
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const IncomingTensor* tensor = nullptr;
        wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
        EXPECT_EQ(tensor->shape, shapes[i]);
        EXPECT_EQ(tensor->dtype, DType::kFloat32);
        EXPECT_EQ(tensor->in_place != nullptr, peer.channel().path().path < Path::kUcx);
        if (tensor->in_place != nullptr) {
          EXPECT_TRUE(holds(tensor->in_place, tensor->bytes, i));
        }
        Completion completion;
        const std::uint64_t offset = must(receiver.receive(arena, completion));
        finish(peer, completion);
        EXPECT_TRUE(holds(arena.at(offset), tensor->bytes, i)) << shape_text(shapes[i]);
        receiver.release();
        arena.free(offset);
      }
      EXPECT_EQ(arena.figures().used, 0U);
    }
    peer.arrive();
  });
}

TEST_P(Conformance, OneDynamicTensorIsOutUntilItIsReleased) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    if (peer.index == 0) {
      auto sender = must(DynamicSender::open(peer.shared_channel(), "d", region));
      wait_until(peer, [&] { return must(sender.try_send(DType::kUInt8, {10}, 0)); });
      peer.arrive();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(must(sender.released()));
      EXPECT_FALSE(must(sender.try_send(DType::kUInt8, {20}, 0)));
      peer.arrive();
      wait_until(peer, [&] { return must(sender.try_send(DType::kUInt8, {20}, 0)); });
      peer.arrive();
    } else {
      auto receiver = must(DynamicReceiver::open(peer.shared_channel(), "d"));
      const IncomingTensor* tensor = nullptr;
      wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
      EXPECT_EQ(tensor->shape, Shape{10});
      peer.arrive();
      peer.arrive();
      EXPECT_EQ(must(receiver.poll()), tensor);
      receiver.release();
      wait_until(peer, [&] { return (tensor = must(receiver.poll())) != nullptr; });
      EXPECT_EQ(tensor->shape, Shape{20});
      receiver.release();
      peer.arrive();
    }
  });
}

}  // namespace tesser::transport::testing
