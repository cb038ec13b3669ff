#include "train/text_rows.h"

#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/named_enum.h"
#include "data/masked_rows.h"

namespace octet {
namespace {

// The special token that one of these names has, as BERT's and RoBERTa's files spell them.
std::optional<int32_t> named_token(const Tokenizer& tokenizer,
                                   std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto id = tokenizer.special_id(name)) return id;
  }
  return std::nullopt;
}

int32_t padding_token(const Tokenizer& tokenizer) {
  return named_token(tokenizer, {"[PAD]", "<pad>"}).value_or(0);
}

void check_boundaries(const RunConfig& config) {
  const DocumentBoundaries boundaries = config.data.document_boundaries;
  if (boundaries == DocumentBoundaries::ignore) return;
  throw Error(ErrorCode::invalid_argument,
              "data.document_boundaries: expected ignore for an encoder's text, got {}",
              enum_name(boundaries));
}

}  // namespace

Dataset hide_tokens(const Dataset& text, const RunConfig& config, const RunInputs& inputs,
                    const Tokenizer& tokenizer) {
  check_boundaries(config);
  const auto mask = named_token(tokenizer, {"[MASK]", "<mask>"});
  if (!mask) {
    throw Error(ErrorCode::bad_data,
                "data.tokenizer: expected a tokenizer with a token [MASK] or <mask>, which stands "
                "for hidden ones, got '{}', which has none",
                config.data.tokenizer);
  }
  const TextTemplate around = tokenizer.text_template();
  MaskedRowsOptions options{.seq = config.model.seq,
                            .before = tokens_before(around.single),
                            .behind = tokens_behind(around.single),
                            .padding = padding_token(tokenizer),
                            .labels = *inputs.find("labels")};
  options.masking = {.seed = static_cast<uint64_t>(config.train.seed),
                     .mask_token = *mask,
                     .vocab = tokenizer.vocab_size(),
                     .special_tokens = tokenizer.special_ids(),
                     .chosen = config.data.mask.share};
  Dataset rows = text;
  rows.train = rows.val = {};
  rows.train_rows = masked_rows(text.train, options);
  if (text.val.n_tokens() > 0) rows.val_rows = masked_rows(text.val, options);
  return rows;
}

}  // namespace octet
