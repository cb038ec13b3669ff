// Pictures of conversations: where a record says that they stand, and where they come from.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "data/chat_records.h"

namespace octet {

// Pictures that a record lists beside its messages (`image`, `images`): a path, an object with one
// (path, image, url) or with base64, or a data address ("data:image/png;base64,..."). Throws as
// bad_record() does, also for an address of another machine.
std::vector<ChatPicture> listed_pictures(const OrderedJson& value);

// Gives each place of a picture in the messages its picture, in their order: a part of the type
// image, image_url or input_image the one that it holds, the one at its `index` in the list, or as
// a `mark` in a text does the next one listed. Such parts become {"type": "image", "text": mark}.
// Throws as bad_record() does where there are more places than pictures or fewer, more than
// kMaxPictures, or one stands in an answer.
inline constexpr size_t kMaxPictures = 256;
std::vector<ChatPicture> place_pictures(OrderedJson& messages, std::vector<ChatPicture> listed,
                                        const std::string& mark);

// True if a part's type is that of a picture.
bool is_picture_type(const std::string& type);

// Contents that are texts as lists of parts, for templates that take no texts.
void split_into_parts(OrderedJson& messages, const std::string& mark);

}  // namespace octet
