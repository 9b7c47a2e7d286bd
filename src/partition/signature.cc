#include "partition/signature.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <variant>

namespace tesser::partition {
namespace {

using graph::Argument;
using graph::ValueRef;

// Appends what tells signatures apart; every piece ends in a mark that no piece holds.
class SignatureText {
 public:
  explicit SignatureText(const graph::Program& program) : program_(program) {}

  const std::string& of(const graph::Node& node) {
    text_.clear();
    seen_.clear();
    text_ += node.op;
    for (const Argument& argument : node.args) {
      text_ += static_cast<char>('A' + argument.index());
      std::visit([this](const auto& content) { append(content); }, argument);
    }
    for (const graph::ValueId output : node.outputs) {
      text_ += '>';
      append(ValueRef{output});
    }
    return text_;
  }

 private:
  void append(graph::None /*none*/) {}
  void append(bool content) { text_ += content ? '1' : '0'; }
  void append(std::int64_t content) { append_bytes(content); }
  void append(double content) { append_bytes(content); }
  void append(const std::string& content) {
    append_bytes(content.size());
    text_ += content;
  }
  void append(const graph::Enumerator& content) {
    append(content.kind);
    append(content.name);
  }
  void append(ValueRef content) {
    if (content.id == graph::kNone) {
      text_ += '-';
      return;
    }
    const graph::Value& value = program_.value(content.id);
    text_ += static_cast<char>('a' + static_cast<int>(value.dtype));
    append(value.shape);
    // mul(x, x) needs x once, mul(x, y) two values.
    const auto first = std::find(seen_.begin(), seen_.end(), content.id);
    if (first != seen_.end()) {
      append_bytes(first - seen_.begin());
    }
    seen_.push_back(content.id);
  }
  template <typename Element>
  void append(const std::vector<Element>& content) {
    append_bytes(content.size());
    for (const auto& element : content) {
      append(static_cast<Element>(element));
    }
  }
  template <typename Number>
  void append_bytes(Number content) {
    static_assert(std::is_arithmetic_v<Number>);
    text_.append(reinterpret_cast<const char*>(&content), sizeof content);
  }

  const graph::Program& program_;
  std::string text_;
  std::vector<graph::ValueId> seen_;  // values of the node so far
};

}  // namespace

std::vector<int> node_signatures(const graph::Program& program) {
  std::unordered_map<std::string, int> numbers;
  std::vector<int> signatures;
  signatures.reserve(program.nodes.size());
  SignatureText text(program);
  for (const graph::Node& node : program.nodes) {
    signatures.push_back(numbers.try_emplace(text.of(node), static_cast<int>(numbers.size())).first->second);
  }
  return signatures;
}

std::vector<tdl::NodeSemantics> analyze_nodes(const graph::Program& program, const tdl::Catalogue& catalogue) {
  const std::vector<int> signatures = node_signatures(program);
  std::vector<tdl::NodeSemantics> distinct;
  std::vector<tdl::NodeSemantics> semantics;
  semantics.reserve(program.nodes.size());
  for (std::size_t index = 0; index < program.nodes.size(); ++index) {
    if (static_cast<std::size_t>(signatures[index]) == distinct.size()) {
      distinct.push_back(tdl::analyze(program, program.nodes[index], catalogue));
    }
    semantics.push_back(distinct[static_cast<std::size_t>(signatures[index])]);
  }
  return semantics;
}

}  // namespace tesser::partition
