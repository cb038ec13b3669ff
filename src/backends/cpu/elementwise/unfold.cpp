#include "backends/cpu/elementwise/unfold.h"

#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/unfold.cpp"
#include <hwy/foreach_target.h>
#include "backends/cpu/common/simd_targets.h"

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(SumLine);

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
        y_(static_cast<char*>(y)) {}

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
    for (int64_t q = 0; q < n_columns_; ++q)
      std::memset(to + q * stride_ + window_bytes_, 0,
                  static_cast<size_t>(stride_ - window_bytes_));
  }

 private:
  // One line of every window of the row, of a line of the picture or of none.
  void line(const char* from, char* to) const {
    const int64_t n = a_.window[1], line_bytes = n * pixel_bytes_;
    for (int64_t q = 0; q < n_columns_; ++q, to += stride_) {
      const int64_t left = q * a_.stride[1] - a_.low[1];
      const Inside in =
          from == nullptr ? Inside{n, n} : places_inside(left, a_.dilation[1], n, a_.picture[1]);
      if (in.end - in.first < n) std::memset(to, 0, static_cast<size_t>(line_bytes));
      if (a_.dilation[1] == 1) {
        copy(to, from, left, {in.first, in.end});
        continue;
      }
      for (int64_t j = in.first; j < in.end; ++j)
        copy(to, from, left + j * (a_.dilation[1] - 1), {j, j + 1});
    }
  }
  // Places that are neighbours in the picture.
  void copy(char* to, const char* from, int64_t left, Inside in) const {
    if (in.first == in.end) return;
    to += in.first * pixel_bytes_;
    from += (left + in.first) * pixel_bytes_;
    const int64_t n = (in.end - in.first) * pixel_bytes_;
    if (n % kPiece != 0 || n > 8 * kPiece) {
      std::memcpy(to, from, static_cast<size_t>(n));
      return;
    }
    // Copies of a constant size: a few moves, no call.
    for (int64_t i = 0; i < n; i += kPiece) std::memcpy(to + i, from + i, kPiece);
  }

  static constexpr int64_t kPiece = 32;
  const UnfoldAttrs& a_;
  int64_t n_columns_, pixel_bytes_, window_bytes_, stride_;
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
  const int64_t picture_elems = a.n_windows(0) * a.n_windows(1) * windows.window_elems();
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

FoldedBlocks folded_blocks(const Windows& windows) {
  const UnfoldAttrs& a = windows.attrs;
  FoldedBlocks folded;
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
          folded.blocks.push_back((window * a.window[0] * a.window[1] + place) * windows.channels);
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
