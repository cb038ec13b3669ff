#include "backends/cuda/target/choose/move.h"

#include <algorithm>

#include "formats/table.h"

namespace octet::cuda {
namespace {

bool are_high_precision(std::initializer_list<Dtype> dtypes) {
  return std::ranges::all_of(dtypes, is_high_precision);
}
bool is_of_16(int64_t n) {
  return n % 16 == 0;
}

// Matrices that are turned: the last two axes exchange what is contiguous, and at most one stands
// before them.
bool turns(const StridedCopy& c) {
  if (c.rank != 2 && c.rank != 3) return false;
  const int64_t i = c.rank - 2, j = c.rank - 1;
  return c.src_stride[i] == 1 && c.dst_stride[j] == 1 && c.src_stride[j] > 1;
}
bool turns_whole_sixteens(const StridedCopy& c) {
  const int64_t i = c.rank - 2, j = c.rank - 1;
  const bool steps = c.rank == 2 || (is_of_16(c.src_stride[0]) && is_of_16(c.dst_stride[0]));
  return steps && is_of_16(c.extent[i]) && is_of_16(c.extent[j]) && is_of_16(c.src_stride[j]) &&
         is_of_16(c.dst_stride[i]) && is_of_16(c.src_start) && is_of_16(c.dst_start);
}
// A matrix whose columns stand among columns that are filled, all of whole sixteens of bytes.
bool pads_columns(const FillParams& fill, std::span<const StridedCopy> copies) {
  const StridedCopy& c = copies.front();
  if (fill.n == 0 || copies.size() != 1 || c.rank != 2 || c.src_stride[1] != 1 ||
      c.dst_stride[1] != 1 || c.src_stride[0] != c.extent[1] ||
      c.extent[0] * c.dst_stride[0] != fill.n)
    return false;
  const auto fits = [&](int64_t elements) { return is_of_16(elements * fill.bytes); };
  return fits(c.extent[1]) && fits(c.dst_stride[0]) && fits(c.dst_start) &&
         c.dst_start < c.dst_stride[0];
}

bool is_empty(const StridedCopy& c) {
  return std::find(c.extent, c.extent + c.rank, 0) != c.extent + c.rank;
}
std::string_view name_of(CopyKernel kernel) {
  constexpr std::string_view kNames[] = {"copy_strided", "turn_byte_tiles", "turn_tiles",
                                         "pad_columns"};
  return kNames[static_cast<size_t>(kernel)];
}
KernelNames unless(bool is_empty, std::string_view name) {
  return is_empty ? KernelNames{} : KernelNames{name};
}

}  // namespace

KernelNames launches_of(const AxpbyParams& p) {
  return unless(p.n == 0, "axpby");
}
KernelNames launches_of(const FillParams& p) {
  return unless(p.n == 0, "fill_bytes");
}
KernelNames launches_of(const IotaParams& p) {
  return unless(p.n == 0, "count_places");
}
KernelNames launches_of(const CacheWriteParams&) {
  return {"write_rows"};
}

void choose_kernels(ElementParams& p) {
  if (is_float_op(p.op)) {
    p.kernel = are_high_precision({p.a, p.b, p.y}) ? ElementKernel::wide : ElementKernel::any;
  } else if (p.op == ElementOp::select) {
    const bool is_alike = p.b == p.y && p.c == p.y && is_high_precision(p.y);
    p.kernel = p.a == Dtype::boolean && is_alike ? ElementKernel::select : ElementKernel::any;
  } else {
    const bool compares = p.n_operands == 2 && p.y == Dtype::boolean;
    p.kernel =
        compares && are_high_precision({p.a, p.b}) ? ElementKernel::compare : ElementKernel::any;
  }
}
KernelNames launches_of(const ElementParams& p) {
  constexpr std::string_view kNames[] = {"wide_elements", "any_elements", "select_eights",
                                         "compare_eights"};
  return unless(p.n == 0, kNames[static_cast<size_t>(p.kernel)]);
}

void choose_kernels(const FillParams& fill, std::span<StridedCopy> copies) {
  for (StridedCopy& c : copies) {
    const bool in_bytes = fill.bytes == 1 && turns(c) && turns_whole_sixteens(c);
    c.kernel = in_bytes   ? CopyKernel::turn_bytes
               : turns(c) ? CopyKernel::turn
                          : CopyKernel::strided;
  }
  if (!copies.empty() && pads_columns(fill, copies)) copies[0].kernel = CopyKernel::pad;
}
KernelNames launches_of(const FillParams& fill, std::span<const StridedCopy> copies) {
  if (!copies.empty() && copies[0].kernel == CopyKernel::pad) return {name_of(CopyKernel::pad)};
  KernelNames names = launches_of(fill);
  for (const StridedCopy& c : copies) {
    if (!is_empty(c)) names.push_back(name_of(c.kernel));
  }
  return names;
}

}  // namespace octet::cuda
