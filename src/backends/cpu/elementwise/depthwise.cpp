#include "backends/cpu/elementwise/depthwise.h"

#include <array>
#include <bit>

#include "backends/cpu/elementwise/quantized_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/depthwise.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"

#ifndef OCTET_CPU_DEPTHWISE_ARGS
#define OCTET_CPU_DEPTHWISE_ARGS
namespace octet::cpu {
namespace {

// A line of a picture of the result. x: the operand's picture; weight [places, channels].
struct LineOfSums {
  In x;
  Out y;
  const float* weight;
  const DepthwiseTerms::Term* terms;
  const int64_t* begins;
  int64_t width, channels;
};

// Windows [begin, end) of a row whose place j, a column of the window, lies in the picture: pixel
// first + stride q of window q. Zeros are there in the others.
struct ColumnOfPlaces {
  int64_t begin, end, first;
};
constexpr int64_t kColumns = 3;  // that are summed beside each other

// The products of a row of windows with a line of the picture, of up to kColumns places: to
// sums[channels], those of the next place behind them.
struct RowOfProducts {
  In dy, x;
  float* sums;
  std::array<ColumnOfPlaces, kColumns> columns;
  int64_t n_columns, n_windows, stride, channels;
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// Up to kLanes whole lanes: channels behind the last whole vector, or all of a few.
template <size_t kLanes>
struct Piece {
  using D = hn::CappedTag<float, kLanes>;
  HWY_INLINE hn::Vec<D> load(const float* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE hn::Vec<D> load(const uint16_t* p) const {
    const hn::RebindToUnsigned<D> bits;
    const auto wide = hn::PromoteTo(bits, hn::LoadU(hn::Rebind<uint16_t, D>(), p));
    return hn::BitCast(D(), hn::ShiftLeft<16>(wide));
  }
  template <typename T>
  HWY_INLINE void store(hn::Vec<D> v, T* p) const {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
    hn::StoreU(v, D(), lanes);
    Part{hn::Lanes(D())}.store(Full().load(lanes), p);
  }
};

// As for_lanes, with pieces before the last Part.
template <typename Fn>
HWY_INLINE void for_channels(int64_t n, Fn&& fn) {
  int64_t c = 0;
  const auto put = [&](auto io, auto d) HWY_ATTR {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; c + lanes <= n; c += lanes) fn(c, io);
  };
  put(Full(), F32());
  put(Piece<8>(), Piece<8>::D());
  put(Piece<4>(), Piece<4>::D());
  if (c < n) fn(c, Part{static_cast<size_t>(n - c)});
}

template <typename X, typename Y>
HWY_INLINE void sum_terms(const LineOfSums& s) {
  const auto* const x = static_cast<const X*>(s.x.data);
  auto* y = static_cast<Y*>(s.y.data);
  for (int64_t pixel = 0; pixel < s.width; ++pixel, y += s.channels) {
    const int64_t begin = s.begins[pixel], end = s.begins[pixel + 1];
    for_channels(s.channels, [&](int64_t c, auto io) HWY_ATTR {
      const auto none = hn::Zero(hn::DFromV<decltype(io.load(s.weight))>());
      auto sum = none;
      for (int64_t k = begin; k < end; ++k) {
        const auto [from, place] = s.terms[k];
        const auto v = from < 0 ? none : io.load(x + from * s.channels + c);
        sum = hn::Add(sum, hn::Mul(v, io.load(s.weight + place * s.channels + c)));
      }
      io.store(sum, y + c);
    });
  }
}

void SumTerms(const LineOfSums& s) {
  const bool is_bf16 = s.x.dtype == Dtype::bf16;
  if (s.y.dtype == Dtype::bf16)
    return is_bf16 ? sum_terms<uint16_t, uint16_t>(s) : sum_terms<float, uint16_t>(s);
  is_bf16 ? sum_terms<uint16_t, float>(s) : sum_terms<float, float>(s);
}

template <typename Dy, typename X>
HWY_INLINE void add_products(const RowOfProducts& r) {
  const auto* const dy = static_cast<const Dy*>(r.dy.data);
  const auto* const x = static_cast<const X*>(r.x.data);
  const int64_t n = r.channels;
  // Windows that have all of the columns, if there are any.
  int64_t low = 0, high = r.n_columns == kColumns ? r.columns[0].end : 0;
  for (int64_t j = 0; j < r.n_columns; ++j) {
    low = std::max(low, r.columns[j].begin);
    high = std::min(high, r.columns[j].end);
  }
  for_channels(n, [&](int64_t c, auto io) HWY_ATTR {
    const auto none = hn::Zero(hn::DFromV<decltype(io.load(r.sums))>());
    const auto product = [&](const ColumnOfPlaces& column, int64_t q) HWY_ATTR {
      return hn::Mul(io.load(dy + q * n + c), io.load(x + (column.first + r.stride * q) * n + c));
    };
    const auto add = [&](auto sum, const ColumnOfPlaces& column, int64_t q, int64_t end) HWY_ATTR {
      for (; q < end; ++q) {
        const bool is_inside = q >= column.begin && q < column.end;
        sum = hn::Add(sum, is_inside ? product(column, q) : hn::Mul(io.load(dy + q * n + c), none));
      }
      return sum;
    };
    const auto put = [&](int64_t j, auto sum) HWY_ATTR {
      float* const to = r.sums + j * n + c;
      io.store(hn::Add(io.load(to), sum), to);
    };
    if (low >= high) {
      for (int64_t j = 0; j < r.n_columns; ++j) put(j, add(none, r.columns[j], 0, r.n_windows));
      return;
    }
    const auto& [first, second, third] = r.columns;
    auto a = add(none, first, 0, low), b = add(none, second, 0, low), d = add(none, third, 0, low);
    for (int64_t q = low; q < high; ++q) {
      a = hn::Add(a, product(first, q));
      b = hn::Add(b, product(second, q));
      d = hn::Add(d, product(third, q));
    }
    put(0, add(a, first, high, r.n_windows));
    put(1, add(b, second, high, r.n_windows));
    put(2, add(d, third, high, r.n_windows));
  });
}

void AddProducts(const RowOfProducts& r) {
  const bool is_bf16 = r.dy.dtype == Dtype::bf16;
  if (r.x.dtype == Dtype::bf16)
    return is_bf16 ? add_products<uint16_t, uint16_t>(r) : add_products<float, uint16_t>(r);
  is_bf16 ? add_products<uint16_t, float>(r) : add_products<float, float>(r);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(SumTerms);
HWY_EXPORT(AddProducts);

namespace {

int64_t n_places(const UnfoldAttrs& a) {
  return a.window[0] * a.window[1];
}

float number_at(In x, int64_t i) {
  if (x.dtype == Dtype::f32) return static_cast<const float*>(x.data)[i];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(x.data)[i]} << 16);
}

int64_t n_sum_blocks(const Windows& windows) {
  return ceil_div(windows.n_pictures * windows.attrs.n_windows(0), kDepthwiseRows);
}

ColumnOfPlaces column_of(const UnfoldAttrs& a, int64_t j) {
  const int64_t first = j * a.dilation[1] - a.low[1];
  const Inside windows = places_inside(first, a.stride[1], a.n_windows(1), a.picture[1]);
  return {windows.first, windows.end, first};
}

// The sums of one block of rows, [places, channels].
void sum_block(const Windows& windows, const DepthwiseCall& call, int64_t block) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddProducts);
  const UnfoldAttrs& a = windows.attrs;
  const int64_t n = windows.channels, n_rows = a.n_windows(0);
  float* const sums = call.scratch + block * n_places(a) * n;
  std::fill_n(sums, n_places(a) * n, 0.0f);
  const int64_t end = std::min((block + 1) * kDepthwiseRows, windows.n_pictures * n_rows);
  for (int64_t row = block * kDepthwiseRows; row < end; ++row) {
    const int64_t picture = row / n_rows, top = row % n_rows * a.stride[0] - a.low[0];
    for (int64_t i = 0; i < a.window[0]; ++i) {
      const int64_t line = top + i * a.dilation[0];
      const bool is_inside = line >= 0 && line < a.picture[0];
      RowOfProducts products{
          .dy = offset(call.first, row * a.n_windows(1) * n),
          .x = offset(call.second,
                      is_inside ? (picture * a.picture[0] + line) * a.picture[1] * n : 0),
          .sums = sums + i * a.window[1] * n,
          .columns = {},
          .n_columns = 0,
          .n_windows = a.n_windows(1),
          .stride = a.stride[1],
          .channels = n};
      for (int64_t j = 0; j < a.window[1]; j += kColumns, products.sums += kColumns * n) {
        products.n_columns = std::min(kColumns, a.window[1] - j);
        for (int64_t k = 0; k < products.n_columns; ++k)
          products.columns[static_cast<size_t>(k)] =
              is_inside ? column_of(a, j + k) : ColumnOfPlaces{0, 0, 0};
        kernel(products);
      }
    }
  }
}

// Sums of blocks, of columns [begin, end) of all places and channels.
void join_blocks(const Windows& windows, const DepthwiseCall& call, int64_t begin, int64_t end) {
  const int64_t places = n_places(windows.attrs), n = windows.channels;
  const int64_t n_blocks = n_sum_blocks(windows);
  for (int64_t column = begin; column < end; ++column) {
    std::array<double, kDepthwiseSums> sum{};
    for (int64_t block = 0; block < n_blocks; ++block)
      sum[static_cast<size_t>(block % kDepthwiseSums)] += call.scratch[block * places * n + column];
    for (size_t half = sum.size() / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
    const auto rounded = static_cast<float>(sum[0]);
    const Out to = offset(call.result, column % n * places + column / n);
    convert_span({&rounded, Dtype::f32}, 1, to);
  }
}

}  // namespace

DepthwiseTerms depthwise_terms(const UnfoldAttrs& a) {
  DepthwiseTerms all{.terms = {},
                     .begins = {0},
                     .height = a.n_windows(0),
                     .width = a.n_windows(1),
                     .n_source_pixels = a.picture[0] * a.picture[1]};
  for (int64_t window = 0; window < all.height * all.width; ++window) {
    const int64_t top = window / all.width * a.stride[0] - a.low[0],
                  left = window % all.width * a.stride[1] - a.low[1];
    for (int64_t place = 0; place < n_places(a); ++place) {
      const int64_t r = top + place / a.window[1] * a.dilation[0],
                    s = left + place % a.window[1] * a.dilation[1];
      const bool is_inside = r >= 0 && r < a.picture[0] && s >= 0 && s < a.picture[1];
      all.terms.push_back({is_inside ? r * a.picture[1] + s : -1, place});
    }
    all.begins.push_back(std::ssize(all.terms));
  }
  return all;
}

DepthwiseTerms depthwise_gradient_terms(const UnfoldAttrs& a) {
  const FoldedBlocks folded = folded_blocks({.attrs = a, .n_pictures = 1, .channels = 1});
  DepthwiseTerms all{.terms = {},
                     .begins = folded.begins,
                     .height = a.picture[0],
                     .width = a.picture[1],
                     .n_source_pixels = a.n_windows(0) * a.n_windows(1)};
  all.terms.resize(folded.blocks.size());
  for (size_t pixel = 0; pixel + 1 < folded.begins.size(); ++pixel) {
    const int64_t begin = folded.begins[pixel], end = folded.begins[pixel + 1];
    for (int64_t k = begin; k < end; ++k) {
      const int64_t block = folded.blocks[static_cast<size_t>(end - 1 - (k - begin))];
      all.terms[static_cast<size_t>(k)] = {block / n_places(a), block % n_places(a)};
    }
  }
  return all;
}

int64_t depthwise_weight_floats(const Windows& windows) {
  return windows.window_elems();
}

void depthwise(const Windows& windows, const DepthwiseTerms& terms, const DepthwiseCall& call,
               ThreadPool& pool) {
  const int64_t places = n_places(windows.attrs), n = windows.channels;
  for (int64_t c = 0; c < n; ++c)
    for (int64_t i = 0; i < places; ++i)
      call.scratch[i * n + c] = number_at(call.second, c * places + i);
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumTerms);
  for_blocks(pool, windows.n_pictures * terms.height, rows_of_tile(4 * terms.width * n),
             [&](int64_t begin, int64_t end, int) {
               for (int64_t line = begin; line < end; ++line) {
                 const int64_t picture = line / terms.height;
                 kernel({.x = offset(call.first, picture * terms.n_source_pixels * n),
                         .y = offset(call.result, line * terms.width * n),
                         .weight = call.scratch,
                         .terms = terms.terms.data(),
                         .begins = terms.begins.data() + line % terms.height * terms.width,
                         .width = terms.width,
                         .channels = n});
               }
             });
}

int64_t depthwise_sum_floats(const Windows& windows) {
  return n_sum_blocks(windows) * windows.window_elems();
}

void depthwise_weight_gradient(const Windows& windows, const DepthwiseCall& call,
                               ThreadPool& pool) {
  const int64_t n_columns = windows.window_elems();
  for_tiles(pool, n_sum_blocks(windows),
            [&](int64_t block, int) { sum_block(windows, call, block); });
  for_blocks(pool, n_columns, 64,
             [&](int64_t begin, int64_t end, int) { join_blocks(windows, call, begin, end); });
}

}  // namespace octet::cpu
#endif
