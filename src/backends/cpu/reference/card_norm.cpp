// Norms of rows.
#include <cmath>

#include "backends/cpu/reference/card.h"

namespace octet::reference {
namespace {

constexpr size_t kChunk = 16, kMaxFastCols = 8192, kAnyThreads = 256;

// The sums over a row's columns in norm_rows' order: each thread's of sixteen, in accesses of
// `width` elements that lie beside those of its neighbours, then by warp, then over the warps. Rows
// of other lengths: each thread's of every 256th column.
class RowSum {
 public:
  RowSum(size_t cols, Dtype x)
      : cols_(cols),
        is_fast_(cols % kChunk == 0 && cols <= kMaxFastCols),
        width_(bytes_of(x, 1) == 2 ? 8 : 4),
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
  size_t weight, bias, mean, rstd;
};
constexpr size_t kNowhere = 64;

void card_norm(const RefCall& call, bool centred, const NormSlots& slots) {
  const RefTensor& x = call.in[0];
  const size_t rows = dim(x, 0), n_cols = dim(x, 1);
  const auto cols = static_cast<float>(n_cols);
  const auto eps = static_cast<float>(std::get<NormAttrs>(call.attrs).eps);
  const std::vector<float> weight = floats(optional(call.in, slots.weight)),
                           bias = floats(optional(call.in, slots.bias));
  const RowSum sum(n_cols, x.type.dtype);
  for (size_t r = 0; r < rows; ++r) {
    const std::vector<float> v = floats(row(x, r));
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
    const float rstd = 1.0f / std::sqrt(squares / cols + eps);
    for (size_t c = 0; c < n_cols; ++c) {
      float y = (v[c] - mean) * rstd;
      if (!weight.empty()) y *= weight[c];
      if (!bias.empty()) y += bias[c];
      call.out[0].data[r * n_cols + c] = y;
    }
    if (centred) call.out[slots.mean].data[r] = mean;
    call.out[slots.rstd].data[r] = rstd;
  }
}

}  // namespace

void card_rms_norm(const RefCall& call) {
  card_norm(call, false,
            {.weight = RmsNorm::weight, .bias = kNowhere, .mean = kNowhere, .rstd = RmsNorm::rstd});
}
void card_layer_norm(const RefCall& call) {
  card_norm(call, true,
            {.weight = LayerNorm::weight,
             .bias = LayerNorm::bias,
             .mean = LayerNorm::mean,
             .rstd = LayerNorm::rstd});
}

}  // namespace octet::reference
