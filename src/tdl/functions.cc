#include "tdl/functions.h"

namespace tesser::tdl {
namespace {

using First = FirstArgument;

constexpr FunctionName kFunctions[] = {
    {"size", Function::kSize, 2, 2, First::kTensor, false, "a tensor and a dimension"},
    {"shape", Function::kShape, 1, 1, First::kTensor, false, "a tensor"},
    {"rank", Function::kRank, 1, 1, First::kTensor, false, "a tensor"},
    {"extent", Function::kExtent, 1, 1, First::kVariable, false, "a variable"},
    {"length", Function::kLength, 1, 1, First::kValue, false, "a list"},
    {"product", Function::kProduct, 1, 1, First::kValue, false, "a list"},
    {"min", Function::kMin, 2, 2, First::kValue, false, "two values"},
    {"max", Function::kMax, 2, 2, First::kValue, false, "two values"},
    {"with", Function::kWith, 3, 3, First::kValue, false, "a pack, axes and an index"},
    {"without", Function::kWithout, 2, 2, First::kValue, false, "a pack and axes"},
    {"insert", Function::kInsert, 3, 3, First::kValue, false, "a pack, axes and an index"},
    {"at", Function::kAt, 2, 2, First::kValue, false, "a pack and axes"},
    {"swap", Function::kSwap, 3, 3, First::kValue, false, "a pack and two axes"},
    {"order", Function::kOrder, 2, 2, First::kValue, false, "a pack and the order of its axes"},
    {"last", Function::kLast, 2, 2, First::kValue, false, "a pack and how many"},
    {"drop_last", Function::kDropLast, 2, 2, First::kValue, false, "a pack and how many"},
    {"offset", Function::kOffset, 1, 1, First::kTensor, false, "a list of tensors"},
    {"sizes", Function::kSizes, 2, 2, First::kTensor, false, "a list of tensors and a dimension"},
    {"exists", Function::kExists, 1, 1, First::kParameter, false, "an argument"},
    {"given", Function::kGiven, 1, 1, First::kParameter, false, "a list of tensors"},
    {"wanted", Function::kWanted, 1, 1, First::kTensor, false, "a result"},
    {"local_shape", Function::kLocalShape, 1, 1, First::kTensor, true, "a tensor"},
    {"local_sizes", Function::kLocalSizes, 2, 2, First::kTensor, true, "a list of tensors and a dimension"},
    {"begin", Function::kBegin, 1, 1, First::kTensor, true, "a tensor"},
    {"begin_of", Function::kBeginOf, 1, 1, First::kVariable, true, "a variable"},
    {"size_of", Function::kSizeOf, 1, 1, First::kVariable, true, "a variable"},
    {"padded", Function::kPadded, 1, 1, First::kParameter, true, "an argument"},
};

}  // namespace

const FunctionName* find_function(std::string_view name) {
  for (const FunctionName& function : kFunctions) {
    if (function.name == name) {
      return &function;
    }
  }
  return nullptr;
}

}  // namespace tesser::tdl
