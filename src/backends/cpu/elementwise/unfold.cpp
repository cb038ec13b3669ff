#include "backends/cpu/elementwise/unfold.h"

#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/unfold.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"

#ifndef OCTET_CPU_UNFOLD_ARGS
#define OCTET_CPU_UNFOLD_ARGS
namespace octet::cpu {
namespace {

// The pixels of a line: of pixel i the sum of the blocks of `channels` elements that begin at
// blocks[begins[i]], ..., in this order.
struct LineSums {
  In y;
  Out x;
  const int64_t *blocks, *begins;
  int64_t width, channels;
};

constexpr int64_t kPiece = 32;

// Runs of bytes, from_step apart, to places to_step apart.
struct Copies {
  char* to;
  const char* from;
  int64_t to_step, from_step, count;
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename Y, typename X>
HWY_INLINE void sum_line(const LineSums& s) {
  const auto* const y = static_cast<const Y*>(s.y.data);
  auto* x = static_cast<X*>(s.x.data);
  for (int64_t pixel = 0; pixel < s.width; ++pixel, x += s.channels) {
    const int64_t begin = s.begins[pixel], end = s.begins[pixel + 1];
    for_lanes(0, s.channels, [&](int64_t c, auto io) HWY_ATTR {
      VF sum = zero();
      for (int64_t k = begin; k < end; ++k) sum = hn::Add(sum, io.load(y + s.blocks[k] + c));
      io.store(sum, x + c);
    });
  }
}

void SumLine(const LineSums& s) {
  const bool is_bf16 = s.y.dtype == Dtype::bf16;
  if (s.x.dtype == Dtype::bf16)
    return is_bf16 ? sum_line<uint16_t, uint16_t>(s) : sum_line<float, uint16_t>(s);
  is_bf16 ? sum_line<uint16_t, float>(s) : sum_line<float, float>(s);
}

// Of so many pieces, whose number the compiler knows: a few moves each, no call.
template <int kPieces>
HWY_INLINE void copy_pieces(Copies c) {
  const hn::CappedTag<uint8_t, kPiece> d;
  for (int64_t i = 0; i < c.count; ++i, c.to += c.to_step, c.from += c.from_step) {
#pragma GCC unroll 24
    for (size_t at = 0; at < kPieces * kPiece; at += hn::MaxLanes(d)) {
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const uint8_t*>(c.from) + at), d,
                 reinterpret_cast<uint8_t*>(c.to) + at);
    }
  }
}

// `n` bytes each; false: not of a size that is here.
bool CopyPieces(const Copies& c, int64_t n) {
  switch (n) {
    case kPiece:
      copy_pieces<1>(c);
      return true;
    case 3 * kPiece:
      copy_pieces<3>(c);
      return true;
    case 6 * kPiece:
      copy_pieces<6>(c);
      return true;
    case 12 * kPiece:
      copy_pieces<12>(c);
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(SumLine);
HWY_EXPORT(CopyPieces);

Inside places_inside(int64_t begin, int64_t step, int64_t n, int64_t extent) {
  if (begin >= 0 && begin + (n - 1) * step < extent) return {0, n};  // of most, without a division
  const int64_t first = begin >= 0 ? 0 : ceil_div(-begin, step);
  const int64_t end = begin >= extent ? 0 : ceil_div(extent - begin, step);
  return {std::min(first, n), std::max(std::min(first, n), std::min(end, n))};
}

int64_t rows_of_tile(int64_t row_bytes) {
  constexpr int64_t kTileBytes = 1 << 16;
  return std::max<int64_t>(1, kTileBytes / std::max<int64_t>(1, row_bytes));
}

namespace {

// The first of `n` bytes, and the last: a few moves without a call, which may overlap.
template <int64_t kBytes>
void copy_ends(char* to, const char* from, int64_t n) {
  char first[kBytes], last[kBytes];
  std::memcpy(first, from, kBytes);
  std::memcpy(last, from + n - kBytes, kBytes);
  std::memcpy(to, first, kBytes);
  std::memcpy(to + n - kBytes, last, kBytes);
}

void copy_each(Copies c, int64_t n) {
  if (n % kPiece == 0 && HWY_DYNAMIC_DISPATCH(CopyPieces)(c, n)) return;
  for (int64_t i = 0; i < c.count; ++i, c.to += c.to_step, c.from += c.from_step) {
    if (n >= 8 && n < 16) {
      copy_ends<8>(c.to, c.from, n);
    } else if (n >= 16 && n < kPiece) {
      copy_ends<16>(c.to, c.from, n);
    } else {
      std::memcpy(c.to, c.from, static_cast<size_t>(n));
    }
  }
}

void clear_each(char* to, int64_t to_step, int64_t count, int64_t n) {
  static constexpr char kZeros[kPiece] = {};
  if (n <= kPiece) return copy_each({to, kZeros, to_step, 0, count}, n);
  for (int64_t i = 0; i < count; ++i, to += to_step) std::memset(to, 0, static_cast<size_t>(n));
}

class Unfolding {
 public:
  // Windows lie row_elems elements apart.
  Unfolding(const Windows& windows, const void* x, void* y, int64_t bytes, int64_t row_elems)
      : a_(windows.attrs),
        n_columns_(a_.n_windows(1)),
        pixel_bytes_(windows.channels * bytes),
        window_bytes_(a_.window[0] * a_.window[1] * pixel_bytes_),
        stride_(row_elems * bytes),
        x_(static_cast<const char*>(x)),
        y_(static_cast<char*>(y)) {
    // Of the columns of windows those that lie inside the picture as a whole.
    const int64_t reach = a_.picture[1] - (a_.window[1] - 1) * a_.dilation[1] + a_.low[1];
    first_whole_ = std::min(n_columns_, ceil_div(std::max<int64_t>(0, a_.low[1]), a_.stride[1]));
    end_whole_ =
        std::clamp(reach <= 0 ? 0 : ceil_div(reach, a_.stride[1]), first_whole_, n_columns_);
  }

  int64_t row_bytes() const { return n_columns_ * stride_; }

  // The windows of one row of them, counted over all pictures.
  void row(int64_t row) const {
    const int64_t n_rows = a_.n_windows(0), picture = row / n_rows;
    const char* const from = x_ + picture * a_.picture[0] * a_.picture[1] * pixel_bytes_;
    char* const to = y_ + row * row_bytes();
    const int64_t top = row % n_rows * a_.stride[0] - a_.low[0];
    for (int64_t i = 0; i < a_.window[0]; ++i) {
      const int64_t r = top + i * a_.dilation[0];
      const bool is_inside = r >= 0 && r < a_.picture[0];
      line(is_inside ? from + r * a_.picture[1] * pixel_bytes_ : nullptr,
           to + i * a_.window[1] * pixel_bytes_);
    }
    if (stride_ == window_bytes_) return;
    clear_each(to + window_bytes_, stride_, n_columns_, stride_ - window_bytes_);
  }

 private:
  // One line of every window of the row, of a line of the picture or of none.
  void line(const char* from, char* to) const {
    const int64_t line_bytes = a_.window[1] * pixel_bytes_;
    if (from == nullptr) return clear_each(to, stride_, n_columns_, line_bytes);
    if (a_.dilation[1] != 1) return part(from, to, 0, n_columns_);
    part(from, to, 0, first_whole_);
    const int64_t step = a_.stride[1] * pixel_bytes_;
    if (first_whole_ < end_whole_) {
      copy_each({to + first_whole_ * stride_, from + first_whole_ * step - a_.low[1] * pixel_bytes_,
                 stride_, step, end_whole_ - first_whole_},
                line_bytes);
    }
    part(from, to, end_whole_, n_columns_);
  }
  // Columns of windows [q, q_end), of any places.
  void part(const char* from, char* to, int64_t q, int64_t q_end) const {
    const int64_t n = a_.window[1];
    for (to += q * stride_; q < q_end; ++q, to += stride_) {
      const int64_t left = q * a_.stride[1] - a_.low[1];
      const Inside in = places_inside(left, a_.dilation[1], n, a_.picture[1]);
      if (in.end - in.first < n) std::memset(to, 0, static_cast<size_t>(n * pixel_bytes_));
      copy_each(
          {to + in.first * pixel_bytes_, from + (left + in.first * a_.dilation[1]) * pixel_bytes_,
           pixel_bytes_, a_.dilation[1] * pixel_bytes_, in.end - in.first},
          pixel_bytes_);
    }
  }

  const UnfoldAttrs& a_;
  int64_t n_columns_, pixel_bytes_, window_bytes_, stride_;
  int64_t first_whole_ = 0, end_whole_ = 0;
  const char* x_;
  char* y_;
};

// The windows along an axis that hold a pixel, and at which place, by place.
struct Holder {
  int64_t place, window;
};
std::vector<Holder> holders(const UnfoldAttrs& a, size_t axis, int64_t pixel) {
  std::vector<Holder> all;
  for (int64_t i = 0; i < a.window[axis]; ++i) {
    const int64_t at = pixel + a.low[axis] - i * a.dilation[axis];
    if (at >= 0 && at % a.stride[axis] == 0 && at / a.stride[axis] < a.n_windows(axis))
      all.push_back({i, at / a.stride[axis]});
  }
  return all;
}

struct Lines {
  int64_t begin, end;
};
// Lines of all pictures.
void fold_lines(const Windows& windows, const FoldedBlocks& blocks, In y, Out x, Lines lines) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumLine);
  const UnfoldAttrs& a = windows.attrs;
  const int64_t line_elems = a.picture[1] * windows.channels;
  const int64_t picture_elems = a.n_windows(0) * a.n_windows(1) * blocks.row_elems;
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    const int64_t picture = line / a.picture[0], in_picture = line % a.picture[0];
    kernel({.y = offset(y, picture * picture_elems),
            .x = offset(x, line * line_elems),
            .blocks = blocks.blocks.data(),
            .begins = blocks.begins.data() + in_picture * a.picture[1],
            .width = a.picture[1],
            .channels = windows.channels});
  }
}

}  // namespace

FoldedBlocks folded_blocks(const Windows& windows, int64_t row_elems) {
  const UnfoldAttrs& a = windows.attrs;
  FoldedBlocks folded;
  folded.row_elems = std::max(row_elems, windows.window_elems());
  std::vector<std::vector<Holder>> columns;
  for (int64_t pixel = 0; pixel < a.picture[1]; ++pixel) columns.push_back(holders(a, 1, pixel));
  for (int64_t line = 0; line < a.picture[0]; ++line) {
    const std::vector<Holder> rows = holders(a, 0, line);
    for (const std::vector<Holder>& of_pixel : columns) {
      folded.begins.push_back(std::ssize(folded.blocks));
      for (const Holder& row : rows) {
        for (const Holder& column : of_pixel) {
          const int64_t window = row.window * a.n_windows(1) + column.window;
          const int64_t place = row.place * a.window[1] + column.place;
          folded.blocks.push_back(window * folded.row_elems + place * windows.channels);
        }
      }
    }
  }
  folded.begins.push_back(std::ssize(folded.blocks));
  return folded;
}

void unfold(const Windows& windows, const void* x, void* y, int64_t bytes, ThreadPool& pool) {
  const Unfolding unfolding(windows, x, y, bytes, windows.window_elems());
  for_blocks(pool, windows.n_pictures * windows.attrs.n_windows(0),
             rows_of_tile(unfolding.row_bytes()), [&](int64_t begin, int64_t end, int) {
               for (int64_t row = begin; row < end; ++row) unfolding.row(row);
             });
}

void unfold_pictures(const Windows& windows, In x, void* y, int64_t row_elems) {
  const Unfolding unfolding(windows, x.data, y, bytes_of(x.dtype, 1), row_elems);
  const int64_t n_rows = windows.n_pictures * windows.attrs.n_windows(0);
  for (int64_t row = 0; row < n_rows; ++row) unfolding.row(row);
}

void fold(const Windows& windows, const FoldedBlocks& blocks, In y, Out x, ThreadPool& pool) {
  const UnfoldAttrs& a = windows.attrs;
  const int64_t line_bytes = bytes_of(y.dtype, a.picture[1] * windows.channels);
  for_blocks(pool, windows.n_pictures * a.picture[0], rows_of_tile(line_bytes),
             [&](int64_t begin, int64_t end, int) {
               fold_lines(windows, blocks, y, x, {begin, end});
             });
}

void fold_pictures(const Windows& windows, const FoldedBlocks& blocks, In y, Out x) {
  fold_lines(windows, blocks, y, x, {0, windows.n_pictures * windows.attrs.picture[0]});
}

}  // namespace octet::cpu
#endif
