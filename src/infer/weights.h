// A model's weights from safetensors files, as f32.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "io/model_files.h"
#include "nn/model.h"

namespace octet {

class WeightReader {
 public:
  // Opens and checks the files: every parameter of the model is there once, with its shape, as F32,
  // BF16 or F16, and nothing else is there (but buffers that are no parameters). Throws
  // Error{bad_data} naming the first tensor that differs.
  WeightReader(const Files& files, const std::string& path, const ModelSpec& spec);

  // Row-major in the parameter's shape; exact.
  std::vector<float> read(const std::string& parameter) const;

 private:
  ModelFiles files_;
  std::map<std::string, std::string> stored_name_;  // by parameter
};

}  // namespace octet
