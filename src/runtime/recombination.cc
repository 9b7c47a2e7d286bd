#include "runtime/recombination.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace tesser::runtime {
namespace {

using tdl::Outcome;
using tdl::Region;
using tdl::TensorData;

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls use(place) for each place of a region, in row-major order; a place has one coordinate a dimension.
template <typename Use>
void over_region(const Region& region, const Use& use) {
  std::vector<std::int64_t> place;
  for (const tdl::Interval& interval : region) {
    if (interval.empty()) return;
    place.push_back(interval.begin);
  }
  while (true) {
    use(place);
    std::size_t d = region.size();
    while (d-- > 0) {
      if (++place[d] < region[d].end) break;
      place[d] = region[d].begin;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

std::int64_t offset_of(const std::vector<std::int64_t>& place, const Region& origin,
                       const std::vector<std::int64_t>& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < place.size(); ++d) {
    offset += (place[d] - (origin.empty() ? 0 : origin[d].begin)) * strides[d];
  }
  return offset;
}

// Calls use with a null pointer of the element's type.
template <typename Use>
auto with_element_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat32:
      return use(static_cast<float*>(nullptr));
    case DType::kFloat64:
      return use(static_cast<double*>(nullptr));
    case DType::kInt64:
      return use(static_cast<std::int64_t*>(nullptr));
    case DType::kInt32:
      return use(static_cast<std::int32_t*>(nullptr));
    case DType::kInt16:
      return use(static_cast<std::int16_t*>(nullptr));
    case DType::kInt8:
      return use(static_cast<std::int8_t*>(nullptr));
    default:
      TESSER_CHECK(dtype == DType::kBool || dtype == DType::kUInt8, std::string(dtype_name(dtype)));
      return use(static_cast<std::uint8_t*>(nullptr));
  }
}

std::string place_text(const std::vector<std::int64_t>& place) {
  std::string text = "[";
  for (std::size_t d = 0; d < place.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(place[d]);
  return text + "]";
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", number);
  return text;
}

template <typename Element>
Element combined(Outcome outcome, Element a, Element b) {
  switch (outcome) {
    case Outcome::kSum:
      return static_cast<Element>(a + b);
    case Outcome::kMax:
      return std::max(a, b);
    case Outcome::kMin:
      return std::min(a, b);
    default:
      return static_cast<Element>(a * b);
  }
}

bool close(double a, double b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(a - b) <= tolerance;
}

template <typename Element>
std::optional<std::string> compare(const std::vector<ResultPart>& parts, const TensorData& expected, double tolerance) {
  const auto count = static_cast<std::size_t>(element_count(expected.shape));
  std::vector<Element> elements(count);
  std::vector<bool> made(count, false);
  std::optional<std::string> wrong;
  const std::vector<std::int64_t> strides = strides_of(expected.shape);
  for (const ResultPart& part : parts) {
    const Outcome outcome = part.local.outcome;
    const bool reduced = outcome != Outcome::kConcatenate && outcome != Outcome::kReplicated;
    if (reduced && part.local.repeated) continue;
    const auto* source = reinterpret_cast<const Element*>(part.data.bytes.data());
    const std::vector<std::int64_t> source_strides = strides_of(part.data.shape);
    over_region(part.local.region, [&](const std::vector<std::int64_t>& place) {
      if (wrong) return;
      const auto at = static_cast<std::size_t>(offset_of(place, {}, strides));
      const Element element = source[offset_of(place, part.local.produced, source_strides)];
      if (!made[at]) {
        made[at] = true;
        elements[at] = element;
      } else if (reduced) {
        elements[at] = combined(outcome, elements[at], element);
      } else if (outcome == Outcome::kConcatenate && !part.local.repeated) {
        wrong = "two parts make element " + place_text(place);
      } else if (!close(static_cast<double>(elements[at]), static_cast<double>(element), tolerance)) {
        wrong = "parts that should make the same have " + number_text(static_cast<double>(elements[at])) + " and " +
                number_text(static_cast<double>(element)) + " at " + place_text(place);
      }
    });
    if (wrong) return wrong;
  }
  Region everything = tdl::whole(expected.shape);
  const auto* whole = reinterpret_cast<const Element*>(expected.bytes.data());
  over_region(everything, [&](const std::vector<std::int64_t>& place) {
    if (wrong) return;
    const auto at = static_cast<std::size_t>(offset_of(place, {}, strides));
    if (!made[at]) {
      wrong = "no part makes element " + place_text(place);
    } else if (!close(static_cast<double>(elements[at]), static_cast<double>(whole[at]), tolerance)) {
      wrong = "differs first at " + place_text(place) + ": " + number_text(static_cast<double>(whole[at])) +
              " in the whole, " + number_text(static_cast<double>(elements[at])) + " from the parts";
    }
  });
  return wrong;
}

}  // namespace

std::optional<std::string> compare_parts(const std::vector<ResultPart>& parts, const TensorData& expected,
                                         double tolerance) {
  return with_element_type(expected.dtype,
                           [&]<typename Element>(Element*) { return compare<Element>(parts, expected, tolerance); });
}

TensorData cut_out(const TensorData& whole, const Region& region, bool zero) {
  TensorData part{whole.dtype, tdl::shape_of(region), {}};
  const std::size_t size = element_size(whole.dtype);
  part.bytes.resize(static_cast<std::size_t>(element_count(part.shape)) * size);
  if (zero) return part;
  const std::vector<std::int64_t> from = strides_of(whole.shape);
  const std::vector<std::int64_t> to = strides_of(part.shape);
  over_region(tdl::intersection(region, tdl::whole(whole.shape)), [&](const std::vector<std::int64_t>& place) {
    std::memcpy(part.bytes.data() + static_cast<std::size_t>(offset_of(place, region, to)) * size,
                whole.bytes.data() + static_cast<std::size_t>(offset_of(place, {}, from)) * size, size);
  });
  return part;
}

double largest_magnitude(const TensorData& data) {
  if (!is_floating(data.dtype)) return 0;
  return with_element_type(data.dtype, [&]<typename Element>(Element*) {
    const auto* elements = reinterpret_cast<const Element*>(data.bytes.data());
    double largest = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(element_count(data.shape)); ++i) {
      const double magnitude = std::abs(static_cast<double>(elements[i]));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    return largest;
  });
}

}  // namespace tesser::runtime
