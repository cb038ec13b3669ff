// Fetches a block of columns of a transposed matrix into the second-level cache while the block
// before it is multiplied: lines in the order in which they lie, so that memory is read as one
// stream, though a product reads many columns side by side.
#pragma once

#include <cstdint>

namespace octet::cpu {

// Whether a product fetches the columns behind those that it reads.
enum class Fetch : uint8_t { none, next_columns };

class LineFetch {
 public:
  // Columns of n_bytes at `first`, first + column_bytes, ...
  LineFetch(const char* first, int64_t column_bytes, int64_t n_bytes)
      : column_(first), line_(first), column_bytes_(column_bytes), n_bytes_(n_bytes) {}

  template <int N>
  void next() {
    for (int i = 0; i < N; ++i) {
      __builtin_prefetch(line_, kRead, kSecondLevel);
      line_ += kLineBytes;
      if (line_ >= column_ + n_bytes_) line_ = column_ += column_bytes_;
    }
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  static constexpr int kRead = 0, kSecondLevel = 2;
  const char *column_, *line_;
  int64_t column_bytes_, n_bytes_;
};

}  // namespace octet::cpu
