// A GGUF file of a Llama, Qwen 2 or Qwen 3 as a Hugging Face model folder: metadata to config.json,
// tensors to f32 weights (rows of queries and keys in Hugging Face's order), vocabulary and chat
// template to tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <string>

#include "base/files.h"
#include "infer/export.h"

namespace octet {

// Writes the folder as export_model does; `dtype` as_stored, bf16 or f32 (as_stored is f32). Every
// key of the model is read, neutral, or refused by name; others get a warning each. What
// the folder's readers refuse is refused before it is made, but for weights that are not finite.
ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options);

// The same folder without weights, which stay in the file (io/gguf_weights.h): what is read of it
// is as of import_gguf's, at a fraction of its bytes. `path` is absolute. A folder that is there
// and says so is left as it is. Throws as import_gguf().
void link_gguf(Files& files, const std::string& path, const std::string& folder, const Log& log);
// A name for such a folder: of the path and the header, in hexadecimal digits.
std::string gguf_identity(const Files& files, const std::string& path);

}  // namespace octet
