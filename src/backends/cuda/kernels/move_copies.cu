// Fills and strided copies: params/move.h.
#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/move.cuh"
#include "backends/cuda/kernels/wide.cuh"

namespace octet::cuda {
namespace {

constexpr int kUnits = 4;  // of a thread
constexpr int kChunk = kThreads * kUnits;

struct FillTask {
  uint8_t* y;
  int64_t n_bytes;
  uint32_t word;  // the element, repeated to four bytes
  bool aligned;   // in units of 16 bytes; the last few bytes one by one
};

__global__ void __launch_bounds__(kThreads) fill_bytes(const __grid_constant__ FillTask t) {
  constexpr int kUnitBytes = 16;
  const int64_t base = int64_t{blockIdx.x} * kChunk * kUnitBytes;
  const int64_t end = min(t.n_bytes, base + kChunk * kUnitBytes);
  const int64_t end_units = t.aligned ? base + (end - base) / kUnitBytes * kUnitBytes : base;
  for (int64_t i = base + threadIdx.x * kUnitBytes; i < end_units; i += kThreads * kUnitBytes)
    *reinterpret_cast<uint4*>(t.y + i) = {t.word, t.word, t.word, t.word};
  for (int64_t i = end_units + threadIdx.x; i < end; i += kThreads)
    t.y[i] = static_cast<uint8_t>(t.word >> (8 * (i % 4)));
}

void launch_fill(const FillParams& p, const Launch& args) {
  if (p.n == 0) return;
  FillTask t{
      .y = args.out<uint8_t>(0), .n_bytes = p.n * p.bytes, .word = p.pattern, .aligned = false};
  if (p.bytes == 1) t.word = (p.pattern & 0xFFu) * 0x01010101u;
  if (p.bytes == 2) t.word = (p.pattern & 0xFFFFu) * 0x00010001u;
  t.aligned = is_aligned(t.y, 16);
  fill_bytes<<<grid_of(ceil_div(t.n_bytes, kChunk * 16)), kThreads, 0, args.stream>>>(t);
  check_launch("fill");
}

struct CopyTask {
  const void* src;
  void* dst;
  StridedCopy copy;  // in units of the kernel's type
  int64_t n;
};

// Index is 32 bits wide where the count fits.
template <typename Unit, typename Index>
__global__ void __launch_bounds__(kThreads) copy_strided(const __grid_constant__ CopyTask t) {
  const auto* src = static_cast<const Unit*>(t.src) + t.copy.src_start;
  auto* dst = static_cast<Unit*>(t.dst) + t.copy.dst_start;
  const int64_t base = int64_t{blockIdx.x} * kChunk + threadIdx.x;
  Unit units[kUnits];
  int64_t to[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    to[k] = -1;
    if (base + k * kThreads >= t.n) continue;
    auto rest = static_cast<Index>(base + k * kThreads);
    int64_t from = 0, at = 0;
    for (int axis = static_cast<int>(t.copy.rank) - 1; axis > 0; --axis) {
      const auto extent = static_cast<Index>(t.copy.extent[axis]);
      const Index above = rest / extent;
      const auto i = static_cast<int64_t>(rest - above * extent);
      from += i * t.copy.src_stride[axis];
      at += i * t.copy.dst_stride[axis];
      rest = above;
    }
    from += static_cast<int64_t>(rest) * t.copy.src_stride[0];
    to[k] = at + static_cast<int64_t>(rest) * t.copy.dst_stride[0];
    units[k] = src[from];
  }
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    if (to[k] >= 0) dst[to[k]] = units[k];
  }
}

// The largest unit in which everything can be counted: whole runs along the last axis, where both
// sides are contiguous, and every start and stride.
int unit_bytes(const StridedCopy& copy, const CopyTask& t, int element) {
  const int64_t last = copy.rank - 1;
  if (last < 0 || copy.src_stride[last] != 1 || copy.dst_stride[last] != 1) return element;
  for (int bytes = 16; bytes > element; bytes /= 2) {
    const auto fits = [&](int64_t elements) { return elements * element % bytes == 0; };
    bool all = fits(copy.extent[last]) && fits(copy.src_start) && fits(copy.dst_start);
    for (int64_t k = 0; k < last; ++k)
      all = all && fits(copy.src_stride[k]) && fits(copy.dst_stride[k]);
    if (all && is_aligned(t.src, static_cast<size_t>(bytes)) &&
        is_aligned(t.dst, static_cast<size_t>(bytes)))
      return bytes;
  }
  return element;
}

StridedCopy in_units(StridedCopy copy, int64_t elements_per_unit) {
  if (elements_per_unit == 1) return copy;
  const int64_t last = copy.rank - 1;
  copy.extent[last] /= elements_per_unit;
  copy.src_start /= elements_per_unit;
  copy.dst_start /= elements_per_unit;
  for (int64_t k = 0; k < last; ++k) {
    copy.src_stride[k] /= elements_per_unit;
    copy.dst_stride[k] /= elements_per_unit;
  }
  return copy;
}

template <typename Unit>
void launch_units(const CopyTask& t, cudaStream_t stream) {
  const unsigned grid = grid_of(ceil_div(t.n, kChunk));
  if (t.n < int64_t{1} << 31) {
    copy_strided<Unit, uint32_t><<<grid, kThreads, 0, stream>>>(t);
  } else {
    copy_strided<Unit, uint64_t><<<grid, kThreads, 0, stream>>>(t);
  }
  check_launch("copy");
}

void launch_copy(const StridedCopy& copy, int element, const Launch& args) {
  CopyTask t{.src = args.operands[copy.operand], .dst = args.results[0], .copy = copy, .n = 1};
  const int bytes = unit_bytes(copy, t, element);
  t.copy = in_units(copy, bytes / element);
  for (int64_t k = 0; k < copy.rank; ++k) t.n *= t.copy.extent[k];
  if (t.n == 0) return;
  switch (bytes) {
    case 1:
      return launch_units<uint8_t>(t, args.stream);
    case 2:
      return launch_units<uint16_t>(t, args.stream);
    case 4:
      return launch_units<uint32_t>(t, args.stream);
    case 8:
      return launch_units<uint2>(t, args.stream);
    default:
      return launch_units<uint4>(t, args.stream);
  }
}

class CopiesKernel : public Prepared {
 public:
  explicit CopiesKernel(const Request& request) : params_(request.get<CopyParams>()) {
    const auto tail = request.tail<CopyParams>();
    copies_.resize(tail.size_bytes() / sizeof(StridedCopy));
    std::memcpy(static_cast<void*>(copies_.data()), tail.data(),
                copies_.size() * sizeof(StridedCopy));
  }
  void launch(const Launch& args) override {
    launch_fill(params_.fill, args);
    for (const StridedCopy& copy : copies_) launch_copy(copy, params_.fill.bytes, args);
  }

 private:
  CopyParams params_;
  std::vector<StridedCopy> copies_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_fill(const Request& request) {
  return stateless<FillParams, launch_fill>(request);
}
std::unique_ptr<Prepared> prepare_copies(const Request& request) {
  return std::make_unique<CopiesKernel>(request);
}

}  // namespace octet::cuda
