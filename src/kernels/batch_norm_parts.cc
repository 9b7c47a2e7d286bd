#include "kernels/batch_norm_parts.h"

#include "kernels/batch_norm_parts_loops.h"

namespace tesser::kernels {
namespace {

const BatchNormPartLoops& all_loops() {
#if defined(__x86_64__)
  if (best_instruction_set() == InstructionSet::kAvx512) return avx512::kBatchNormPartLoops;
  if (best_instruction_set() == InstructionSet::kAvx2) return avx2::kBatchNormPartLoops;
#endif
  return portable::kBatchNormPartLoops;
}

template <typename Element>
const BatchNormPartLoopsOf<Element>& loops();
template <>
const BatchNormPartLoopsOf<float>& loops<float>() {
  return all_loops().of_float;
}
template <>
const BatchNormPartLoopsOf<double>& loops<double>() {
  return all_loops().of_double;
}

// Calls plane(first element, channel) for each plane of rows [begin, end).
template <typename Plane>
void over_planes(const BatchNormShape& shape, std::int64_t begin, std::int64_t end, const Plane& plane) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t c = 0; c < shape.channels; ++c) plane((row * shape.channels + c) * shape.inner, c);
  }
}

}  // namespace

template <typename Element>
void batch_norm_part_sums(const Element* x, const BatchNormShape& shape, std::int64_t begin, std::int64_t end,
                          double* sums, double* square_sums) {
  const auto& chosen = loops<Element>();
  if (shape.inner == 1) {
    return chosen.row_sums(x + begin * shape.channels, end - begin, shape.channels, sums, square_sums);
  }
  over_planes(shape, begin, end, [&](std::int64_t at, std::int64_t c) {
    chosen.plane_sums(x + at, shape.inner, sums + c, square_sums + c);
  });
}

template <typename Element>
void batch_norm_part_gradient_sums(const Element* dy, const Element* x, const Element* mean,
                                   const BatchNormShape& shape, std::int64_t begin, std::int64_t end, double* sums,
                                   double* products) {
  const auto& chosen = loops<Element>();
  if (shape.inner == 1) {
    const std::int64_t at = begin * shape.channels;
    return chosen.row_gradient_sums(dy + at, x + at, mean, end - begin, shape.channels, sums, products);
  }
  over_planes(shape, begin, end, [&](std::int64_t at, std::int64_t c) {
    chosen.plane_gradient_sums(dy + at, x + at, mean[c], shape.inner, sums + c, products + c);
  });
}

template <typename Element>
void batch_norm_part_apply(const Element* x, const Element* scale, const Element* shift, Element* y,
                           const BatchNormShape& shape, std::int64_t begin, std::int64_t end) {
  const auto& chosen = loops<Element>();
  if (shape.inner == 1) {
    const std::int64_t at = begin * shape.channels;
    return chosen.row_apply(x + at, scale, shift, y + at, end - begin, shape.channels);
  }
  over_planes(shape, begin, end, [&](std::int64_t at, std::int64_t c) {
    chosen.plane_apply(x + at, scale[c], shift[c], y + at, shape.inner);
  });
}

template <typename Element>
void batch_norm_part_gradient_apply(const Element* dy, const Element* x, const Element* mean, const Element* mean_dy,
                                    const Element* slope, const Element* scale, Element* dx,
                                    const BatchNormShape& shape, std::int64_t begin, std::int64_t end) {
  const auto& chosen = loops<Element>();
  if (shape.inner == 1) {
    const std::int64_t at = begin * shape.channels;
    return chosen.row_gradient_apply(dy + at, x + at, mean, mean_dy, slope, scale, dx + at, end - begin,
                                     shape.channels);
  }
  over_planes(shape, begin, end, [&](std::int64_t at, std::int64_t c) {
    chosen.plane_gradient_apply(dy + at, x + at, mean[c], mean_dy[c], slope[c], scale[c], dx + at, shape.inner);
  });
}

template void batch_norm_part_sums(const float*, const BatchNormShape&, std::int64_t, std::int64_t, double*, double*);
template void batch_norm_part_sums(const double*, const BatchNormShape&, std::int64_t, std::int64_t, double*, double*);
template void batch_norm_part_gradient_sums(const float*, const float*, const float*, const BatchNormShape&,
                                            std::int64_t, std::int64_t, double*, double*);
template void batch_norm_part_gradient_sums(const double*, const double*, const double*, const BatchNormShape&,
                                            std::int64_t, std::int64_t, double*, double*);
template void batch_norm_part_apply(const float*, const float*, const float*, float*, const BatchNormShape&,
                                    std::int64_t, std::int64_t);
template void batch_norm_part_apply(const double*, const double*, const double*, double*, const BatchNormShape&,
                                    std::int64_t, std::int64_t);
template void batch_norm_part_gradient_apply(const float*, const float*, const float*, const float*, const float*,
                                             const float*, float*, const BatchNormShape&, std::int64_t, std::int64_t);
template void batch_norm_part_gradient_apply(const double*, const double*, const double*, const double*, const double*,
                                             const double*, double*, const BatchNormShape&, std::int64_t, std::int64_t);

}  // namespace tesser::kernels
