// Conversations with pictures as rows of a model that sees them: one conversation a row.
//
// A sample of n tokens writes n - 1 of them and, as labels, the token after each where that is
// trained. In place of the token of a picture stand as many as the model has rows for it, and
// "merged_rows" says which. Pictures are decoded, resized and normalized when they are written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/files.h"
#include "data/chat_dataset.h"
#include "data/images/transforms.h"
#include "data/row_options.h"
#include "data/row_source.h"

namespace octet {

struct PictureRowsOptions {
  InputSpec labels, pictures;                     // as the loss and the model declare them
  int32_t image_token = 0;                        // of a picture
  int64_t rows_per_picture = 1;                   // that the model has of one
  std::vector<int32_t> before = {}, behind = {};  // tokens around these
  int64_t seq = 0;                                // tokens that a row holds
  TooLong too_long = TooLong::drop;
  ImageTransforms transforms = {};  // but for channels and size, which the pictures' input tells
};

// The tokens of one sample with its pictures in place, and of each token the row of the sample's
// pictures that stands there; -1: it is text.
struct PlacedTokens {
  std::vector<int32_t> ids = {}, rows = {};
  std::vector<uint8_t> is_trained = {};
};
// Throws Error{bad_data} unless there are as many such tokens as pictures.
PlacedTokens place_rows(const std::vector<int32_t>& ids, const std::vector<uint8_t>& is_trained,
                        int64_t n_pictures, const PictureRowsOptions& options);

// "merged_rows" of a sample's tokens [first, first + out.size()), that stand from `place` on among
// all of the batch's n_tokens; first_row: of the pictures' row of the batch among all rows.
void write_merged_rows(std::span<const int32_t> rows, int64_t place, int64_t n_tokens,
                       int64_t first_row, std::span<int32_t> out);

// A picture of a record, whose place stands in messages, ready for the model.
struct RecordPicture {
  const ChatPicture& picture;
  const std::string& place;
};
void read_picture(const Files& files, const RecordPicture& of, const ImageTransforms& how,
                  const RowCell& where, std::span<float> out);

// All samples; `files` must outlive the result. A picture that is missing is an error here, one
// that is damaged where it is read; both name record and path. Throws Error{bad_data} also for a
// record with more pictures than the input has room for, and for one that is longer than a row
// unless it may be dropped or cut.
std::shared_ptr<const RowSource> picture_rows(const Files& files, const ChatData& chat,
                                              const PictureRowsOptions& options, const Log& log);

}  // namespace octet
