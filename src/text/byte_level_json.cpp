#include "text/byte_level_json.h"

#include <utility>

namespace octet {

Json byte_level_step(bool by_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", by_words}};
}

Json byte_level_json(ByteLevelBpe bpe) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(bpe.added_tokens)},
          {"normalizer", std::move(bpe.normalizer)},
          {"pre_tokenizer", std::move(bpe.pre_tokenizer)},
          {"post_processor", std::move(bpe.post_processor)},
          {"decoder", byte_level_step(true)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", bpe.ignore_merges},
            {"vocab", std::move(bpe.vocab)},
            {"merges", std::move(bpe.merges)}}}};
}

}  // namespace octet
