// Writes and reads of a peer's memory.

#include <vector>

#include "conformance.h"

namespace tesser::transport::testing {

TEST_P(Conformance, OneSidedWritesAndReadsOfEverySize) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    const std::vector<std::uint64_t> sizes{0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 4095, 4097, 8192, 8193, 65537, kMiB + 1};
    const std::uint64_t step = 2 * kMiB;
    auto region = must(peer.device->allocate(step * sizes.size()));
    const auto other = must(peer.channel().import_region(
        {peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, region->bytes()}, in(kLong)));
    Completion completion;
    if (peer.index == 0) {
      auto source = must(peer.device->allocate(2 * kMiB));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::uint64_t shift = i * 5 % 64;  // every alignment comes up, on both sides
        fill(source->data() + shift, sizes[i], i);
        must(peer.channel().write(*source, Strided::contiguous(shift, sizes[i]), *other,
                                  Strided::contiguous(step * i + i * 3 % 64, sizes[i]), completion));
        finish(peer, completion);
      }
      must(peer.channel().flush(completion));
      finish(peer, completion);
    }
    peer.arrive();
    if (peer.index == 1) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(holds(region->data() + step * i + i * 3 % 64, sizes[i], i)) << sizes[i];
      }
    } else {
      // Reads them back, all in flight at once, under one completion.
      auto back = must(peer.device->allocate(step * sizes.size()));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        must(peer.channel().read(*other, Strided::contiguous(step * i + i * 3 % 64, sizes[i]), *back,
                                 Strided::contiguous(step * i + i % 64, sizes[i]), completion));
      }
      finish(peer, completion);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(holds(back->data() + step * i + i % 64, sizes[i], i)) << sizes[i];
      }
    }
    peer.arrive();
  });
}

TEST_P(Conformance, RangesOutsideARegionAreRefused) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    auto region = must(peer.device->allocate(4096));
    const auto other = must(peer.channel().import_region(
        {peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, 4096}, in(kLong)));
    Completion completion;
    for (const Strided& bad : {Strided::contiguous(4095, 2), Strided::contiguous(~0ULL, 2), Strided{0, 2, {{2, 4095}}},
                               Strided{0, 1, {{1ULL << 33, 1ULL << 33}}}}) {
      const Strided good = Strided::contiguous(0, 2);
      const auto outcome = peer.channel().write(*region, good, *other, bad, completion);
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().kind, FailureKind::kInvalidArgument);
      EXPECT_FALSE(peer.channel().read(*other, bad, *region, good, completion));
      EXPECT_FALSE(peer.channel().write(*region, bad, *other, good, completion));
    }
    EXPECT_TRUE(completion.done());
    // Another device's handle, and one whose size is wrong.
    EXPECT_EQ(peer.channel().import_region(region->handle(), in(kLong)).error().kind, FailureKind::kWrongPeer);
    EXPECT_EQ(
        peer.channel()
            .import_region({peer.channel().peer_nonce(), region->handle().region, MemoryKind::kHost, 8192}, in(kLong))
            .error()
            .kind,
        FailureKind::kTypeMismatch);
    EXPECT_EQ(peer.channel()
                  .import_region({peer.channel().peer_nonce(), 999, MemoryKind::kHost, 4096},
                                 in(std::chrono::milliseconds(20)))
                  .error()
                  .kind,
              FailureKind::kTimeout);
  });
}

// Every alignment on both sides, thousands in flight under one completion.
TEST_P(Conformance, EveryAlignmentOfBothSides) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    constexpr std::uint64_t kStep = 384;
    constexpr std::uint64_t kPairs = 64 * 64;
    auto region = must(peer.device->allocate(kStep * kPairs));
    auto other_way = must(peer.device->allocate(kStep * kPairs));
    const auto other = counterpart(peer, *region);
    const auto bytes = [](std::uint64_t pair) { return 1 + pair * 7 % 200; };
    const auto source = [&](std::uint64_t pair) { return Strided::contiguous(kStep * pair + pair / 64, bytes(pair)); };
    const auto target = [&](std::uint64_t pair) { return Strided::contiguous(kStep * pair + pair % 64, bytes(pair)); };
    Completion completion;
    if (peer.index == 0) {
      for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
        fill(other_way->data() + source(pair).offset, bytes(pair), pair);
        must(peer.channel().write(*other_way, source(pair), *other, target(pair), completion));
      }
      must(peer.channel().flush(completion));
      finish(peer, completion);
    }
    peer.arrive();
    int bad = 0;
    if (peer.index == 1) {
      for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
        bad += holds(region->data() + target(pair).offset, bytes(pair), pair) ? 0 : 1;
        // Nothing beside it was touched.
        bad += region->data()[target(pair).offset + bytes(pair)] == std::byte{0} ? 0 : 1;
      }
    } else {
      for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
        must(peer.channel().read(*other, target(pair), *region, source(pair), completion));
      }
      finish(peer, completion);
      for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
        bad += holds(region->data() + source(pair).offset, bytes(pair), pair) ? 0 : 1;
      }
    }
    EXPECT_EQ(bad, 0);
    peer.arrive();
  });
}

// More rows than one system call takes pieces, and columns that are rows there.
TEST_P(Conformance, ThousandsOfRunsInOneWriteAndOneRead) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    const Shape whole{50, 60, 10};
    const Strided box = rectangle(64, DType::kInt16, whole, {3, 5, 2}, {40, 50, 3});
    const Strided dense = Strided::contiguous(8, box.bytes());
    auto region = must(peer.device->allocate(64 + 50 * 60 * 10 * 2));
    const auto other = counterpart(peer, *region);
    auto packed = must(peer.device->allocate(16'384));
    Completion completion;
    if (peer.index == 0) {
      fill(packed->data() + dense.offset, dense.run_bytes, 9);
      must(peer.channel().write(*packed, dense, *other, box, completion));
      must(peer.channel().flush(completion));
      finish(peer, completion);
      must(peer.channel().read(*other, box, *region, dense, completion));
      finish(peer, completion);
      EXPECT_TRUE(holds(region->data() + dense.offset, dense.run_bytes, 9));
    }
    peer.arrive();
    if (peer.index == 1) {
      std::vector<std::byte> gathered;
      std::size_t touched = 0;
      RunCursor cursor(box);
      while (cursor.left() != 0) {
        const std::byte* run = region->data() + cursor.offset();
        gathered.insert(gathered.end(), run, run + cursor.left_in_run());
        cursor.advance(cursor.left_in_run());
      }
      EXPECT_TRUE(holds(gathered.data(), gathered.size(), 9));
      for (const std::byte byte : region->span()) {
        touched += byte != std::byte{0} ? 1 : 0;
      }
      EXPECT_LE(touched, box.bytes());
    }
    peer.arrive();
  });
}

}  // namespace tesser::transport::testing
