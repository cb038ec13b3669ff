// A GGUF file of a Llama as a Hugging Face model folder: metadata to config.json, tensors to f32
// weights (rows of queries and keys in Hugging Face's order), vocabulary and chat template to
// tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "infer/export.h"
#include "io/gguf_reader.h"
#include "nn/spec.h"

namespace octet {

bool is_gguf_name(const std::string& path);

// The model that the metadata say. Throws Error{bad_data}, "[gguf] PATH: expected ...", for other
// architectures, for what a Llama of ours has not (yarn), and where the file's tensors or tokens
// are not those of this shape.
ModelSpec gguf_spec(const GgufReader& file);

// Keys that change nothing, and how those begin that say what a file is ("general."). A row of
// docs/results/neutral_keys.csv proves it, of a beginning for some that begin so.
std::vector<std::string_view> neutral_gguf_keys();

// Writes the folder as export_model does; `dtype` as_stored, bf16 or f32 (as_stored is f32). Every
// key of the model is read, neutral, or refused by name; others get a warning each. What
// the folder's readers refuse is refused before it is made, but for weights that are not finite.
ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options);

}  // namespace octet
