// config.json of models of several parts, each of which has an object there.
#pragma once

#include <string_view>

#include "base/json.h"

namespace octet {

inline constexpr std::string_view kTextPart = "text_config", kVisionPart = "vision_config";
// How many rows a picture has, which the model's own code computes.
inline constexpr std::string_view kPictureLength = "image_seq_length";

// Puts in what transformers' classes have where a file of a model with pictures does not say it:
// whole parts, the sizes of a part, and tie_word_embeddings, which either place may hold. A vision
// model with a classifier becomes one file of keys. Other files stay as they are.
void complete_parts(Json& config);

// A vision model's keys as those of one with a classifier, whose class in transformers wants them
// in an object; files of other models stay. complete_parts() takes them out again.
void nest_classifier(Json& config);

// Puts the keys of a config.json of ours into another one, whose parts keep what else they say, but
// no type of their weights.
void put_keys(Json own, Json& config);

// Keys of a tower that change nothing of what the decoder reads: of the text beside it, and of what
// stands behind its hidden states.
bool is_of_other_towers(std::string_view key);

}  // namespace octet
