// A model folder whose weights lie in a GGUF file. octet_gguf.json of the folder says
//   file      the path of the GGUF file
//   tensors   of each parameter its tensor there (`name`), and the width of the heads whose rows
//             are in pairs (`head_dim`; 0: none, io/gguf_rows.h)
// Elements are dequantized when they are read, and are F32 to whoever reads the folder.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "io/gguf_reader.h"
#include "io/safetensors.h"

namespace octet {

inline constexpr const char* kGgufWeights = "octet_gguf.json";

// The place of a parameter.
struct GgufPlace {
  std::string name;
  int64_t head_dim = 0;
};

class GgufWeights {
 public:
  // Throws Error{bad_data} where the file is not there, or has not what the folder says.
  static GgufWeights open(const Files& files, const std::string& folder);

  // `said_by` is what says where they lie, in messages.
  GgufWeights(GgufReader file, const std::map<std::string, GgufPlace>& places,
              const std::string& said_by);

  const std::string& path() const { return file_.path(); }  // the GGUF file's
  std::vector<std::string> names() const;                   // sorted
  const StoredTensor* find(std::string_view name) const;    // null when absent
  // Elements [first, first + out.size()) of a parameter, row-major, in a model folder's order.
  void read(std::string_view name, int64_t first, std::span<float> out) const;

 private:
  struct Tensor {
    StoredTensor stored;
    const GgufTensor* in_file = nullptr;
    int64_t head_dim = 0;
  };
  GgufReader file_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// The text of octet_gguf.json.
std::string gguf_weights_text(const std::string& file,
                              const std::map<std::string, GgufPlace>& tensors);

}  // namespace octet
