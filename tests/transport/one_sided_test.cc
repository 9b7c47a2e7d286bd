// Writes and reads of a peer's memory.

#include <algorithm>
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

// More runs than one system call takes pieces, short ones and long ones, gathered and scattered on either side.
TEST_P(Conformance, HundredsOfRunsInOneWriteAndOneRead) {
  run_peers(GetParam(), 2, [](Peer& peer) {
    const Strided short_runs = rectangle(64, DType::kInt16, {50, 60, 10}, {3, 5, 2}, {40, 50, 3});
    const Strided long_runs = rectangle(8, DType::kUInt8, {601, 400}, {1, 50}, {600, 300});
    std::uint64_t seed = 0;
    for (const Strided& box : {short_runs, long_runs}) {
      ++seed;
      const Strided dense = Strided::contiguous(8, box.bytes());
      auto boxed = must(peer.device->allocate(*box.checked_end()));
      auto packed = must(peer.device->allocate(8 + box.bytes()));
      const auto their_box = counterpart(peer, *boxed);
      const auto their_packed = counterpart(peer, *packed);
      Completion completion;
      if (peer.index == 0) {
        // From one run here to many there, from there to many here, and back to one run there.
        fill(packed->data() + dense.offset, dense.run_bytes, seed);
        must(peer.channel().write(*packed, dense, *their_box, box, completion));
        must(peer.channel().flush(completion));
        finish(peer, completion);
        must(peer.channel().read(*their_box, box, *boxed, box, completion));
        finish(peer, completion);
        must(peer.channel().write(*boxed, box, *their_packed, dense, completion));
        must(peer.channel().flush(completion));
        finish(peer, completion);
      }
      peer.arrive();
      if (peer.index == 1) {
        EXPECT_TRUE(holds(packed->data() + dense.offset, dense.run_bytes, seed));
        std::vector<std::byte> gathered;
        for (RunCursor cursor(box); cursor.left() != 0; cursor.advance(cursor.left_in_run())) {
          std::byte* run = boxed->data() + cursor.offset();
          gathered.insert(gathered.end(), run, run + cursor.left_in_run());
          std::fill(run, run + cursor.left_in_run(), std::byte{0});
        }
        EXPECT_TRUE(holds(gathered.data(), gathered.size(), seed));
        // Nothing between the runs was touched.
        EXPECT_EQ(std::count(boxed->span().begin(), boxed->span().end(), std::byte{0}),
                  static_cast<std::ptrdiff_t>(boxed->bytes()));
      }
      peer.arrive();
    }
  });
}

}  // namespace tesser::transport::testing
