// Nodes and what is free on them, indexed for a scheduler: nodes that are alike are one class, so that looking for
// places costs as much as there are classes, however many nodes there are.
//
// One thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "platform/job/resources.h"

namespace tesser::platform {

// Processors, memory and up to 14 types of accelerators.
inline constexpr std::size_t kMostKinds = 16;
// Amounts of each kind: [0] thousandths of processors, [1] bytes of memory, then accelerators in the order of their
// types' names.
using Amounts = std::array<std::int64_t, kMostKinds>;

// Which type of accelerator stands where in Amounts.
class ResourceKinds {
 public:
  // kInvalidInput when the nodes have more types than there is room for.
  static Result<ResourceKinds> of(const std::vector<Node>& nodes);

  // What a learner asks for. A type that no node has becomes an amount that no node has.
  Amounts asked(const Resources& resources) const;
  // What a node has: memory 0, not counted, is more than anybody asks for.
  Amounts offered(const Resources& resources) const;
  // What a team may have: a kind that stands for 0 there is not bounded; types that no node has are left out.
  Amounts bounded(const Resources& resources) const;
  // "1.5 cpus", "2.0 GiB", "3 v100"
  std::string text(std::size_t kind, std::int64_t amount) const;

 private:
  std::vector<std::string> accelerators_;
};

// How many learners that ask for `each` fit into `free`; no more than `most`.
std::int64_t learners_that_fit(const Amounts& free, const Amounts& each, std::int64_t most);
Amounts operator*(const Amounts& amounts, std::int64_t times);
Amounts& operator+=(Amounts& to, const Amounts& more);
Amounts& operator-=(Amounts& from, const Amounts& less);

class Cluster {
 public:
  // Nodes with the same capacity and the same amounts free; in the order of their keys.
  struct ClassKey {
    int capacity = 0;  // number of a capacity
    Amounts free{};
    auto operator<=>(const ClassKey&) const = default;
  };
  using Classes = std::map<ClassKey, std::vector<int>>;

  Cluster(const std::vector<Node>& nodes, const ResourceKinds& kinds);

  int size() const { return static_cast<int>(nodes_.size()); }
  const std::string& name(int node) const { return nodes_[static_cast<std::size_t>(node)].name; }
  // -1: no node has this name.
  int node_named(const std::string& name) const;
  // Takes new learners.
  bool is_open(int node) const { return nodes_[static_cast<std::size_t>(node)].is_open; }
  bool is_draining(int node) const { return nodes_[static_cast<std::size_t>(node)].is_draining; }
  bool drains() const { return drains_; }  // some node
  const Amounts& free(int node) const { return nodes_[static_cast<std::size_t>(node)].free; }
  const Amounts& capacity(int node) const { return capacities_[nodes_[static_cast<std::size_t>(node)].capacity]; }
  const Amounts& capacity(const ClassKey& key) const { return capacities_[static_cast<std::size_t>(key.capacity)]; }

  // Of open nodes alone.
  const Classes& classes() const { return classes_; }

  // What is free may become less than nothing, where a node has lost what it had.
  void take(int node, const Amounts& amounts);
  void give(int node, const Amounts& amounts);

 private:
  struct Entry {
    std::string name;
    std::size_t capacity = 0;
    Amounts free{};
    bool is_open = true;
    bool is_draining = false;
    std::size_t position = 0;  // in its class
  };

  void enter(int node);
  void leave(int node);

  std::vector<Amounts> capacities_;
  std::vector<Entry> nodes_;
  std::unordered_map<std::string, int> numbers_;
  Classes classes_;
  bool drains_ = false;
};

}  // namespace tesser::platform
