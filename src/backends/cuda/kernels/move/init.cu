// Initializes weights where they lie (params/init.h).
#include <algorithm>

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/launch/context.h"
#include "backends/cuda/params/init.h"
#include "math/master.h"

namespace octet::cuda {
namespace {

enum class MasterKind : uint8_t { none, f32, remainder };

template <Dtype D, MasterKind M>
__device__ void store(float x, int64_t i, const InitParams& p, void* weight, void* master) {
  const int64_t w = i - p.weight_first, m = i - p.master_first;
  const bool is_weight = w >= 0 && w < p.weight_count, is_master = m >= 0 && m < p.master_count;
  if constexpr (M == MasterKind::remainder) {
    const MasterBits parts = split_master(x);
    if (is_weight) static_cast<uint16_t*>(weight)[w] = parts.hi;
    if (is_master) static_cast<int16_t*>(master)[m] = parts.lo;
  } else {
    if (is_weight) static_cast<Storage<D>*>(weight)[w] = from_float<D>(x);
    if constexpr (M == MasterKind::f32) {
      if (is_master) static_cast<float*>(master)[m] = x;
    }
  }
}

struct Elements {
  int64_t begin = 0, end = 0;
};
__host__ Elements elements_of(const InitParams& p) {
  Elements all{p.weight_first, p.weight_first + p.weight_count};
  if (p.has_master && p.master_count > 0) {
    const bool is_empty = all.begin == all.end;
    all.begin = is_empty ? p.master_first : std::min(all.begin, p.master_first);
    all.end = std::max(all.end, p.master_first + p.master_count);
  }
  return all;
}

// A block of random words makes two neighbours; runs begin at even elements.
template <Dtype D, MasterKind M>
__global__ void init_weights(InitParams p, Elements all, void* weight, void* master) {
  const int64_t stride = 2 * static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = 2 * (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x);
  for (int64_t i = all.begin + first; i < all.end; i += stride) {
    float x[2] = {static_cast<float>(p.constant), static_cast<float>(p.constant)};
    if (p.std != 0) {
      const PhiloxBlock block = p.random.block(static_cast<uint64_t>(i) / 2);
      for (int k = 0; k < 2; ++k) {
        const float normal = RandomStream::normal_of(block.word[2 * k], block.word[2 * k + 1]);
        x[k] = static_cast<float>(p.std * static_cast<double>(normal));
      }
    }
    for (int k = 0; k < 2; ++k) store<D, M>(x[k], i + k, p, weight, master);
  }
}

template <Dtype D, MasterKind M>
void init_as(const InitParams& p, const Launch& args) {
  const Elements all = elements_of(p);
  if (all.begin == all.end) return;
  const int64_t blocks = std::min<int64_t>(ceil_div(all.end - all.begin, 2 * 256), 8 * args.n_sm);
  init_weights<D, M><<<static_cast<unsigned>(blocks), 256, 0, args.stream>>>(
      p, all, args.results[0], p.has_master ? args.results[1] : nullptr);
  check_launch("drawing weights");
}

void init_weight(const InitParams& p, const Launch& args) {
  if (p.has_master && p.master == Dtype::i16) {
    if (p.weight != Dtype::bf16)
      throw ModuleError("[cuda] expected a remainder beside bf16, got " +
                        std::string(dtype_name(p.weight)));
    return init_as<Dtype::bf16, MasterKind::remainder>(p, args);
  }
  visit_high_precision(p.weight, [&]<Dtype D>() {
    p.has_master ? init_as<D, MasterKind::f32>(p, args) : init_as<D, MasterKind::none>(p, args);
  });
}

constexpr KernelEntry kRows[] = {{KernelId::init_weights, stateless<InitParams, init_weight>}};

}  // namespace

std::span<const KernelEntry> draw_kernels() {
  return kRows;
}

}  // namespace octet::cuda
