// The little language of tesser::fused: a chain of elementwise operators evaluated tile by tile, whose intermediates
// never reach memory.
//
// A fused node's arguments are the expression's text, the list of its input values, and (for dropout) seed and step.
// Text: one instruction after another, separated by "; ", each `result = opcode(operand, ..., number, ...)`. Operands
// are i0, i1, ... (inputs), t0, t1, ... (intermediates) and the results t0, t1, ... or o0, o1, ... (outputs, which
// later instructions may read too). Every instruction computes float32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tesser::runtime {

enum class Opcode : std::uint8_t {
  // Two tensors.
  kAdd,  // a + number * b
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  // A tensor and numbers.
  kAddNumber,  // a + number
  kMulNumber,  // a * number
  kDivNumber,  // a / number
  kNumberSub,  // number - a
  kPow,        // exponent among those is_fused_exponent() names
  kClamp,      // min(max(a, low), high)
  kLeakyRelu,  // slope
  // One tensor.
  kNeg,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kTanh,
  kSigmoid,
  kRelu,
  kSilu,
  kGelu,
  kGeluTanh,
  kErf,
  kSin,
  kCos,
  // Derivatives: gradient first.
  kThresholdBackward,  // gradient where x > number
  kTanhBackward,       // result of tanh
  kSigmoidBackward,    // result of sigmoid
  kSiluBackward,       // argument
  kGeluBackward,       // argument
  kGeluTanhBackward,   // argument
  kHardtanhBackward,   // argument; low, high
  kLeakyReluBackward,  // argument; slope
  // Selection: mask first, as 0 and 1.
  kWhere,
  kMaskedFill,  // (a, mask, number)
  // tesser::dropout: (a, p, id).
  kDropout,
  kCount,
};

struct Operand {
  enum class Kind : std::uint8_t { kInput, kTemporary, kOutput };
  Kind kind = Kind::kInput;
  int index = 0;
  bool operator==(const Operand&) const = default;
};

struct Instruction {
  Opcode opcode = Opcode::kAdd;
  Operand result;
  std::vector<Operand> operands;  // at most 3
  std::vector<double> numbers;    // at most 2
  bool operator==(const Instruction&) const = default;
};

struct Expression {
  std::vector<Instruction> instructions;
  int inputs = 0;
  int temporaries = 0;
  int outputs = 0;
  bool operator==(const Expression&) const = default;

  bool uses_dropout() const;
};

std::string_view opcode_name(Opcode opcode);
bool is_fused_exponent(double exponent);

std::string print(const Expression& expression);
// Exact inverse of print(). kInvalidInput for text that is none.
Result<Expression> parse_expression(std::string_view text);

}  // namespace tesser::runtime
