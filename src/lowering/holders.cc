#include "lowering/holders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace tesser::lowering {

Distances::Distances(const std::vector<partition::Level>& levels) {
  for (const partition::Level& level : levels) {
    workers_ *= level.parts;
  }
  int size = workers_;
  for (const partition::Level& level : levels) {
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

}  // namespace tesser::lowering
