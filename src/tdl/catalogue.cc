#include "tdl/catalogue.h"

#include "base/check.h"
#include "base/file.h"
#include "graph/operator_class.h"
#include "tdl/parse.h"
#include "tdl/shipped.h"

namespace tesser::tdl {

const Catalogue& Catalogue::shipped() {
  static const Catalogue catalogue = [] {
    Catalogue filled;
    for (const ShippedText& text : shipped_texts()) {
      const Result<void> added = filled.add(text.text, std::string(text.file));
      TESSER_CHECK(added.has_value(), added.error().message);
    }
    return filled;
  }();
  return catalogue;
}

Result<void> Catalogue::add(std::string_view text, const std::string& file) {
  TESSER_ASSIGN_OR_RETURN(auto descriptions, parse(text, file));
  for (auto& description : descriptions) {
    const std::string op = description->op;
    descriptions_[op] = std::move(description);
  }
  return {};
}

Result<void> Catalogue::add_file(const std::string& path) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 24;
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kLargest));
  return add(text, path);
}

const Description* Catalogue::find(std::string_view op) const {
  auto found = descriptions_.find(op);
  if (found == descriptions_.end()) {
    found = descriptions_.find(graph::base_name(op));
  }
  return found == descriptions_.end() ? nullptr : found->second.get();
}

std::vector<std::string> Catalogue::operators() const {
  std::vector<std::string> names;
  names.reserve(descriptions_.size());
  for (const auto& [op, description] : descriptions_) {
    names.push_back(op);
  }
  return names;
}

}  // namespace tesser::tdl
