// One text or two as a model of pairs reads them: tokens with what the tokenizer puts around them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

// Arrays of equal length.
struct EncodedTexts {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;    // token types: which text a token belongs to, as the template says
  std::vector<uint8_t> special;  // 1: the template's own; tokens of a text are 0, whatever they are
  bool is_cut = false;           // a text has lost its end, or its start
};

enum class CutSide : uint8_t { end, start };  // what a text that is too long loses

struct EncodeTextsOptions {
  int64_t max_tokens = 0;  // with the template's own; 0: any number
  CutSide cut = CutSide::end;
  EncodeTextOptions text = {};
};

// `first`, and `second` where there is one, by Tokenizer::text_template(). Texts that are too long
// lose their ends, or their starts: a single one all that is too much; of two the longer one first,
// down to the length of the shorter, then both to halves of the room, where the second gets the odd
// token if it is not the shorter, else the first. Source: `tokenizers`, truncation "longest_first".
// Throws Error{invalid_argument} where max_tokens has no room for the template's own tokens (the
// package does not cut such texts at all), and for a pair where the tokenizer has no such template.
EncodedTexts encode_texts(const Tokenizer& tokenizer, std::string_view first,
                          std::optional<std::string_view> second = std::nullopt,
                          const EncodeTextsOptions& options = {});

// Texts that are encoded already, whole, by one of TextTemplate's lists; `second` where it has one.
EncodedTexts join_texts(const std::vector<TemplatePart>& parts, std::span<const int32_t> first,
                        std::span<const int32_t> second = {});

}  // namespace octet
