// Training that goes on with adapters of a folder (lora.adapter): what the folder says of them
// becomes the run's keys.
#pragma once

#include "base/files.h"
#include "config/load.h"

namespace octet {

// Sets lora.kind, .rank, .alpha, .targets, .ranks and .save, and lora.dropout where nobody said it,
// as the folder that lora.adapter names has them; nothing where it names none. Throws
// Error{invalid_argument} naming a key that says otherwise, Error{bad_data} as read_peft_adapter()
// and peft_training() do (infer/peft_adapter.h).
void take_adapter(const Files& files, LoadedConfig& loaded);

}  // namespace octet
