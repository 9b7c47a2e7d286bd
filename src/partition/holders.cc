#include "partition/holders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "partition/placement.h"

namespace tesser::partition {

Distances::Distances(const std::vector<Level>& levels) {
  for (const Level& level : levels) {
    workers_ *= level.parts;
  }
  int size = workers_;
  for (const Level& level : levels) {
    size /= level.parts;
    group_sizes_.push_back(size);
  }
}

int Distances::nearness(int a, int b) const {
  int common = 0;
  for (const int size : group_sizes_) {
    if (a / size != b / size) {
      return common;
    }
    ++common;
  }
  return common;
}

std::vector<Piece> cover(const tdl::Region& needed, const std::vector<tdl::Region>& held, int taker,
                         const Distances& distances) {
  const std::int64_t elements = tdl::volume(needed);
  std::vector<Piece> pieces;
  if (elements == 0) {
    return pieces;
  }
  std::vector<std::pair<tdl::Region, std::vector<int>>> copies;  // what there is to take, and who has it
  for (int worker = 0; worker < distances.workers(); ++worker) {
    const tdl::Region& region = held[static_cast<std::size_t>(worker)];
    if (region.size() != needed.size()) {
      continue;  // the empty part of a scalar
    }
    tdl::Region common = tdl::intersection(region, needed);
    if (tdl::volume(common) == 0) {
      continue;
    }
    const auto same =
        std::find_if(copies.begin(), copies.end(), [&](const auto& entry) { return entry.first == common; });
    if (same == copies.end()) {
      copies.push_back({std::move(common), {worker}});
    } else {
      same->second.push_back(worker);
    }
  }
  std::int64_t covered = 0;
  for (auto& [region, workers] : copies) {
    int nearest = -1;
    for (const int worker : workers) {
      nearest = std::max(nearest, distances.nearness(worker, taker));
    }
    std::erase_if(workers, [&](int worker) { return distances.nearness(worker, taker) != nearest; });
    pieces.push_back({workers[static_cast<std::size_t>(taker) % workers.size()], region});
    covered += tdl::volume(region);
  }
  TESSER_CHECK(covered == elements, "the holders' regions cover " + tdl::region_text(needed) + " once");
  return pieces;
}

std::int64_t part_number(const tdl::NodeSemantics& semantics, std::size_t result, std::span<const Cut> cuts,
                         std::span<const Level> levels, std::span<const int> digits) {
  std::int64_t number = 0;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    for (const tdl::Strategy& strategy : semantics.strategies()) {
      if (strategy.variable == cuts[level].axis && tdl::is_reduction(strategy.outcomes[result])) {
        number = number * levels[level].parts + digits[level];
      }
    }
  }
  return number;
}

bool adds_shares(std::int64_t parts, std::int64_t owners, std::int64_t elements) {
  return parts > 2 && owners > 1 && elements >= kFewestSharedElements;
}

std::vector<tdl::Region> shares_of(const std::vector<tdl::Region>& regions, std::span<const Cut> cuts,
                                   std::span<const Level> levels, std::int64_t parts) {
  std::vector<tdl::Region> shares = regions;
  const std::int64_t owners = owners_of_a_part(cuts, levels);
  for (std::size_t worker = 0; worker < regions.size(); ++worker) {
    if (!adds_shares(parts, owners, tdl::volume(regions[worker]))) {
      continue;
    }
    std::int64_t place = 0;  // among the owners of the same rectangle
    std::int64_t size = 1;
    auto rest = static_cast<std::int64_t>(worker);
    for (std::size_t level = levels.size(); level-- > 0; rest /= levels[level].parts) {
      if (cuts[level].axis == kReplicated) {
        place += rest % levels[level].parts * size;
        size *= levels[level].parts;
      }
    }
    const auto longest = std::max_element(shares[worker].begin(), shares[worker].end(),
                                          [](const auto& a, const auto& b) { return a.size() < b.size(); });
    *longest = tdl::part_of(*longest, owners, place);
  }
  return shares;
}

}  // namespace tesser::partition
