#include "runtime/passes/fused_expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace tesser::runtime {
namespace {

struct OpcodeInfo {
  std::string_view name;
  int operands;
  int numbers;
};

constexpr std::array<OpcodeInfo, static_cast<std::size_t>(Opcode::kCount)> kOpcodes{{
    {"add", 2, 1},
    {"mul", 2, 0},
    {"div", 2, 0},
    {"maximum", 2, 0},
    {"minimum", 2, 0},
    {"add_number", 1, 1},
    {"mul_number", 1, 1},
    {"div_number", 1, 1},
    {"number_sub", 1, 1},
    {"pow", 1, 1},
    {"clamp", 1, 2},
    {"leaky_relu", 1, 1},
    {"neg", 1, 0},
    {"abs", 1, 0},
    {"exp", 1, 0},
    {"log", 1, 0},
    {"sqrt", 1, 0},
    {"rsqrt", 1, 0},
    {"reciprocal", 1, 0},
    {"tanh", 1, 0},
    {"sigmoid", 1, 0},
    {"relu", 1, 0},
    {"silu", 1, 0},
    {"gelu", 1, 0},
    {"gelu_tanh", 1, 0},
    {"erf", 1, 0},
    {"sin", 1, 0},
    {"cos", 1, 0},
    {"threshold_backward", 2, 1},
    {"tanh_backward", 2, 0},
    {"sigmoid_backward", 2, 0},
    {"silu_backward", 2, 0},
    {"gelu_backward", 2, 0},
    {"gelu_tanh_backward", 2, 0},
    {"hardtanh_backward", 2, 2},
    {"leaky_relu_backward", 2, 1},
    {"where", 3, 0},
    {"masked_fill", 2, 1},
    {"dropout", 1, 2},
}};

const OpcodeInfo& info(Opcode opcode) { return kOpcodes[static_cast<std::size_t>(opcode)]; }

void print_operand(std::string& text, const Operand& operand) {
  text += operand.kind == Operand::Kind::kInput ? 'i' : operand.kind == Operand::Kind::kTemporary ? 't' : 'o';
  text += std::to_string(operand.index);
}

void print_number(std::string& text, double number) {
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;  // shortest that reads back exactly
  text.append(buffer.data(), end);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Expression> parse() {
    Expression expression;
    do {
      Instruction instruction;
      const auto result = operand();
      if (!result || result->kind == Operand::Kind::kInput || !skip(" = ")) return std::nullopt;
      instruction.result = *result;
      const std::size_t open = text_.find('(', at_);
      if (open == std::string_view::npos) return std::nullopt;
      const auto name = text_.substr(at_, open - at_);
      const auto found =
          std::find_if(kOpcodes.begin(), kOpcodes.end(), [&](const auto& each) { return each.name == name; });
      if (found == kOpcodes.end()) return std::nullopt;
      instruction.opcode = static_cast<Opcode>(found - kOpcodes.begin());
      at_ = open + 1;
      for (int i = 0; i < found->operands; ++i) {
        if (i > 0 && !skip(", ")) return std::nullopt;
        const auto each = operand();
        if (!each) return std::nullopt;
        instruction.operands.push_back(*each);
      }
      for (int i = 0; i < found->numbers; ++i) {
        if (!skip(", ")) return std::nullopt;
        const auto each = number();
        if (!each) return std::nullopt;
        instruction.numbers.push_back(*each);
      }
      if (!skip(")")) return std::nullopt;
      count(expression, instruction.result);
      for (const Operand& each : instruction.operands) count(expression, each);
      expression.instructions.push_back(std::move(instruction));
    } while (skip("; "));
    if (at_ != text_.size()) return std::nullopt;
    return expression;
  }

 private:
  bool skip(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  std::optional<Operand> operand() {
    if (at_ >= text_.size()) return std::nullopt;
    Operand operand;
    switch (text_[at_]) {
      case 'i':
        operand.kind = Operand::Kind::kInput;
        break;
      case 't':
        operand.kind = Operand::Kind::kTemporary;
        break;
      case 'o':
        operand.kind = Operand::Kind::kOutput;
        break;
      default:
        return std::nullopt;
    }
    const auto [end, error] = std::from_chars(text_.data() + at_ + 1, text_.data() + text_.size(), operand.index);
    if (error != std::errc() || operand.index < 0) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return operand;
  }

  std::optional<double> number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  static void count(Expression& expression, const Operand& operand) {
    int& number = operand.kind == Operand::Kind::kInput       ? expression.inputs
                  : operand.kind == Operand::Kind::kTemporary ? expression.temporaries
                                                              : expression.outputs;
    number = std::max(number, operand.index + 1);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string_view opcode_name(Opcode opcode) { return info(opcode).name; }

bool is_fused_exponent(double exponent) {
  return exponent == 2 || exponent == 3 || exponent == 0.5 || exponent == -0.5 || exponent == -1 || exponent == -2;
}

bool Expression::uses_dropout() const {
  return std::any_of(instructions.begin(), instructions.end(),
                     [](const Instruction& instruction) { return instruction.opcode == Opcode::kDropout; });
}

std::string print(const Expression& expression) {
  std::string text;
  for (const Instruction& instruction : expression.instructions) {
    if (!text.empty()) text += "; ";
    print_operand(text, instruction.result);
    text += " = ";
    text += opcode_name(instruction.opcode);
    text += '(';
    bool first = true;
    for (const Operand& operand : instruction.operands) {
      if (!first) text += ", ";
      first = false;
      print_operand(text, operand);
    }
    for (const double number : instruction.numbers) {
      text += ", ";
      print_number(text, number);
    }
    text += ')';
  }
  return text;
}

Result<Expression> parse_expression(std::string_view text) {
  auto expression = Parser(text).parse();
  if (!expression) return invalid_input("'" + std::string(text) + "' is no fused expression");
  return std::move(*expression);
}

}  // namespace tesser::runtime
