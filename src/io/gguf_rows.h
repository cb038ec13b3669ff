// The order of rows of queries and keys. Those of a head of width d stand in pairs that rotate
// together in a GGUF file of llama.cpp's: row h d + j d/2 + i of a model folder is row h d + 2 i +
// j of the file, j being 0 or 1.
#pragma once

#include <cstdint>

namespace octet {

inline int64_t row_in_file(int64_t row, int64_t width) {
  const int64_t in_head = row % width, half = width / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}
inline int64_t row_in_folder(int64_t row, int64_t width) {
  const int64_t in_head = row % width, half = width / 2;
  return row - in_head + in_head % 2 * half + in_head / 2;
}

}  // namespace octet
