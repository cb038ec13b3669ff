// Tensors of a GGUF file, dequantized (gguf_blocks.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/gguf.h"

namespace octet {

class GgufReader {
 public:
  // Checks that every tensor's type is one of those above, that rows are whole blocks and that its
  // bytes lie in the file. Throws Error{bad_data}, "[gguf] PATH: expected ..., got ...".
  static GgufReader open(const Files& files, const std::string& path);

  const std::string& path() const { return file_->path(); }
  const GgufHeader& header() const { return *header_; }
  const GgufTensor* find(std::string_view name) const;  // null when absent
  // Elements [first, first + out.size()) of a tensor of the header, row-major.
  void read(const GgufTensor& tensor, int64_t first, std::span<float> out) const;

 private:
  GgufReader() = default;

  std::shared_ptr<FileReader> file_;          // shared so that readers can be copied
  std::shared_ptr<const std::string> bytes_;  // of the header, which points into them
  std::shared_ptr<const GgufHeader> header_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace octet
