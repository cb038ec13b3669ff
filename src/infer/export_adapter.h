// Adapters as PEFT stores them: adapter_config.json and adapter_model.safetensors with tensors
// "base_model.model.<module>.lora_A.weight" [rank, in] and "...lora_B.weight" [out, rank].
#pragma once

#include "infer/export.h"

namespace octet {

// The adapters of a run, in the type that it computed in, bit by bit, beside the tokenizer's files
// and the chat template, which may be another than the base's. `folder` must be free or
// empty; the configuration is written last. Throws Error{invalid_argument} where it is neither, and
// where the source has no adapters.
ExportResult export_adapter(Files& files, const ModelSource& source, const std::string& folder,
                            const Log& log = {});

}  // namespace octet
