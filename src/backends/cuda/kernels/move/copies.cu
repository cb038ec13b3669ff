// Fills and strided copies: params/move.h.
#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"

namespace octet::cuda {
namespace {

constexpr int kUnits = 4;  // of a thread
constexpr int kChunk = kThreads * kUnits;

struct FillTask {
  uint8_t* y;
  int64_t n_bytes;
  uint32_t word;
  bool aligned = false;  // in units of 16 bytes; the last few bytes one by one
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

// The element, repeated to four bytes.
uint32_t word_of(const FillParams& p) {
  if (p.bytes == 1) return (p.pattern & 0xFFu) * 0x01010101u;
  if (p.bytes == 2) return (p.pattern & 0xFFFFu) * 0x00010001u;
  return p.pattern;
}

void launch_fill(const FillParams& p, const Launch& args) {
  if (p.n == 0) return;
  FillTask t{.y = args.out<uint8_t>(0), .n_bytes = p.n * p.bytes, .word = word_of(p)};
  t.aligned = is_aligned(t.y, 16);
  fill_bytes<<<grid_of(ceil_div(t.n_bytes, kChunk * 16)), kThreads, 0, args.stream>>>(t);
  check_launch("fill");
}

__global__ void __launch_bounds__(kThreads) count_places(IotaParams p, int32_t* y) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < p.n) y[i] = static_cast<int32_t>(i / p.inner % p.extent);
}

void launch_iota(const IotaParams& p, const Launch& args) {
  if (p.n == 0) return;
  const unsigned grid = grid_of(ceil_div(p.n, kThreads));
  count_places<<<grid, kThreads, 0, args.stream>>>(p, args.out<int32_t>(0));
  check_launch("iota");
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

// Columns of a tensor of rows, with the fill's pattern to their left and right: everything is
// written once.
struct PadTask {
  const uint4* src;
  uint4* dst;
  int64_t n, wide, first, narrow;  // in units of 16 bytes: all, a row, before the columns, they
  uint32_t word;
};

template <typename Index>
__global__ void __launch_bounds__(kThreads, 4) pad_columns(const __grid_constant__ PadTask t) {
  const int64_t base = int64_t{blockIdx.x} * kChunk + threadIdx.x;
  uint4 units[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    units[k] = {t.word, t.word, t.word, t.word};
    if (base + k * kThreads >= t.n) continue;
    const auto at = static_cast<Index>(base + k * kThreads);
    const Index row = at / static_cast<Index>(t.wide);
    const int64_t col = static_cast<int64_t>(at - row * static_cast<Index>(t.wide)) - t.first;
    if (col >= 0 && col < t.narrow) units[k] = t.src[static_cast<int64_t>(row) * t.narrow + col];
  }
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    if (base + k * kThreads < t.n) t.dst[base + k * kThreads] = units[k];
  }
}

// A matrix transposed, [rows, cols] to [cols, rows], and others like it at a distance: tiles of 32
// by 32 elements through shared memory, a word of 4 bytes or less each.
struct TurnTask {
  const void* src;
  void* dst;
  int64_t rows, cols, src_stride, dst_stride;  // of a row of each side
  int64_t src_step, dst_step;                  // from one matrix to the next
  int64_t tiles_across, tiles;                 // of a row of tiles; of a matrix
};

constexpr int kSide = 32;
constexpr int kTurnRows = kThreads / kSide;

template <typename T>
__global__ void __launch_bounds__(kThreads) turn_tiles(const __grid_constant__ TurnTask t) {
  __shared__ uint32_t tile[kSide][kSide + 1];
  const int64_t matrix = blockIdx.x / t.tiles, at = blockIdx.x % t.tiles;
  const int64_t row = at / t.tiles_across * kSide, col = at % t.tiles_across * kSide;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const auto* src = static_cast<const T*>(t.src) + matrix * t.src_step;
  auto* dst = static_cast<T*>(t.dst) + matrix * t.dst_step;
#pragma unroll
  for (int k = 0; k < kSide; k += kTurnRows) {
    if (row + y + k < t.rows && col + x < t.cols)
      tile[y + k][x] = src[(row + y + k) * t.src_stride + col + x];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSide; k += kTurnRows) {
    if (col + y + k < t.cols && row + x < t.rows)
      dst[(col + y + k) * t.dst_stride + row + x] = static_cast<T>(tile[x][y + k]);
  }
}

// The same of bytes whose rows, on either side, are whole units of 16: tiles of 64 by 64, a thread
// reads a unit of a row and writes one of a column.
constexpr int kByteSide = 64, kUnit = 16;
static_assert(kByteSide * kByteSide / kUnit == kThreads);

__global__ void __launch_bounds__(kThreads) turn_byte_tiles(const __grid_constant__ TurnTask t) {
  __shared__ uint32_t tile[kByteSide][kByteSide / 4 + 1];
  const int64_t matrix = blockIdx.x / t.tiles, at = blockIdx.x % t.tiles;
  const int64_t row = at / t.tiles_across * kByteSide, col = at % t.tiles_across * kByteSide;
  const int line = threadIdx.x / 4, unit = threadIdx.x % 4;
  const auto* src = static_cast<const uint8_t*>(t.src) + matrix * t.src_step;
  auto* dst = static_cast<uint8_t*>(t.dst) + matrix * t.dst_step;
  if (row + line < t.rows && col + unit * kUnit < t.cols) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(src + (row + line) * t.src_stride + col + unit * kUnit);
    uint32_t* const to = tile[line] + unit * 4;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  __syncthreads();
  if (col + line >= t.cols || row + unit * kUnit >= t.rows) return;
  uint32_t words[4] = {};
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    const uint32_t byte = tile[unit * kUnit + k][line / 4] >> (8 * (line % 4)) & 0xFFu;
    words[k / 4] |= byte << (8 * (k % 4));
  }
  *reinterpret_cast<uint4*>(dst + (col + line) * t.dst_stride + row + unit * kUnit) = {
      words[0], words[1], words[2], words[3]};
}

void launch_turn(const StridedCopy& c, int bytes, const Launch& args) {
  const int64_t i = c.rank - 2, j = c.rank - 1;  // of the result; the source's columns and rows
  TurnTask t{.src = args.in<uint8_t>(c.operand) + c.src_start * bytes,
             .dst = args.out<uint8_t>(0) + c.dst_start * bytes,
             .rows = c.extent[j],
             .cols = c.extent[i],
             .src_stride = c.src_stride[j],
             .dst_stride = c.dst_stride[i],
             .src_step = c.rank == 3 ? c.src_stride[0] : 0,
             .dst_step = c.rank == 3 ? c.dst_stride[0] : 0};
  // Addresses that are no plan's may lie anywhere.
  const bool in_units =
      c.kernel == CopyKernel::turn_bytes && is_aligned(t.src, kUnit) && is_aligned(t.dst, kUnit);
  const int64_t side = in_units ? kByteSide : kSide;
  t.tiles_across = ceil_div(t.cols, side);
  t.tiles = t.tiles_across * ceil_div(t.rows, side);
  const int64_t n_tiles = t.tiles * (c.rank == 3 ? c.extent[0] : 1);
  if (n_tiles == 0) return;
  const unsigned grid = grid_of(n_tiles);
  if (in_units) turn_byte_tiles<<<grid, kThreads, 0, args.stream>>>(t);
  if (bytes == 1 && !in_units) turn_tiles<uint8_t><<<grid, kThreads, 0, args.stream>>>(t);
  if (bytes == 2) turn_tiles<uint16_t><<<grid, kThreads, 0, args.stream>>>(t);
  if (bytes == 4) turn_tiles<uint32_t><<<grid, kThreads, 0, args.stream>>>(t);
  check_launch("transpose");
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
  if (copy.kernel == CopyKernel::turn || copy.kernel == CopyKernel::turn_bytes)
    return launch_turn(copy, element, args);
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
    if (copies_[0].kernel == CopyKernel::pad && pads_columns(args)) return;
    launch_fill(params_.fill, args);
    for (const StridedCopy& copy : copies_) launch_copy(copy, params_.fill.bytes, args);
  }

 private:
  // True if pad_columns does the copy and the fill: not at addresses that are no plan's.
  bool pads_columns(const Launch& args) const {
    const StridedCopy& c = copies_.front();
    const FillParams& fill = params_.fill;
    const void* src = args.operands[c.operand];
    if (!is_aligned(src, 16) || !is_aligned(args.results[0], 16)) return false;
    const int64_t unit = 16 / fill.bytes;
    const PadTask t{.src = static_cast<const uint4*>(src),
                    .dst = static_cast<uint4*>(args.results[0]),
                    .n = fill.n / unit,
                    .wide = c.dst_stride[0] / unit,
                    .first = c.dst_start / unit,
                    .narrow = c.extent[1] / unit,
                    .word = word_of(fill)};
    const unsigned grid = grid_of(ceil_div(t.n, kChunk));
    if (t.n < int64_t{1} << 31) {
      pad_columns<uint32_t><<<grid, kThreads, 0, args.stream>>>(t);
    } else {
      pad_columns<uint64_t><<<grid, kThreads, 0, args.stream>>>(t);
    }
    check_launch("pad");
    return true;
  }
  CopyParams params_;
  std::vector<StridedCopy> copies_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_iota(const Request& request) {
  return stateless<IotaParams, launch_iota>(request);
}
std::unique_ptr<Prepared> prepare_fill(const Request& request) {
  return stateless<FillParams, launch_fill>(request);
}
std::unique_ptr<Prepared> prepare_copies(const Request& request) {
  return std::make_unique<CopiesKernel>(request);
}

}  // namespace octet::cuda
