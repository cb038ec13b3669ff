// Keys of a run that files of its adapters settle: those of a folder that training goes on with
// (lora.adapter), and the parts of a head that begins anew.
#pragma once

#include "base/files.h"
#include "config/load.h"

namespace octet {

// Sets lora.kind, .rank, .alpha, .targets, .ranks and .save, and lora.dropout where nobody said it,
// as the folder that lora.adapter names has them; nothing where it names none. Throws
// Error{invalid_argument} naming a key that says otherwise, Error{bad_data} as read_peft_adapter()
// and peft_training() do (infer/peft_adapter.h).
// Adds to lora.save the modules of a masked head (model.head) that model.path has not, and that
// would be trained nowhere.
void settle_adapters(const Files& files, LoadedConfig& loaded);

}  // namespace octet
