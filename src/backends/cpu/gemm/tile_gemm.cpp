#include "backends/cpu/gemm/tile_gemm.h"

#include <omp.h>

#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "formats/bf16.h"

namespace octet::cpu {
namespace {

thread_local RowSums t_row_sums = RowSums::library;

dnnl::memory::data_type library_type(Dtype dtype) {
  CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16);
  return dtype == Dtype::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// The library's own choice for b, where it is one of our panels; otherwise nothing.
std::optional<PanelLayout> panels_of(const dnnl::memory::desc& desc, const TileShape& shape) {
  const auto& blocking = desc.data.format_desc.blocking;
  PanelLayout layout{64, 1, shape.k, shape.dtype};
  const bool two = blocking.inner_nblks == 2 && shape.dtype == Dtype::f32;
  const bool three = blocking.inner_nblks == 3 && shape.dtype == Dtype::bf16 &&
                     blocking.inner_idxs[2] == 0 && blocking.inner_blks[2] == 2;
  if (!two && !three) return std::nullopt;
  if (blocking.inner_idxs[0] != 0 || blocking.inner_idxs[1] != 1) return std::nullopt;
  layout.width = blocking.inner_blks[1];
  layout.interleave = three ? 2 : 1;
  const int64_t block_rows = blocking.inner_blks[0] * layout.interleave;
  layout.k_padded = round_up(shape.k, block_rows);
  const bool dense = layout.width == std::min(kTileColumns, shape.n) &&
                     (layout.k_padded == shape.k || shape.k == kNarrowDepth) &&
                     blocking.strides[0] == block_rows * layout.width &&
                     blocking.strides[1] == layout.k_padded * layout.width;
  return dense ? std::optional(layout) : std::nullopt;
}

struct Choice {
  dnnl::matmul::primitive_desc desc;
  PanelLayout layout;
};

Choice choose(const TileShape& s, const dnnl::engine& engine) {
  using Desc = dnnl::memory::desc;
  const auto type = library_type(s.dtype);
  const Desc a({s.m, s.k}, type, dnnl::memory::dims{s.k, 1});
  const Desc c({s.m, s.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{s.n, 1});
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  const Desc any({s.k, s.n}, type, dnnl::memory::format_tag::any);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, any, c), attr, engine);
  if (const auto layout = panels_of(desc.weights_desc(), s)) return {desc, *layout};
  const Desc plain({s.k, s.n}, type, dnnl::memory::dims{s.n, 1});
  return {dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, plain, c), attr, engine),
          PanelLayout{s.n, 1, s.k, s.dtype}};
}

}  // namespace

struct TileGemm::State {
  struct PerThread {
    dnnl::stream stream;
    dnnl::memory a, b, c, scratch;
    std::array<dnnl_exec_arg_t, 4> args;
  };
  TileShape shape;
  PanelLayout layout;
  SumOrder order;            // of the rows behind library_rows
  int64_t library_rows = 0;  // the first ones
  bool in_units = false;     // products of kTileRows x kTileColumns alone
  size_t scratch_bytes = 0;  // with units: the library's, a [kTileRows, k], c of a unit
  size_t library_bytes = 0;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::matmul primitive;
  std::vector<PerThread> threads;

  void make(int n_threads) {
    library_rows = shape.m;
    TileShape product = shape;
    const bool is_unit = shape.m == kTileRows && shape.n == kTileColumns;
    if (row_sums() == RowSums::same && !is_unit) {
      if (shape.dtype == Dtype::f32) order = library_sum_order(shape.k);
      // Which of the orders with a rest the library takes depends on the whole shape.
      in_units = !order.is_known() || order.last == LastRuns::rest;
      const int64_t n_ragged = shape.m % kTileRows;
      if (in_units) {
        product = {kTileRows, kTileColumns, shape.k, shape.dtype, false};
      } else if (n_ragged != 0) {
        library_rows -= n_ragged;
        product.m = std::max(library_rows, std::min(shape.m, kTileRows));
      }
    }
    const Choice choice = choose(product, engine);
    layout = choice.layout;
    if (library_rows == 0) return;
    primitive = dnnl::matmul(choice.desc);
    const auto n_bytes = static_cast<int64_t>(choice.desc.scratchpad_desc().get_size());
    scratch_bytes = library_bytes = static_cast<size_t>(round_up(n_bytes, 64));
    if (in_units) scratch_bytes += unit_a_bytes() + unit_c_bytes();
    for (int i = 0; i < n_threads; ++i) threads.push_back(thread_of(choice.desc));
  }

  size_t unit_a_bytes() const {
    return static_cast<size_t>(round_up(bytes_of(shape.dtype, kTileRows * shape.k), 64));
  }
  static size_t unit_c_bytes() { return sizeof(float) * kTileRows * kTileColumns; }

  void execute(PerThread& t, const void* a, const void* b, float* c, void* scratch) const {
    t.a.set_data_handle(const_cast<void*>(a));
    t.b.set_data_handle(const_cast<void*>(b));
    t.c.set_data_handle(c);
    if (library_bytes > 0) t.scratch.set_data_handle(scratch);
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), t.stream.get(), static_cast<int>(t.args.size()), t.args.data());
    CHECK(status == dnnl_success);
  }

  // A row's sums are those of a unit, whichever row of it that is: rows that are none are zeros.
  void multiply_units(PerThread& t, const Buffers& buffers) const {
    auto* const scratch = static_cast<std::byte*>(buffers.scratch);
    std::byte* const a_unit = scratch + library_bytes;
    auto* const c_unit = reinterpret_cast<float*>(a_unit + unit_a_bytes());
    const int64_t row_bytes = bytes_of(shape.dtype, shape.k);
    const int64_t panel_bytes = bytes_of(shape.dtype, layout.panel_elems());
    for (int64_t m = 0; m < shape.m; m += kTileRows) {
      const int64_t n_rows = std::min(kTileRows, shape.m - m);
      const std::byte* a = static_cast<const std::byte*>(buffers.a) + m * row_bytes;
      if (n_rows < kTileRows) {
        std::memset(a_unit, 0, unit_a_bytes());
        std::memcpy(a_unit, a, static_cast<size_t>(n_rows * row_bytes));
        a = a_unit;
      }
      for (int64_t n = 0; n < shape.n; n += kTileColumns) {
        const std::byte* b =
            static_cast<const std::byte*>(buffers.b) + n / kTileColumns * panel_bytes;
        execute(t, a, b, c_unit, scratch);
        for (int64_t row = 0; row < n_rows; ++row) {
          const float* from = c_unit + row * kTileColumns;
          float* to = buffers.c + (m + row) * shape.n + n;
          for (int64_t i = 0; i < kTileColumns; ++i)
            to[i] = shape.accumulate ? to[i] + from[i] : from[i];
        }
      }
    }
  }

  void multiply_rest(const Buffers& buffers) const {
    RowProduct p{.a = static_cast<const float*>(buffers.a) + library_rows * shape.k,
                 .a_stride = shape.k,
                 .b_stride = layout.width,
                 .c_stride = shape.n,
                 .m = shape.m - library_rows,
                 .n = layout.width,
                 .k = shape.k,
                 .order = order,
                 .sum = shape.accumulate ? RowSum::add : RowSum::overwrite};
    for (int64_t n = 0; n < shape.n; n += layout.width) {
      p.b = static_cast<const float*>(buffers.b) + n / layout.width * layout.panel_elems();
      p.c = buffers.c + library_rows * shape.n + n;
      multiply_rows(p);
    }
  }

  PerThread thread_of(const dnnl::matmul::primitive_desc& desc) const {
    const auto memory = [&](const dnnl::memory::desc& of) {
      return dnnl::memory(of, engine, DNNL_MEMORY_NONE);
    };
    PerThread t{dnnl::stream(engine),           memory(desc.src_desc()),
                memory(desc.weights_desc()),    memory(desc.dst_desc()),
                memory(desc.scratchpad_desc()), {}};
    t.args = {dnnl_exec_arg_t{DNNL_ARG_SRC, t.a.get()},
              {DNNL_ARG_WEIGHTS, t.b.get()},
              {DNNL_ARG_DST, t.c.get()},
              {DNNL_ARG_SCRATCHPAD, t.scratch.get()}};
    return t;
  }
};

namespace {

// One thread of OpenMP for the library's calls of this thread; whoever else uses it there (PyTorch)
// finds its own number again.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace

TileGemm::TileGemm(const TileShape& shape, int n_threads) : state_(std::make_shared<State>()) {
  CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0);
  const bool is_narrow = row_sums() == RowSums::library && shape.n < kTileColumns;
  CHECK(shape.n % (is_narrow ? kNarrowColumns : kTileColumns) == 0);
  CHECK(shape.k % kTileDepth == 0 || (shape.k == kNarrowDepth && has_narrow_depth(shape.dtype)));
  const OneThread one;  // the library fixes its own cut when a primitive is made
  State& s = *state_;
  s.shape = shape;
  try {
    s.make(n_threads);
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::invalid_argument,
                "[gemm] the library has no product [{}, {}] x [{}, {}] of {}: {}", shape.m, shape.k,
                shape.k, shape.n, dtype_name(shape.dtype), error.what());
  }
}

bool has_narrow_depth(Dtype dtype) {
  constexpr int kTiles = static_cast<int>(dnnl::cpu_isa::avx512_core_amx);
  const bool in_tiles =
      dtype == Dtype::bf16 && (static_cast<int>(dnnl::get_effective_cpu_isa()) & kTiles) == kTiles;
  return row_sums() == RowSums::library && !in_tiles;
}

const TileShape& TileGemm::shape() const {
  return state_->shape;
}
const PanelLayout& TileGemm::panels() const {
  return state_->layout;
}
size_t TileGemm::scratch_bytes() const {
  return state_->scratch_bytes;
}

void TileGemm::run(int thread, const Buffers& buffers) const {
  const State& s = *state_;
  if (s.library_rows < s.shape.m) s.multiply_rest(buffers);
  if (s.library_rows == 0) return;
  State::PerThread& t = state_->threads.at(static_cast<size_t>(thread));
  const OneThread one;
  if (s.in_units) return s.multiply_units(t, buffers);
  s.execute(t, buffers.a, buffers.b, buffers.c, buffers.scratch);
}

RowSumsScope::RowSumsScope(RowSums sums) : before_(std::exchange(t_row_sums, sums)) {}

RowSumsScope::~RowSumsScope() {
  t_row_sums = before_;
}

RowSums row_sums() {
  return t_row_sums;
}

namespace {

// A product of one unit, of any numbers whose sums are rounded.
struct Trial {
  PanelLayout layout;
  std::vector<float> a, b, c;  // b in one panel

  Trial(int64_t k, Dtype dtype) {
    const TileGemm product({kTileRows, kTileColumns, k, dtype, false}, 1);
    layout = product.panels();
    const auto n_a = static_cast<size_t>(kTileRows * k),
               n_b = static_cast<size_t>(k * kTileColumns);
    a.resize(n_a);
    b.resize(n_b);
    c.resize(static_cast<size_t>(kTileRows * kTileColumns));
    const RandomStream random{.name = name_hash("library_sum_order")};
    std::vector<uint16_t> halves(dtype == Dtype::bf16 ? n_a + n_b : 0);
    for (size_t i = 0; i < n_a + n_b; ++i) {
      float& x = i < n_a ? a[i] : b[i - n_a];
      x = random.uniform(i) - 0.5f;
      if (dtype == Dtype::bf16) x = f32_from_bf16(halves[i] = bf16_from_f32(x));
    }
    constexpr size_t kAlignment = 64;
    std::vector<std::byte> scratch(product.scratch_bytes() + kAlignment);
    void* at = scratch.data();
    size_t space = scratch.size();
    at = std::align(kAlignment, 1, at, space);
    if (dtype == Dtype::bf16) {
      product.run(0, {halves.data(), halves.data() + n_a, c.data(), at});
    } else {
      product.run(0, {a.data(), b.data(), c.data(), at});
    }
  }
};

SumOrder tried_sum_order(int64_t k) {
  constexpr int64_t kTriedRows = 2;
  const Trial trial(k, Dtype::f32);
  std::vector<float> tried(trial.c.size());
  for (const SumOrder order : {SumOrder{256}, SumOrder{384}, SumOrder{k},
                               SumOrder{512, LastRuns::rest}, SumOrder{1024, LastRuns::rest}}) {
    // One panel: as many columns as the library's panels have.
    multiply_rows({.a = trial.a.data(),
                   .a_stride = k,
                   .b = trial.b.data(),
                   .b_stride = kTileColumns,
                   .c = tried.data(),
                   .c_stride = kTileColumns,
                   .m = kTriedRows,
                   .n = kTileColumns,
                   .k = k,
                   .order = order});
    const auto n_bytes = static_cast<size_t>(kTriedRows * kTileColumns) * sizeof(float);
    if (std::memcmp(trial.c.data(), tried.data(), n_bytes) == 0) return order;
  }
  return {};
}

// Element (0, column) of a trial of BF16, whose products are exact.
float tried_dot(const Trial& trial, int64_t k, int64_t column, const DotOrder& order) {
  const int64_t pair = trial.layout.interleave;
  const auto product = [&](int64_t i) {
    const int64_t at = (i / pair * kTileColumns + column) * pair + i % pair;
    return trial.a[static_cast<size_t>(i)] * trial.b[static_cast<size_t>(at)];
  };
  float total = 0;
  for (int64_t begin = 0; begin < k;) {
    const int64_t end = begin + order.runs.next(k - begin);
    float sum = 0;
    for (int64_t i = begin; i < end;) {
      if (order.chain == DotChain::dots) {
        sum += product(i + 1);
        sum += product(i);
        i += 2;
        continue;
      }
      float even = 0, odd = 0;
      for (const int64_t i_end = i + kDotDepth; i < i_end; i += 2) {
        even += product(i);
        odd += product(i + 1);
      }
      sum += even + odd;
    }
    total += sum;
    begin = end;
  }
  return total;
}

// Runs of any length: with many elements the library cuts by the sizes of the caches.
DotOrder tried_dot_order(int64_t k) {
  const Trial trial(k, Dtype::bf16);
  for (const DotChain chain : {DotChain::tiles, DotChain::dots}) {
    for (DotOrder order{chain, {k, LastRuns::rest}}; order.runs.is_known();
         order.runs.block -= kDotDepth) {
      int64_t column = 0;
      while (column < kTileColumns && tried_dot(trial, k, column, order) == trial.c[column])
        ++column;
      if (column == kTileColumns) return order;
    }
  }
  return {};
}

// A trial multiplies kTileRows x k by k x kTileColumns; models have few k, but many products.
template <typename Order>
Order known_order(int64_t k, Order (*trial)(int64_t)) {
  static std::mutex mutex;
  static std::map<std::pair<dnnl::cpu_isa, int64_t>, Order> known;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace({dnnl::get_effective_cpu_isa(), k});
  if (is_new) it->second = trial(k);
  return it->second;
}

}  // namespace

SumOrder library_sum_order(int64_t k) {
  return known_order(k, tried_sum_order);
}

DotOrder library_dot_order(int64_t k) {
  return known_order(k, tried_dot_order);
}

}  // namespace octet::cpu
