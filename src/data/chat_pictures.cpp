#include "data/chat_pictures.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/base64.h"
#include "data/chat_messages.h"

namespace octet {
namespace {

constexpr std::string_view kData = "data:";

std::string decoded(std::string_view text) {
  auto bytes = decode_base64(text);
  if (!bytes) bad_record("a picture that is no base64");
  return *std::move(bytes);
}

ChatPicture picture_at(const std::string& address) {
  if (address.starts_with(kData)) {
    const size_t comma = address.find(',');
    const std::string_view head = std::string_view(address).substr(0, comma);
    if (comma == address.npos || !head.ends_with(";base64"))
      bad_record("a picture whose data is not base64");
    return {.bytes = decoded(std::string_view(address).substr(comma + 1))};
  }
  if (address.empty()) bad_record("a picture without a path");
  if (address.find("://") != address.npos)
    bad_record("a picture at an address, which is not fetched", address);
  return {.path = address};
}

// Nothing where the object names no picture.
std::vector<ChatPicture> picture_of(const OrderedJson& json) {
  if (const OrderedJson* data = find_text(json, "base64"))
    return {{.bytes = decoded(data->get_ref<const std::string&>())}};
  for (const char* key : {"image", "path", "url", "image_url"}) {
    const OrderedJson* value = find_value(json, key);
    if (value == nullptr) continue;
    if (value->is_string()) return {picture_at(value->get<std::string>())};
    if (value->is_object() && find_text(*value, "url") != nullptr)
      return {picture_at(find_text(*value, "url")->get<std::string>())};
    bad_record("a picture that is neither a path nor data", key);
  }
  return {};
}

OrderedJson part_of(const char* type, std::string text) {
  return {{"type", type}, {"text", std::move(text)}};
}

// Texts are walked once for their marks, and lists for their parts.
class Placer {
 public:
  Placer(std::vector<ChatPicture> listed, const std::string& mark)
      : listed_(std::move(listed)), is_taken_(listed_.size()), mark_(mark) {}

  std::vector<ChatPicture> run(OrderedJson& messages) {
    for (OrderedJson& message : messages) {
      const size_t before = placed_.size();
      place(message);
      if (placed_.size() > before && message["role"] == "assistant")
        bad_record("a picture in an answer");
    }
    const auto n_taken = static_cast<size_t>(std::ranges::count(is_taken_, true));
    if (n_taken < listed_.size()) {
      bad_record("pictures that no place is for", std::to_string(listed_.size()) +
                                                      " of them, and " + std::to_string(n_taken) +
                                                      " places (" + mark_ + ")");
    }
    return std::move(placed_);
  }

 private:
  void take_listed() {
    if (next_ == listed_.size()) bad_record("more places for pictures than pictures");
    take(next_++);
  }
  void take_at(const OrderedJson& index) {
    const bool is_known = index.is_number_unsigned() && index.get<size_t>() < listed_.size();
    if (!is_known) bad_record("an index of no picture of the list", index.dump());
    take(index.get<size_t>());
  }
  void take(size_t i) {
    is_taken_[i] = true;
    add(listed_[i]);
  }
  void add(ChatPicture picture) {
    if (placed_.size() == kMaxPictures) bad_record("too many pictures");
    placed_.push_back(std::move(picture));
  }
  void take_marks(const std::string& text) {
    for (size_t at = text.find(mark_); at != text.npos; at = text.find(mark_, at + mark_.size()))
      take_listed();
  }

  void place(OrderedJson& message) {
    const auto content = message.find("content");
    if (content == message.end()) return;
    if (content->is_string()) return take_marks(content->get_ref<const std::string&>());
    if (!content->is_array()) return;
    for (OrderedJson& part : *content) {
      const OrderedJson* type = find_text(part, "type");
      if (type == nullptr || !is_picture_type(type->get<std::string>())) {
        if (const OrderedJson* text = find_text(part, "text"))
          take_marks(text->get_ref<const std::string&>());
        continue;
      }
      std::vector<ChatPicture> own = picture_of(part);
      const OrderedJson* index = find_value(part, "index");
      if (!own.empty()) {
        add(std::move(own.front()));
      } else if (index != nullptr) {
        take_at(*index);
      } else {
        take_listed();
      }
      part = part_of("image", mark_);
    }
  }

  std::vector<ChatPicture> listed_, placed_;
  std::vector<bool> is_taken_;
  size_t next_ = 0;  // that a place without an index takes
  const std::string& mark_;
};

}  // namespace

bool is_picture_type(const std::string& type) {
  return type == "image" || type == "image_url" || type == "input_image";
}

std::vector<ChatPicture> listed_pictures(const OrderedJson& value) {
  if (value.is_string()) return {picture_at(value.get<std::string>())};
  if (value.is_object()) {
    std::vector<ChatPicture> one = picture_of(value);
    if (one.empty()) bad_record("a picture that is neither a path nor data");
    return one;
  }
  if (!value.is_array()) bad_record("a picture that is neither a path nor data");
  std::vector<ChatPicture> all;
  for (const OrderedJson& item : value) {
    if (item.is_array() || all.size() == kMaxPictures)
      bad_record(item.is_array() ? "a list of pictures in a list" : "too many pictures");
    for (ChatPicture& one : listed_pictures(item)) all.push_back(std::move(one));
  }
  return all;
}

std::vector<ChatPicture> place_pictures(OrderedJson& messages, std::vector<ChatPicture> listed,
                                        const std::string& mark) {
  return Placer(std::move(listed), mark).run(messages);
}

void split_into_parts(OrderedJson& messages, const std::string& mark) {
  for (OrderedJson& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    const std::string text = content->get<std::string>();
    OrderedJson parts = OrderedJson::array();
    size_t at = 0;
    for (size_t end = mark.empty() ? text.npos : text.find(mark); end != text.npos;
         end = text.find(mark, at)) {
      if (end > at) parts.push_back(part_of("text", text.substr(at, end - at)));
      parts.push_back(part_of("image", mark));
      at = end + mark.size();
      if (at < text.size() && text[at] == '\n') ++at;  // which templates put behind it themselves
    }
    if (at < text.size() || parts.empty()) parts.push_back(part_of("text", text.substr(at)));
    *content = std::move(parts);
  }
}

}  // namespace octet
