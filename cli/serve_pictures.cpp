#include "cli/serve_pictures.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/serve_error.h"
#include "data/chat_pictures.h"

namespace octet {

SentPicture ServedPictures::read(ServeFields& part, size_t n_before) const {
  SentPicture sent{.picture = {}, .place = part.name_of("image_url")};
  if (std::cmp_greater_equal(n_before, most())) {
    throw ServeError{.message = fmt::format("{}: expected at most {} pictures in a conversation "
                                            "(octet serve --images), got more",
                                            sent.place, most()),
                     .param = sent.place};
  }
  if (!part.any("image_url").is_object())
    part.fail("image_url", "an object with a url", part.any("image_url"));
  part.object("image_url", [&](ServeFields& fields) {
    const std::string url = fields.text("url");
    fields.nothing("detail", {"auto", "low", "high"});  // a tower has one size
    if (!url.starts_with("data:")) {
      fields.fail("url", "the picture itself (data:image/png;base64,...), as nothing is fetched",
                  url);
    }
    try {
      sent.picture = listed_pictures(url).front();
    } catch (const Error& error) {
      fields.fail("url", "a PNG or JPEG file (data:image/png;base64,...)", error.what());
    }
  });
  return sent;
}

std::vector<int32_t> ServedPictures::tokens(const ChatPrompts& chat, const OrderedJson& messages,
                                            size_t n_pictures, std::vector<int32_t>& placed) const {
  const std::vector<int32_t> ids =
      chat.tokens(rendered_messages(chat, messages, mark_, n_pictures));
  PlacedTokens all =
      place_rows(ids, std::vector<uint8_t>(ids.size()), static_cast<int64_t>(n_pictures), rows_);
  if (!all.rows.empty() && all.rows.back() >= 0) {
    throw Error(ErrorCode::bad_data,
                "messages: expected a text behind the last picture by the chat template, got none");
  }
  placed = std::move(all.rows);
  return std::move(all.ids);
}

std::shared_ptr<const EntryPictures> ServedPictures::shown(const std::vector<SentPicture>& pictures,
                                                           std::vector<int32_t> placed) const {
  auto result = std::make_shared<EntryPictures>();
  result->rows = std::move(placed);
  const size_t n = static_cast<size_t>(rows_.pictures.n_inner()) / static_cast<size_t>(most());
  result->pixels.resize(pictures.size() * n);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::lock_guard lock(decoding_);
    try {
      read_picture(files_, {pictures[i].picture, pictures[i].place}, rows_.transforms, {},
                   std::span(result->pixels).subspan(i * n, n));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      throw ServeError{.message = error.what(), .param = pictures[i].place};
    }
  }
  return result;
}

}  // namespace octet
