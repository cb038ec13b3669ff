// The order of rows of queries and keys. Those of a head of width d stand in pairs that rotate
// together in a GGUF file of llama.cpp's: row h d + j d/2 + i of a model folder is row h d + 2 i +
// j of the file, j being 0 or 1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace octet {

inline int64_t row_in_file(int64_t row, int64_t width) {
  const int64_t in_head = row % width, half = width / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}
inline int64_t row_in_folder(int64_t row, int64_t width) {
  const int64_t in_head = row % width, half = width / 2;
  return row - in_head + in_head % 2 * half + in_head / 2;
}

// Elements [first, first + out.size()) of a matrix whose row r is row row_of(r) of the one that
// `read` reads elements of.
template <typename RowOf, typename Read>
void read_rows(int64_t cols, int64_t first, std::span<float> out, RowOf&& row_of, Read&& read) {
  const auto n = static_cast<int64_t>(out.size());
  for (int64_t at = 0; at < n;) {
    const int64_t row = (first + at) / cols, col = (first + at) % cols;
    const int64_t length = std::min(n - at, cols - col);
    read(row_of(row) * cols + col,
         out.subspan(static_cast<size_t>(at), static_cast<size_t>(length)));
    at += length;
  }
}

}  // namespace octet
