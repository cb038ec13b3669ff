// Raw standard input and output, which the sub-commands of `octet formats` share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cli/common.h"
#include "formats/codec.h"

namespace octet {

// All of standard input, or of a file; Error{io} when it cannot be read.
std::string read_stdin();
std::string read_raw_file(const std::string& path);

// Error{bad_data} where the last word of this many bytes is cut short.
inline void check_whole(const std::string& bytes, size_t word, const std::string& what) {
  if (bytes.size() % word == 0) return;
  throw Error(ErrorCode::bad_data, "[formats] {}: expected a multiple of {} bytes, got {}", what,
              word, bytes.size());
}

// Little-endian words; Error{bad_data} when the last one is cut short.
template <typename T>
std::vector<T> words_of(const std::string& bytes, const std::string& what) {
  check_whole(bytes, sizeof(T), what);
  std::vector<T> words(bytes.size() / sizeof(T));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

template <typename T>
void write_words(std::span<const T> words) {
  write_data({reinterpret_cast<const char*>(words.data()), words.size_bytes()});
}

// formats quantize and formats dequantize.
void add_quantize_commands(CLI::App& formats, GlobalOptions& options);

}  // namespace octet
