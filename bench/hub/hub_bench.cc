// ./x bench hub's measurements of one system with one set of tensors; bench/hub/__main__.py calls it.
//
//     hub_bench limit MILLISECONDS PAGES
//     hub_bench tenants MILLISECONDS
//     hub_bench SYSTEM WORKERS OPTIMIZER MILLISECONDS CHUNK_BYTES PAGES ELEMENTS...
//
// SYSTEM: tesser-dedicated, tesser-network, tesser-colocated, wide. OPTIMIZER: sgd, adam. PAGES: 4KiB or 2MiB; of
// tesser's systems, and with 2MiB where the system has them.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "hub/exchange.h"
#include "hub/memory_limit.h"
#include "hub/tenants.h"
#include "hub/tesser.h"
#include "hub/wide.h"

namespace {

using namespace tesser::bench;

int refuse() {
  std::fprintf(stderr,
               "usage: hub_bench limit MILLISECONDS 4KiB|2MiB\n"
               "       hub_bench tenants MILLISECONDS\n"
               "       hub_bench tesser-dedicated|tesser-network|tesser-colocated|wide WORKERS sgd|adam MILLISECONDS "
               "CHUNK_BYTES 4KiB|2MiB ELEMENTS...\n");
  return 2;
}

bool are_pages(const std::string& word) { return word == "4KiB" || word == "2MiB"; }

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() == 3 && words[0] == "limit" && are_pages(words[2])) {
    return measure_memory_limit(std::chrono::milliseconds(std::atoi(words[1].c_str())), words[2] == "2MiB");
  }
  if (words.size() == 2 && words[0] == "tenants") {
    return measure_tenants(std::chrono::milliseconds(std::atoi(words[1].c_str())));
  }
  if (words.size() < 7 || (words[2] != "sgd" && words[2] != "adam") || !are_pages(words[5])) {
    return refuse();
  }
  Exchange exchange;
  exchange.workers = std::atoi(words[1].c_str());
  exchange.optimizer = words[2] == "sgd" ? Optimizer::kSgd : Optimizer::kAdam;
  exchange.time = std::chrono::milliseconds(std::atoi(words[3].c_str()));
  exchange.chunk_bytes = std::atoll(words[4].c_str());
  exchange.huge_pages = words[5] == "2MiB";
  for (std::size_t word = 6; word < words.size(); ++word) {
    exchange.elements.push_back(std::atoll(words[word].c_str()));
    if (exchange.elements.back() < 1) {
      return refuse();
    }
  }
  if (exchange.workers < 1 || exchange.workers > Meeting::kMostWorkers) {
    return refuse();
  }
  if (words[0] == "wide") {
    return measure_wide(exchange);
  }
  if (words[0] == "tesser-dedicated") {
    return measure_dedicated(exchange, false);
  }
  if (words[0] == "tesser-network") {
    return measure_dedicated(exchange, true);
  }
  if (words[0] == "tesser-colocated") {
    return measure_colocated(exchange);
  }
  return refuse();
}
