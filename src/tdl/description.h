// Descriptions as parsed (docs/tdl.md): expressions with every name resolved.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/program.h"

namespace tesser::tdl {

// Functions of indices, attributes and local calls. Any other name may be called in an expression over elements.
enum class Function : std::uint8_t {
  kSize,
  kShape,
  kRank,
  kExtent,
  kLength,
  kProduct,
  kMin,
  kMax,
  kWith,
  kWithout,
  kInsert,
  kAt,
  kSwap,
  kOrder,
  kLast,
  kDropLast,
  kOffset,
  kSizes,
  kExists,
  kGiven,
  kWanted,
  kLocalShape,
  kLocalSizes,
  kBegin,
  kBeginOf,
  kSizeOf,
  kPadded,
  kElementwise,  // unknown: of elements
};

enum class Operation : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kEqual,
  kUnequal,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kAnd,
  kOr
};

// Lines and columns count from 1.
struct Position {
  int line = 0;
  int column = 0;
};

struct Expression {
  enum class Kind : std::uint8_t {
    kLiteral,    // literal
    kAttribute,  // id: parameter
    kTensor,     // id: parameter; the argument of a function such as size(x, 0), or of a local call
    kResult,     // id: result; the argument of a function
    kConstant,   // id: of Description::constants
    kVariable,   // id: of Description::variables; a pack stands for all its variables
    kWhole,      // the same, written :name
    kAccess,     // id: parameter; children: its indices
    kCall,       // name; children: arguments
    kReduction,  // name: sum, max, min, prod; children: the body, then what it binds (variables or at(pack, axes))
    kNegate,     // children: one
    kNot,        // children: one
    kBinary,     // name: + - * / == != < <= > >= and or; children: two
    kIsNull,     // children: one
    kElement,    // children: list, index
    kList,       // children: elements
  };
  Kind kind = Kind::kLiteral;
  bool pack = false;  // written name...
  int id = -1;        // as above; of kCall a Function, of kBinary an Operation
  std::string name;   // as written, or the operation
  graph::Argument literal;
  std::vector<Expression> children;
  Position position;
};

struct Parameter {
  std::string name;
  bool list = false;                     // of tensors
  bool tensor = false;                   // some equation reads it, or it is a list of tensors
  std::optional<graph::Argument> value;  // when the call leaves it out
};

struct ResultName {
  std::string name;
  bool list = false;
};

// A variable, or a pack of variables.
struct VariableName {
  std::string name;
  bool pack = false;
  bool whole = false;
};

// A term of an equation's right side.
struct Term {
  std::string reduction;  // "" when it is not one that may be cut
  std::vector<const Expression*> bound;
  std::vector<const Expression*> accesses;
};

struct Equation {
  int result = 0;
  int reshaped = -1;              // parameter of reshape(); then there is neither index nor right side
  std::vector<Expression> index;  // of the result
  Expression right;
  std::optional<Expression> condition;
  Position position;
  std::string text;            // as written, on one line
  std::vector<int> variables;  // that stand anywhere in it

  // Of the right side. `buried` are variables bound by reductions that are not at the top.
  std::vector<Term> terms;
  std::vector<const Expression*> buried;
};

struct Extent {
  Expression variable;
  Expression value;
};

struct Constant {
  std::string name;
  Expression value;
  Position position;
};

// Where the local result begins in the whole, a value for each dimension; with `ends`, where it ends.
struct Origin {
  int result = 0;
  std::vector<Expression> begins;
  std::vector<std::optional<Expression>> ends;
};

struct LocalClause {
  std::string op;
  std::vector<Expression> arguments;
  std::vector<Origin> origins;
  std::optional<Expression> condition;
  Position position;
  std::string text;
};

struct CheckClause {
  std::string text;  // after the word "check"
  Position position;
};

// Not to be copied or moved once resolved: terms point at expressions.
struct Description {
  Description() = default;
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  std::string op;  // "aten::mm"
  std::string file;
  Position position;
  bool elementwise = false;  // nothing below is meant then
  std::vector<Parameter> parameters;
  std::vector<ResultName> results;
  std::vector<VariableName> variables;
  std::vector<Equation> equations;
  std::vector<Extent> extents;
  std::vector<Constant> constants;
  std::vector<LocalClause> locals;
  std::vector<CheckClause> checks;

  std::string where() const { return file + ":" + std::to_string(position.line) + " (" + op + ")"; }
};

}  // namespace tesser::tdl
