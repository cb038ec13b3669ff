#include "backends/cpu/elementwise/move.h"

#include <cstring>
#include <span>

#include "base/error.h"

namespace octet::cpu {
namespace {

constexpr int64_t kSquare = 32;  // edge of the blocks in which two axes are exchanged

// Calls f with a null pointer to an unsigned type of this size.
template <typename F>
void visit_size(int64_t bytes, F&& f) {
  if (bytes == 1) return f(static_cast<uint8_t*>(nullptr));
  if (bytes == 2) return f(static_cast<uint16_t*>(nullptr));
  if (bytes == 4) return f(static_cast<uint32_t*>(nullptr));
  throw Error(ErrorCode::invalid_argument, "[move] expected elements of 1, 2 or 4 bytes, got {}",
              bytes);
}

// The last axis: n elements.
struct Line {
  int64_t n = 0, src_stride = 0, dst_stride = 0;
};
template <typename T>
void copy_line(const T* src, T* dst, const Line& line) {
  if (line.dst_stride == 1 && line.src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(line.n) * sizeof(T));
  } else if (line.dst_stride == 1 && line.src_stride == 0) {
    std::fill(dst, dst + line.n, *src);
  } else {
    for (int64_t i = 0; i < line.n; ++i) dst[i * line.dst_stride] = src[i * line.src_stride];
  }
}

// dst[i * dst_stride + j] = src[j * src_stride + i] for a block of at most kSquare x kSquare.
struct Square {
  int64_t n_i = 0, n_j = 0, src_stride = 0, dst_stride = 0;
};
template <typename T>
void copy_square(const T* src, T* dst, const Square& s) {
  T block[kSquare][kSquare];
  for (int64_t j = 0; j < s.n_j; ++j) {
    for (int64_t i = 0; i < s.n_i; ++i) block[i][j] = src[j * s.src_stride + i];
  }
  for (int64_t i = 0; i < s.n_i; ++i) {
    std::memcpy(dst + i * s.dst_stride, block[i], static_cast<size_t>(s.n_j) * sizeof(T));
  }
}

// Offsets of an index over some axes, counted in row-major order.
struct Position {
  int64_t src = 0, dst = 0;
};
Position position(const StridedCopy& copy, std::span<const size_t> axes, int64_t flat) {
  Position at{copy.src_start, copy.dst_start};
  for (size_t k = axes.size(); k-- > 0;) {
    const size_t axis = axes[k];
    const int64_t i = flat % copy.extent[axis];
    flat /= copy.extent[axis];
    at.src += i * copy.src_stride[axis];
    at.dst += i * copy.dst_stride[axis];
  }
  return at;
}

int64_t count(const StridedCopy& copy, std::span<const size_t> axes) {
  int64_t n = 1;
  for (const size_t axis : axes) n *= copy.extent[axis];
  return n;
}

std::vector<size_t> axes_without(size_t rank, std::initializer_list<size_t> left_out) {
  std::vector<size_t> axes;
  for (size_t k = 0; k < rank; ++k) {
    if (std::find(left_out.begin(), left_out.end(), k) == left_out.end()) axes.push_back(k);
  }
  return axes;
}

// Line after line; a line longer than a block is cut.
template <typename T>
void copy_lines(const StridedCopy& copy, const T* src, T* dst, ThreadPool& pool) {
  const size_t last = copy.extent.size() - 1;
  const std::vector<size_t> outer = axes_without(copy.extent.size(), {last});
  const int64_t width = copy.extent[last];
  const int64_t n_lines = count(copy, outer);
  const int64_t pieces = ceil_div(width, kBlockElems);
  const int64_t lines_per_tile = std::max<int64_t>(1, kBlockElems / width);
  for_blocks(pool, n_lines * pieces, lines_per_tile, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      const Position at = position(copy, outer, k / pieces);
      const int64_t first = k % pieces * kBlockElems;
      const Line line{std::min(kBlockElems, width - first), copy.src_stride[last],
                      copy.dst_stride[last]};
      copy_line(src + at.src + first * line.src_stride, dst + at.dst + first * line.dst_stride,
                line);
    }
  });
}

// The source is dense along `axis`, the destination along the last.
template <typename T>
void copy_squares(const StridedCopy& copy, const T* src, T* dst, size_t axis, ThreadPool& pool) {
  const size_t last = copy.extent.size() - 1;
  const std::vector<size_t> outer = axes_without(copy.extent.size(), {axis, last});
  const int64_t n_i = copy.extent[axis], n_j = copy.extent[last];
  const int64_t down = ceil_div(n_i, kSquare);
  for_tiles(pool, count(copy, outer) * down, [&](int64_t tile, int) {
    const Position at = position(copy, outer, tile / down);
    const int64_t i = tile % down * kSquare;
    for (int64_t j = 0; j < n_j; j += kSquare) {
      copy_square(src + at.src + i + j * copy.src_stride[last],
                  dst + at.dst + i * copy.dst_stride[axis] + j,
                  {std::min(kSquare, n_i - i), std::min(kSquare, n_j - j), copy.src_stride[last],
                   copy.dst_stride[axis]});
    }
  });
}

// Sources that run densely along another axis than the last are exchanged in squares.
size_t exchanged_axis(const StridedCopy& copy) {
  const size_t last = copy.extent.size() - 1;
  if (copy.dst_stride[last] != 1 || copy.src_stride[last] <= 1) return last;
  for (size_t k = 0; k < last; ++k) {
    if (copy.src_stride[k] == 1) return k;
  }
  return last;
}

}  // namespace

StridedCopy simplified(const StridedCopy& copy) {
  StridedCopy result{copy.src_start, copy.dst_start, {}, {}, {}};
  for (size_t k = 0; k < copy.extent.size(); ++k) {
    if (copy.extent[k] == 1) continue;
    const bool joins = !result.extent.empty() &&
                       result.src_stride.back() == copy.extent[k] * copy.src_stride[k] &&
                       result.dst_stride.back() == copy.extent[k] * copy.dst_stride[k];
    if (joins) {
      result.extent.back() *= copy.extent[k];
      result.src_stride.back() = copy.src_stride[k];
      result.dst_stride.back() = copy.dst_stride[k];
    } else {
      result.extent.push_back(copy.extent[k]);
      result.src_stride.push_back(copy.src_stride[k]);
      result.dst_stride.push_back(copy.dst_stride[k]);
    }
  }
  if (result.extent.empty()) return {copy.src_start, copy.dst_start, {1}, {1}, {1}};
  return result;
}

void copy_strided(const StridedCopy& copy, const void* src, void* dst, int64_t bytes,
                  ThreadPool& pool) {
  visit_size(bytes, [&]<typename T>(T*) {
    if (std::find(copy.extent.begin(), copy.extent.end(), 0) != copy.extent.end()) return;
    const size_t axis = exchanged_axis(copy);
    const auto* from = static_cast<const T*>(src);
    if (axis + 1 == copy.extent.size()) return copy_lines(copy, from, static_cast<T*>(dst), pool);
    copy_squares(copy, from, static_cast<T*>(dst), axis, pool);
  });
}

void fill_elements(void* dst, int64_t n, const Repeat& repeat, ThreadPool& pool) {
  visit_size(repeat.bytes, [&]<typename T>(T*) {
    T element;
    std::memcpy(&element, repeat.element, sizeof(T));
    auto* to = static_cast<T*>(dst);
    for_blocks(pool, n, kBlockElems,
               [&](int64_t begin, int64_t end, int) { std::fill(to + begin, to + end, element); });
  });
}

}  // namespace octet::cpu
