// The files of a tokenizer that other programs ask for, where a run's own are others.
#pragma once

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "infer/model_source.h"

namespace octet {

// Into a folder that has what could be copied. Of a run on bytes a tokenizer.json of 256 tokens,
// a byte each, its number the id; of the vocabulary of a GGUF file what import_gguf() writes;
// beside a vocab.txt a tokenizer_config.json, which says what reads it. A tokenizer that is read
// and not written is a warning.
void put_tokenizer(Files& files, const ModelSource& source, const std::string& folder,
                   const Log& log);

// True if a run read its texts by another tokenizer than its model's folder holds, or began from
// first weights: the folder's ids are then those of other tokens.
bool has_own_tokenizer(const ModelSource& source);
// bos_token_id, eos_token_id and pad_token_id of the source's tokenizer; null where it has none, or
// is not there.
Json ids_of_tokenizer(const Files& files, const ModelSource& source);

}  // namespace octet
