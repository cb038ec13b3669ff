// The header of a GGUF file: key-value pairs, then the list of tensors, little-endian. Source: the
// GGUF specification, versions 2 and 3. No length is trusted: all that is read lies in the bytes
// given. Errors: Error{bad_data}, "[OP] PATH: expected ...".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace octet {

// True if a name ends with .gguf, in small or capital letters.
bool is_gguf_name(std::string_view path);

enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // row-major: the file's dimensions in reverse
  uint32_t type = 0;           // ggml's number
  uint64_t offset = 0;         // behind the header
};

class GgufHeader {
 public:
  // `bytes` are the file's first, all of its header, and stay as long as this. `op` begins messages
  // ("tokenizer"). Tensors are read where asked for.
  enum class Tensors : uint8_t { skipped, read };
  GgufHeader(std::string_view bytes, std::string op, std::string path, Tensors tensors);

  bool has(const std::string& key) const { return values_.contains(key); }
  std::vector<std::string> keys() const;  // sorted
  // Values of a key that is there with this type; others throw, as does text that is no UTF-8.
  std::vector<std::string_view> strings(const std::string& key) const;
  std::string string(const std::string& key) const;
  std::vector<int32_t> integers(const std::string& key) const;
  std::vector<float> reals(const std::string& key) const;
  bool is_list(const std::string& key) const { return has(key) && values_.at(key).is_array; }
  // Of a list of u32 or i32.
  std::vector<int64_t> numbers(const std::string& key) const;
  bool flag(const std::string& key) const {
    return find(key, GgufType::boolean, false).bytes.front() != '\0';
  }
  uint32_t number(const std::string& key) const;
  float real(const std::string& key) const;
  // A key's value as it is shown; `type` is u16, u32, i32, f32, boolean or string.
  std::string shown(const std::string& key, GgufType type) const;

  const std::string& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  uint64_t n_bytes() const { return n_bytes_; }  // of the header, to the tensors' data

  // Throws Error{bad_data} of this file.
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::bad_data, "[{}] {}: {}", op_, path_,
                fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Value {
    GgufType type = GgufType::u8;  // of an array: of its elements
    bool is_array = false;
    uint64_t n = 1;          // elements
    std::string_view bytes;  // of all elements
  };
  class Cursor;

  void read_tensors(Cursor& cursor, uint64_t n);
  const Value& find(const std::string& key, GgufType type, bool is_array) const;
  std::string_view text(std::string_view bytes, std::string_view what) const;

  std::string op_, path_;
  std::map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
  uint64_t n_bytes_ = 0;
};

// A file's first bytes, enough for its header, whatever the size of its data.
std::string read_gguf_header(const Files& files, const std::string& path);

}  // namespace octet
