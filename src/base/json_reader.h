// Makes JSON values of a parser's events, in one pass: each event costs at most the search for a
// key in its object.
#pragma once

#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/lfs_pointer.h"

namespace octet {

// JSON values that Python's json module reads and ours cannot hold: NaN, infinities, numbers beyond
// a double, integers beyond 64 bits, and texts with half of a surrogate pair. They are kept as what
// they are called, so that a file is read all the same; whoever uses one refuses it by name.
template <typename J>
J unread_json(std::string_view what) {
  return J::binary({what.begin(), what.end()});
}

inline constexpr const char* kGivenTwice = "a key given twice";

// "NaN", "the integer 1000...", "a text with \ud83d, half of a pair"; nothing that a file can make.
template <typename J>
std::string what_is_unread(const J& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

// Text that a strict parser reads: the n-th value that it would not is the text MARK + n, where the
// mark stands nowhere else.
struct ReadableJson {
  struct Odd {
    std::string name;
    bool is_text = false;
  };
  std::string text, mark;
  std::vector<Odd> odd;
};
ReadableJson readable_json(std::string_view text);

std::string name_of_integer(std::string_view digits);

struct JsonReaderLimits {
  size_t depth = 0, values = 0;
  bool has_unique_keys = true;       // else what a repeated key has is not read
  bool has_unread_integers = false;  // beyond 64 bits; else they are doubles
};

template <typename J>
class JsonReader : public nlohmann::json_sax<J> {
 public:
  JsonReader(const JsonReaderLimits& limits, const std::string& where)
      : limits_(limits), where_(where) {}

  J read(std::string_view text) {
    if (parse(text)) return std::move(root_);
    const size_t mistake = mistake_;
    if (text.starts_with(kLfsPointer)) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected JSON, got {}", where_, kLfsAdvice);
    }
    readable_ = readable_json(text);
    if (readable_.odd.empty() || !parse(readable_.text)) not_json(mistake);
    return std::move(root_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename J::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename J::number_unsigned_t value) override {
    if (!limits_.has_unread_integers || value <= INT64_MAX) return add(value);
    return add(unread_json<J>(name_of_integer(std::to_string(value))));
  }
  bool number_float(typename J::number_float_t value, const std::string& digits) override {
    const bool is_integer = digits.find_first_of(".eE") == digits.npos;
    if (!limits_.has_unread_integers || !is_integer) return add(value);
    return add(unread_json<J>(name_of_integer(digits)));
  }
  bool string(std::string& value) override {
    const ReadableJson::Odd* odd = odd_of(value);
    return add(odd == nullptr ? J(std::move(value)) : unread_json<J>(odd->name));
  }
  bool binary(typename J::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    unread_key_ = odd_of(name);
    if (unread_key_ != nullptr && !unread_key_->is_text) return false;
    if (unread_key_ != nullptr) name = unread_key_->name;
    J& object = *open_.back().value;
    const bool is_repeated = object.contains(name);
    if (is_repeated && limits_.has_unique_keys) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected each key once, got '{}' again", where_,
                  name);
    }
    if (is_repeated) unread_key_ = &repeated_;
    member_ = &object[name];
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception&) override {
    mistake_ = byte;
    return false;
  }

 private:
  struct Open {
    J* value;
    const ReadableJson::Odd* unread_key;  // that it belongs to
  };

  bool parse(std::string_view text) {
    root_ = J();
    n_values_ = 0;
    unread_key_ = nullptr;  // of a first reading that ended behind a key
    open_.clear();
    return J::sax_parse(text.begin(), text.end(), this);
  }

  // The byte is the one part of the library's message that does not change between its versions.
  [[noreturn]] void not_json(size_t byte) const {
    throw Error(ErrorCode::bad_data, "[json] {}: expected JSON, got a mistake at byte {}", where_,
                byte);
  }

  const ReadableJson::Odd* odd_of(std::string_view text) const {
    if (readable_.odd.empty() || !text.starts_with(readable_.mark)) return nullptr;
    text.remove_prefix(readable_.mark.size());
    size_t index = 0;
    std::from_chars(text.data(), text.data() + text.size(), index);
    return index < readable_.odd.size() ? &readable_.odd[index] : nullptr;
  }

  J& put(J value) {
    if (++n_values_ > limits_.values) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected at most {} values, got more", where_,
                  limits_.values);
    }
    if (open_.empty()) return root_ = std::move(value);
    J& parent = *open_.back().value;
    if (parent.is_object()) return *member_ = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool add(J value) {
    put(unread_key_ == nullptr ? std::move(value) : unread_json<J>(unread_key_->name));
    unread_key_ = nullptr;
    return true;
  }
  // Containers above do not move while one below is open.
  bool open(J container) {
    if (open_.size() == limits_.depth) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected at most {} levels, got more", where_,
                  limits_.depth);
    }
    J& value = put(std::move(container));
    open_.push_back({&value, std::exchange(unread_key_, nullptr)});
    return true;
  }
  bool close() {
    const Open closed = open_.back();
    open_.pop_back();
    if (closed.unread_key != nullptr) *closed.value = unread_json<J>(closed.unread_key->name);
    return true;
  }

  const ReadableJson::Odd repeated_{.name = kGivenTwice, .is_text = true};
  const JsonReaderLimits limits_;
  const std::string& where_;
  ReadableJson readable_;
  J root_;
  size_t n_values_ = 0, mistake_ = 0;
  std::vector<Open> open_;
  J* member_ = nullptr;  // of the object that is open, where its next value goes
  const ReadableJson::Odd* unread_key_ = nullptr;  // the next value's
};

}  // namespace octet
