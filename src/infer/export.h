// A model as the Hugging Face ecosystem ships it: config.json, generation_config.json, the files of
// its tokenizer, and model.safetensors or shards with an index, which transformers and inference
// servers load. Tensors have Hugging Face's names; a tied head is left out.
//
//   as_stored   the tensors' bytes as they are; of a run its compute copy
//   bf16        rounded to nearest even; of a run its compute copy
//   f32         exact; of a run its masters
//   fp8_block   linears of the decoder layers in E4M3, a scale for each block of 128 x 128, blocks
//   at
//               the edges as if padded with zeros: quant_method fp8. All else as bf16
//   fp8_tensor  the same with one scale for each: compressed-tensors, float-quantized. Of a run
//               whose GEMMs read weights so, their bytes and scales (infer/trained_scales.h); else
//               a BF16 number
//   hif8        the same in HiFloat8 codes (U8), scale = amax / 15 in f32: quant_method octet
//               (docs/formats/quantized.md), which no other program reads
//   as_base     of a run that began with a folder of FP8 weights in that folder's form
//               (infer/export_as_base.h)
// Of E4M3 scale = amax / 448, a multiplier; blocks of zeros have scale 1. Weights that are so
// stored already are copied, so that a model of any dtype goes in and out bit by bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/named_enum.h"
#include "infer/model_source.h"
#include "io/safetensors.h"
#include "text/added_tokens.h"

namespace octet {

enum class ExportDtype : uint8_t { as_stored, bf16, f32, fp8_block, fp8_tensor, hif8, as_base };
constexpr auto value_names(ExportDtype) {
  return name_list("as-stored", "bf16", "f32", "fp8-block", "fp8-tensor", "hif8", "as-base");
}

constexpr bool is_eight_bit(ExportDtype dtype) {
  return dtype >= ExportDtype::fp8_block;
}

// none: all files but the weights.
enum class WeightFiles : uint8_t { written, none };

struct ExportOptions {
  ExportDtype dtype = ExportDtype::as_stored;
  WeightFiles weights = WeightFiles::written;
  uint64_t max_shard = 5'000'000'000;  // bytes of tensors in a file; a larger tensor has its own
  NonfiniteWeights nonfinite = NonfiniteWeights::refused;  // of a GGUF file
  std::vector<AddedToken> added = {};                      // new tokens (infer/add_tokens.h)
  Log log = {};
};

// The same model with its batch norms in the convolutions before them (ModelSpec::folded_norms).
// Throws Error{invalid_argument} of a model without batch norms, and of a run, whose masters have
// them.
ModelSource with_folded_norms(ModelSource source);

struct ExportResult {
  int64_t n_tensors = 0, n_bytes = 0, n_shards = 0;
};

// `folder` must be free or empty; config.json is written last, so that one that was not finished is
// no model. Throws Error{invalid_argument} where it is neither, where config.json has no words for
// the model, or where 8-bit weights of its architecture have no loader; Error{bad_data} for weights
// that are not finite and become 8 bits. Takes memory of a few MiB beside a strip of 128 rows.
ExportResult export_model(Files& files, const ModelSource& source, const std::string& folder,
                          const ExportOptions& options);

// A folder's tensors, its quantization_config (null: none), and the texts of further files, by
// name.
struct ExportContent {
  std::vector<TensorSource> tensors;
  Json quantization = nullptr;
  std::map<std::string, std::string> texts = {};
  // Last before config.json, in the folder.
  std::function<void(Files& files, const std::string& folder)> finish = {};
};
// Into a folder that is there: weights, companions, and last config.json, the source's own keys
// with those that say what the model is.
ExportResult write_model_folder(Files& files, const ModelSource& source, const std::string& folder,
                                const ExportContent& content, const ExportOptions& options);
// Warning, which ends with what has none, of a linear whose blocks of 128 x 128 at the edges are
// not whole; nothing elsewhere. `op` is what it begins with.
std::optional<std::string> partial_blocks_warning(std::string_view op, const std::string& weight,
                                                  const Shape& shape, std::string_view instead);
// Throws Error{invalid_argument} where config.json has no words for the model's shape.
void check_exportable(const ModelSpec& spec);
// config.json's of ExportDtype::fp8_block, with these modules left as they are.
Json fp8_block_config(const std::vector<std::string>& kept_modules);
// Makes the folder that an export writes. Throws Error{invalid_argument} where it is neither free
// nor empty.
void take_export_folder(Files& files, const std::string& folder);

// A tokenizer_config.json that is to be written again; {} where there is none. Throws
// Error{bad_data} for another file.
OrderedJson read_tokenizer_config(const Files& files, const std::string& path);

// The files beside weights and config.json that an export copies where they are regular files, or
// links into the hub's cache, of at most kMaxCopiedBytes: of tokenizer, chat template and
// generation. A tokenizer's file of another name gets the usual one, and its folder's other files
// stay where they are. A run that was trained on conversations has the template of its training,
// one of pictures what they went through (image_transforms.h).
inline constexpr uint64_t kMaxCopiedBytes = uint64_t{128} << 20;
void copy_companions(Files& files, const ModelSource& source, const std::string& folder,
                     const Log& log);
inline constexpr const char* kNamedTemplates = "additional_chat_templates";  // its folder
// One of them, from path to path; false where there is none that may be copied.
bool copy_companion(Files& files, const std::string& from, const std::string& to, const Log& log);
// Makes the files of `folder` say what the run rendered its conversations with, where they do not.
void put_chat_templates(Files& files, const ModelSource& source, const std::string& folder,
                        const Log& log);

// Adapters as PEFT stores them: adapter_config.json and adapter_model.safetensors with tensors
// "base_model.model.<module>.lora_A.weight" [rank, in] and "...lora_B.weight" [out, rank].
//
// The adapters of a run, in the type that it computed in, bit by bit, beside the tokenizer's files
// and the chat template, which may be another than the base's. `folder` must be free or
// empty; the configuration is written last. Throws Error{invalid_argument} where it is neither, and
// where the source has no adapters.
ExportResult export_adapter(Files& files, const ModelSource& source, const std::string& folder,
                            const Log& log = {});

}  // namespace octet
