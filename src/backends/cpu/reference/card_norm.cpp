// Norms of rows and their gradients.
#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/card.h"
#include "ir/op_def.h"
#include "math/row_layers.h"

namespace octet::reference {
namespace {

constexpr size_t kChunk = 16, kMaxFastCols = 8192, kAnyThreads = 256;

// The sums over a row's columns in norm_rows' order: each thread's of sixteen, in accesses of
// `width` elements that lie beside those of its neighbours, then by warp, then over the warps. Rows
// of other lengths: each thread's of every 256th column.
class RowSum {
 public:
  RowSum(size_t cols, const TensorType& x)
      : cols_(cols),
        is_fast_(cols % kChunk == 0 && cols <= kMaxFastCols),
        width_(x.is_scaled()               ? 16
               : bytes_of(x.dtype, 1) == 2 ? 8
                                           : 4),
        n_threads_(is_fast_ ? (cols / kChunk + kWarp - 1) / kWarp * kWarp : kAnyThreads) {}

  bool is_fast() const { return is_fast_; }
  // sum of one(thread): of the columns that it is called with.
  template <typename F>
  float over_threads(const F& one) const {
    std::vector<float> threads;
    for (size_t t = 0; t < n_threads_; ++t) threads.push_back(one(columns_of(t)));
    std::vector<float> sums = warp_sums<float>(threads);
    if (sums.size() == 1) return sums[0];
    sums.resize(kWarp);
    return warp_sum<float>(sums);
  }

 private:
  std::vector<size_t> columns_of(size_t thread) const {
    std::vector<size_t> columns;
    if (!is_fast_) {
      for (size_t c = thread; c < cols_; c += kAnyThreads) columns.push_back(c);
      return columns;
    }
    const size_t n_chunks = cols_ / kChunk;
    for (size_t k = 0; k < kChunk && thread < n_chunks; ++k)
      columns.push_back((k / width_ * n_chunks + thread) * width_ + k % width_);
    return columns;
  }

  size_t cols_;
  bool is_fast_;
  size_t width_, n_threads_;
};

struct NormSlots {
  ScalePlace x;
  size_t weight, bias, mean, rstd;
};
constexpr size_t kNowhere = 64;

std::vector<float> dequantized(const RefCall& call, ScalePlace place) {
  const RefTensor& x = call.in[place.operand];
  std::vector<float> values = floats(x.data);
  for (size_t i = 0; i < values.size() && x.type.is_scaled(); ++i)
    values[i] *= static_cast<float>(call.in[place.scale].data[scale_index(x.type, i)]);
  return values;
}

void card_norm(const RefCall& call, bool centred, const NormSlots& slots) {
  const RefTensor& x = call.in[slots.x.operand];
  const size_t rows = dim(x, 0), n_cols = dim(x, 1);
  const auto cols = static_cast<float>(n_cols);
  const auto eps = static_cast<float>(std::get<NormAttrs>(call.attrs).eps);
  const std::vector<float> weight = floats(optional(call.in, slots.weight)),
                           bias = floats(optional(call.in, slots.bias));
  const RowSum sum(n_cols, x.type);
  const std::vector<float> all = dequantized(call, slots.x);
  for (size_t r = 0; r < rows; ++r) {
    const float* const v = &all[r * n_cols];
    float mean = 0;
    if (centred) {
      mean = sum.over_threads([&](const std::vector<size_t>& columns) {
        float s = 0;
        for (const size_t c : columns) s += v[c];
        return s;
      }) / cols;
    }
    const float squares = sum.over_threads([&](const std::vector<size_t>& columns) {
      float s[2] = {0, 0};
      for (size_t k = 0; k < columns.size(); ++k) {
        const float d = v[columns[k]] - mean;
        float& of = s[sum.is_fast() ? k % 2 : 0];
        of = std::fma(d, d, of);
      }
      return s[0] + s[1];
    });
    const RowStatistics<float> row{mean, rstd_of(squares, cols, eps)};
    for (size_t c = 0; c < n_cols; ++c) {
      float y = normalized(v[c], row);
      if (!weight.empty()) y *= weight[c];
      if (!bias.empty()) y += bias[c];
      call.out[0].data[r * n_cols + c] = y;
    }
    if (centred) call.out[slots.mean].data[r] = row.mean;
    call.out[slots.rstd].data[r] = row.rstd;
  }
}

constexpr int64_t kGradBlocks = 264;

// Blocks of norm_grad, each of every n-th row.
size_t grad_blocks(size_t rows, size_t cols) {
  const auto most = size(cols > 2048   ? kGradBlocks
                         : cols > 1024 ? 2 * kGradBlocks
                                       : 4 * kGradBlocks);
  return std::clamp<size_t>(rows, 1, most);
}

// The sum of a column over the blocks: 32 sums of every 32nd, in order.
float over_blocks(const std::vector<float>& partial, size_t cols, size_t c) {
  std::vector<float> sums(kWarp);
  for (size_t block = 0; block * cols < partial.size(); ++block)
    sums[block % kWarp] += partial[block * cols + c];
  return in_order(sums);
}

// Without a mean: kNowhere.
struct GradSlots {
  ScalePlace x;
  size_t dy, mean, rstd, weight, addend, dweight, dbias;
};

void card_norm_grad(const RefCall& call, const GradSlots& slots) {
  const size_t rows = dim(call.in[slots.x.operand], 0), cols = dim(call.in[slots.x.operand], 1);
  const std::vector<float> x = dequantized(call, slots.x), dy = floats(call.in[slots.dy].data);
  const std::vector<float> means = floats(optional(call.in, slots.mean)),
                           weight = floats(optional(call.in, slots.weight)),
                           addend = floats(optional(call.in, slots.addend));
  const bool centred = !means.empty();
  const size_t n_blocks = grad_blocks(rows, cols);
  std::vector<float> dw(n_blocks * cols), db(n_blocks * cols), h(cols), g(cols);
  const RowSum sum(cols, call.in[slots.x.operand].type);
  for (size_t r = 0; r < rows; ++r) {
    const RowStatistics<float> row{centred ? means[r] : 0.0f,
                                   static_cast<float>(call.in[slots.rstd].data[r])};
    for (size_t c = 0; c < cols; ++c) {
      h[c] = normalized(x[r * cols + c], row), g[c] = dy[r * cols + c];
      float& of_column = dw[r % n_blocks * cols + c];
      of_column = std::fma(g[c], h[c], of_column);
      db[r % n_blocks * cols + c] += g[c];
      if (!weight.empty()) g[c] *= weight[c];
    }
    const float along = sum.over_threads([&](const std::vector<size_t>& columns) {
      float s = 0;
      for (const size_t c : columns) s = std::fma(g[c], h[c], s);
      return s;
    });
    const float all = sum.over_threads([&](const std::vector<size_t>& columns) {
      float s = 0;
      for (const size_t c : columns) s += g[c];
      return s;
    });
    const RowMeans mean{along / static_cast<float>(cols),
                        centred ? all / static_cast<float>(cols) : 0.0f};
    for (size_t c = 0; c < cols; ++c) {
      const size_t to = r * cols + c;
      const float dx = norm_gradient(g[c], h[c], mean, row.rstd);
      call.out[0].data[to] = addend.empty() ? dx : dx + addend[to];
    }
  }
  for (size_t c = 0; c < cols && !weight.empty(); ++c) {
    call.out[slots.dweight].data[c] = over_blocks(dw, cols, c);
    if (centred) call.out[slots.dbias].data[c] = over_blocks(db, cols, c);
  }
}

}  // namespace

void card_rms_norm(const RefCall& call) {
  card_norm(call, false,
            {.x = op_def(OpCode::rms_norm).scales[0],
             .weight = RmsNorm::weight,
             .bias = kNowhere,
             .mean = kNowhere,
             .rstd = RmsNorm::rstd});
}
void card_layer_norm(const RefCall& call) {
  card_norm(call, true,
            {.x = op_def(OpCode::layer_norm).scales[0],
             .weight = LayerNorm::weight,
             .bias = LayerNorm::bias,
             .mean = LayerNorm::mean,
             .rstd = LayerNorm::rstd});
}

void card_rms_norm_grad(const RefCall& call) {
  using Op = RmsNormGrad;
  card_norm_grad(call, {.x = op_def(OpCode::rms_norm_grad).scales[0],
                        .dy = Op::dy,
                        .mean = kNowhere,
                        .rstd = Op::rstd,
                        .weight = Op::weight,
                        .addend = Op::addend,
                        .dweight = Op::dweight,
                        .dbias = kNowhere});
}
void card_layer_norm_grad(const RefCall& call) {
  using Op = LayerNormGrad;
  card_norm_grad(call, {.x = op_def(OpCode::layer_norm_grad).scales[0],
                        .dy = Op::dy,
                        .mean = Op::mean,
                        .rstd = Op::rstd,
                        .weight = Op::weight,
                        .addend = Op::addend,
                        .dweight = Op::dweight,
                        .dbias = Op::dbias});
}

}  // namespace octet::reference
