// Pictures that clients send in conversations, for a model that sees them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cli/serve_fields.h"
#include "data/chat_records.h"
#include "infer/picture_prompt.h"

namespace octet {

// A picture's file as it came, and the field that holds it.
struct SentPicture {
  ChatPicture picture;
  std::string place;
};

class ServedPictures {
 public:
  // `mark`: image_mark(); `files` outlives it.
  ServedPictures(const Files& files, PictureRowsOptions rows, std::string mark)
      : files_(files), rows_(std::move(rows)), mark_(std::move(mark)) {}

  const std::string& mark() const { return mark_; }
  int32_t token() const { return rows_.image_token; }
  int64_t most() const { return rows_.pictures.inner[0]; }  // of a conversation

  // The part {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}} behind
  // n_before others. Throws ServeError by the field for any other address, what is no base64, and a
  // picture too many.
  SentPicture read(ServeFields& part, size_t n_before) const;

  // Tokens of messages with a mark for each of so many pictures, and in `placed`
  // EntryPictures::rows of them. Throws Error{bad_data} where the template leaves out marks or
  // makes more of them.
  std::vector<int32_t> tokens(const ChatPrompts& chat, const OrderedJson& messages,
                              size_t n_pictures, std::vector<int32_t>& placed) const;

  // The pictures as the model sees them. One at a time is decoded, whatever comes at once, so that
  // memory is bounded by the limits of one (PictureLimits). Throws ServeError by the field for a
  // picture that does not decode or is too large.
  std::shared_ptr<const EntryPictures> shown(const std::vector<SentPicture>& pictures,
                                             std::vector<int32_t> placed) const;

 private:
  const Files& files_;
  PictureRowsOptions rows_;
  std::string mark_;
  mutable std::mutex decoding_;
};

}  // namespace octet
