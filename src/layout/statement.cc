#include "layout/statement.h"

#include <charconv>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "graph/operator_class.h"
#include "layout/shipped.h"

namespace tesser::layout {
namespace {

// Rank above which no operator states an order.
constexpr std::size_t kMaxRank = 8;

std::vector<std::string> words_of(std::string_view text, char separator) {
  std::vector<std::string> words;
  std::string word;
  std::istringstream stream{std::string(text)};
  while (std::getline(stream, word, separator)) {
    const std::size_t first = word.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    words.push_back(word.substr(first, word.find_last_not_of(' ') - first + 1));
  }
  return words;
}

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "query@0": the name is for people, the position counts.
std::optional<std::size_t> position(std::string_view text) {
  const std::size_t at = text.find('@');
  return at == std::string_view::npos ? std::nullopt : number(text.substr(at + 1));
}

// Of "like(query@0)": what stands in the parentheses, where the word is `name`.
std::optional<std::string_view> inside(std::string_view word, std::string_view name) {
  if (!word.starts_with(name) || word.size() < name.size() + 2 || word[name.size()] != '(' || word.back() != ')') {
    return std::nullopt;
  }
  return word.substr(name.size() + 1, word.size() - name.size() - 2);
}

std::optional<ArgumentRule> argument_rule(std::string_view word) {
  using Kind = ArgumentRule::Kind;
  static const std::unordered_map<std::string_view, Kind> kinds{{"rows", Kind::kRows},
                                                                {"any", Kind::kAny},
                                                                {"dense", Kind::kDense},
                                                                {"image", Kind::kImage},
                                                                {"inner", Kind::kInner}};
  if (const auto found = kinds.find(word); found != kinds.end()) return ArgumentRule{found->second, 0};
  if (const auto other = inside(word, "like")) {
    if (const auto place = position(*other)) return ArgumentRule{Kind::kLike, *place};
  }
  return std::nullopt;
}

std::optional<ResultRule> result_rule(std::string_view word) {
  using Kind = ResultRule::Kind;
  static const std::unordered_map<std::string_view, Kind> kinds{
      {"rows", Kind::kRows},
      {"unknown", Kind::kRows},  // and copied where it is otherwise
      {"iterator", Kind::kIterator},
      {"convolution", Kind::kConvolution},
      {"view", Kind::kView}};
  if (const auto found = kinds.find(word); found != kinds.end()) return ResultRule{found->second, {}, {}};
  if (const auto order = inside(word, "order")) {
    ResultRule rule{Kind::kOrder, {}, {}};
    std::vector<bool> named(kMaxRank);
    for (const std::string& text : words_of(*order, ' ')) {
      const auto dimension = number(text);
      if (!dimension || *dimension >= kMaxRank || named[*dimension]) return std::nullopt;
      named[*dimension] = true;
      rule.order.push_back(static_cast<std::int64_t>(*dimension));
    }
    for (std::size_t dimension = 0; dimension < rule.order.size(); ++dimension) {
      if (!named[dimension]) return std::nullopt;
    }
    return rule.order.empty() ? std::nullopt : std::optional(rule);
  }
  static constexpr std::pair<std::string_view, Kind> kOfArguments[] = {
      {"like", Kind::kLike}, {"image", Kind::kImage}, {"images", Kind::kImages}, {"iterator", Kind::kIterator}};
  for (const auto& [name, kind] : kOfArguments) {
    const auto names = inside(word, name);
    if (!names) continue;
    ResultRule rule{kind, {}, {}};
    for (const std::string& argument : words_of(*names, ' ')) {
      const auto place = position(argument);
      if (!place) return std::nullopt;
      rule.arguments.push_back(*place);
    }
    const bool takes_several = kind == Kind::kImage || kind == Kind::kIterator;
    if (!rule.arguments.empty() && (takes_several || rule.arguments.size() == 1)) return rule;
  }
  return std::nullopt;
}

// "name@0:inner", or a word for all arguments that have none of their own.
bool read_argument(const std::string& word, Statement& statement) {
  const std::size_t colon = word.find(':');
  const auto rule = argument_rule(std::string_view(word).substr(colon == std::string::npos ? 0 : colon + 1));
  if (!rule) return false;
  if (colon == std::string::npos) {
    statement.others = *rule;
    return true;
  }
  const auto place = position(std::string_view(word).substr(0, colon));
  return place && statement.arguments.emplace(*place, *rule).second;
}

}  // namespace

const ArgumentRule& Statement::argument(std::size_t position) const {
  const auto found = arguments.find(position);
  return found == arguments.end() ? others : found->second;
}

const ResultRule& Statement::result(std::size_t index) const {
  static const ResultRule rows;
  return results.empty() ? rows : results[std::min(index, results.size() - 1)];
}

Result<std::unordered_map<std::string, Statement>> parse_statements(std::string_view text) {
  std::unordered_map<std::string, Statement> statements;
  std::istringstream stream{std::string(text)};
  std::string line;
  for (int count = 1; std::getline(stream, line); ++count) {
    const std::vector<std::string> words = words_of(line.substr(0, line.find('#')), ' ');
    if (words.empty()) continue;
    const auto refuse = [&](const std::string& what) {
      return invalid_input("layout statements, line " + std::to_string(count) + ": " + what);
    };
    const std::size_t arrow = line.find(" -> ");
    if (arrow == std::string::npos) return refuse("'OPERATOR ARGUMENTS -> RESULTS' is expected");
    Statement statement;
    const std::vector<std::string> left = words_of(line.substr(0, arrow), ' ');
    for (std::size_t word = 1; word < left.size(); ++word) {
      if (!read_argument(left[word], statement)) return refuse("'" + left[word] + "' says nothing of an argument");
    }
    for (const std::string& word : words_of(line.substr(arrow + 4, line.find('#') - arrow - 4), ',')) {
      const auto rule = result_rule(word);
      if (!rule) return refuse("'" + word + "' says nothing of a result");
      statement.results.push_back(*rule);
    }
    if (left.empty() || !statements.emplace(left.front(), std::move(statement)).second) {
      return refuse("an operator that has no line yet is expected");
    }
  }
  return statements;
}

const Statement& statement_of(const std::string& op) {
  static const std::unordered_map<std::string, Statement> statements = [] {
    auto own = parse_statements(own_statements());
    auto measured = parse_statements(measured_statements());
    TESSER_CHECK(own && measured, (own ? measured : own).error().message);
    own->merge(std::move(*measured));  // a kernel of ours goes before PyTorch's
    return std::move(*own);
  }();
  static const Statement rows;
  static const Statement elementwise{
      {ArgumentRule::Kind::kAny, 0}, {}, {ResultRule{ResultRule::Kind::kIterator, {}, {}}}};
  if (const auto found = statements.find(op); found != statements.end()) return found->second;
  // Dropout of ours counts elements in row-major order.
  const bool walked = op.starts_with("aten::") && graph::operator_class(op) == graph::OperatorClass::kElementwise;
  return walked ? elementwise : rows;
}

}  // namespace tesser::layout
