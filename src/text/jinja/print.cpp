#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// Writer of values as Python's repr, or as JSON.
class Writer {
 public:
  Writer(Builder& out, const JsonStyle* json) : out_(out), runtime_(out.runtime()), json_(json) {}

  void write(const Value& value) {
    const Runtime::Depth depth(runtime_);
    runtime_.charge(2);
    if (value.is_text()) {
      if (value.is_markup() && !json_) {
        runtime_.fail("text marked safe within a list is outside the supported subset");
      }
      quoted(runtime_.read(value));
    } else if (value.object()) {
      object(value);
    } else {
      out_.append(scalar(value));
    }
  }

 private:
  void quoted(const std::string& text) {
    runtime_.charge(text.size());
    const bool has_single = text.find('\'') != std::string::npos;
    const bool is_double = json_ || (has_single && text.find('"') == std::string::npos);
    const std::string quote = is_double ? "\"" : "'";
    out_.append(quote);
    size_t begin = 0, at = 0;  // what stands as it is goes out at once
    for_each_character(text, [&](std::string_view character, int32_t code) {
      const std::string escape = character == quote ? "\\" + quote : escape_of(code);
      if (!escape.empty()) {
        runtime_.charge(4);
        out_.append(std::string_view(text).substr(begin, at - begin));
        out_.append(escape);
        begin = at + character.size();
      }
      at += character.size();
    });
    out_.append(std::string_view(text).substr(begin));
    out_.append(quote);
  }

  // Empty for what stands as it is.
  std::string escape_of(int32_t code) const {
    static constexpr std::string_view kNamed = "\\\n\r\t\f\b", kAs = "\\nrtfb";
    const size_t named = code < 0x80 ? kNamed.find(static_cast<char>(code)) : std::string::npos;
    if (named < (json_ ? 6 : 4)) return {'\\', kAs[named]};
    const bool stands =
        json_ ? code >= 0x20 && (code < 0x80 || !json_->ensure_ascii) : is_printable(code);
    if (stands) return {};
    if (!json_ && code < 0x100) return fmt::format("\\x{:02x}", code);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    if (!json_) return fmt::format("\\U{:08x}", code);
    const int32_t rest = code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  std::string scalar(const Value& value) const {
    const bool is_json = json_;
    if (value.is(Kind::integer)) return std::to_string(value.integral());
    if (value.is(Kind::real)) {
      const double real = value.real();
      if (!is_json || std::isfinite(real)) return float_repr(real);
      return std::isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity";
    }
    if (value.is(Kind::boolean) && value.integral() != 0) return is_json ? "true" : "True";
    if (value.is(Kind::boolean)) return is_json ? "false" : "False";
    if (value.is_none()) return is_json ? "null" : "None";
    if (is_json) runtime_.fail("tojson: expected JSON's types, got Undefined");
    return "Undefined";
  }

  void object(const Value& value) {
    const auto* sequence = value.as<Sequence>();
    if (sequence && sequence->is_list()) return items(*sequence);
    if (const auto* dict = value.as<Dict>()) return entries(*dict);
    if (json_) runtime_.fail_type("tojson", "JSON's types", value);
    runtime_.fail("printing a {} is outside the supported subset", type_name(value));
  }

  // one(i) for each, within brackets.
  template <typename One>
  void contain(std::string_view brackets, size_t n, One one) {
    out_.append(brackets.substr(0, 1));
    ++level_;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out_.append(json_ ? json_->item_separator : ", ");
      line_break();
      one(i);
    }
    --level_;
    if (n > 0) line_break();
    out_.append(brackets.substr(1));
  }

  void line_break() {
    if (!json_ || !json_->indent) return;
    out_.append("\n");
    runtime_.charge(static_cast<uint64_t>(level_));
    for (int i = 0; i < level_; ++i) out_.append(*json_->indent);
  }

  void items(const Sequence& sequence) {
    const bool is_tuple = sequence.type == Type::tuple && !json_;
    const size_t n = sequence.items.size();
    contain(!is_tuple ? "[]"
            : n == 1  ? "(,)"
                      : "()",
            n, [&](size_t i) { write(sequence.items[i]); });
  }

  void entries(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> all;
    for (const auto& entry : dict.entries) all.push_back(&entry);
    if (json_ && json_->sort_keys) {
      std::stable_sort(all.begin(), all.end(), [&](const auto* a, const auto* b) {
        return compare(runtime_, Operator::lt, a->first, b->first);
      });
    }
    contain("{}", all.size(), [&](size_t i) {
      write(json_ ? json_key(all[i]->first) : all[i]->first);
      out_.append(json_ ? json_->key_separator : ": ");
      write(all[i]->second);
    });
  }

  Value json_key(const Value& key) const {
    if (key.is_text()) return key;
    if (!key.object()) return runtime_.text(scalar(key));
    runtime_.fail_type("tojson", "text, a number or none as a key", key);
  }

  Builder& out_;
  Runtime& runtime_;
  const JsonStyle* json_;  // null: repr
  int level_ = 0;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const double magnitude = std::fabs(value);
  // Python writes an exponent beyond these; the shortest digits are the same.
  const bool is_plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto result = std::to_chars(digits, digits + sizeof digits, value, format);
  const std::string text(digits, result.ptr);
  return is_plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

void append_text(Builder& out, const Value& value) {
  if (value.is_text()) {
    out.append(out.runtime().read(value));
  } else if (!value.is_undefined()) {
    Writer(out, nullptr).write(value);
  }
}

Value as_text(Runtime& runtime, const Value& value) {
  if (value.is_text()) return value;
  Builder out(runtime);
  append_text(out, value);
  return out.take();
}

void append_json(Builder& out, const Value& value, const JsonStyle& style) {
  Writer(out, &style).write(value);
}

}  // namespace octet::jinja
