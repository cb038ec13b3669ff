// A GGUF file of a Llama as a Hugging Face model folder: metadata to config.json, tensors to f32
// weights (rows of queries and keys in Hugging Face's order), vocabulary and chat template to
// tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <string>

#include "base/files.h"
#include "infer/export.h"
#include "io/gguf_reader.h"
#include "nn/spec.h"

namespace octet {

bool is_gguf_name(const std::string& path);

// The model that the metadata say. Throws Error{bad_data}, "[gguf] PATH: expected ...", for other
// architectures, and for what a Llama of ours has not (experts, scaled rotary positions).
ModelSpec gguf_spec(const GgufReader& file);

// Text of tokenizer.json and tokenizer_config.json, by the metadata. Throws Error{bad_data} where
// they name another kind of vocabulary than GPT-2's, or words that are not known.
std::string gguf_tokenizer_json(const GgufHeader& header, const std::string& path);
std::string gguf_tokenizer_config(const GgufHeader& header);
std::string gguf_generation_config(const GgufHeader& header);

// Writes the folder as export_model does; `dtype` as_stored, bf16 or f32 (as_stored is f32).
ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options);

}  // namespace octet
