// The files of a folder that say what its pictures, and the texts beside them, go through.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/json.h"
#include "nn/model.h"

namespace octet {

inline constexpr const char* kImageProcessor = "preprocessor_config.json";
inline constexpr const char* kProcessor = "processor_config.json";

struct ImageProcessorFile {
  Json json;
  std::string where;
};
// File as transformers 5 finds it: the object "image_processor" of processor_config.json, which its
// processors of texts and pictures write alone, or else preprocessor_config.json.
std::optional<ImageProcessorFile> image_processor_file(const Files& files,
                                                       const std::string& folder);

// Throws Error{bad_data} naming the key of processor_config.json that asks for another number of
// tokens a picture than the model has rows, or that is not known. Of models that see pictures.
void check_processor_file(const Files& files, const std::string& folder, const ModelSpec& spec);

// processor_config.json beside kImageProcessor, with which transformers puts as many tokens for a
// picture as the model has rows. `mark`: the text of ModelSpec::image_token.
std::string processor_text(const ModelSpec& spec, const std::string& mark);

}  // namespace octet
