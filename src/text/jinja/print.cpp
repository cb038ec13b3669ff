#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// A text within quotes. JSON's escapes, or those of Python's repr.
class Quoted {
 public:
  Quoted(Builder& out, const JsonStyle* json) : out_(out), json_(json) {}

  void append(const Value& value) {
    const std::string& text = out_.runtime().read(value);
    out_.runtime().charge_characters(text.size());
    const bool has_single = text.find('\'') != std::string::npos;
    const bool is_double = json_ || (has_single && text.find('"') == std::string::npos);
    const char quote = is_double ? '"' : '\'';
    out_.append({&quote, 1});
    size_t begin = 0, at = 0;  // what stands as it is goes out at once
    for_each_character(text, [&](std::string_view character, int32_t code) {
      const std::string escape = escape_of(code, quote);
      if (!escape.empty()) {
        out_.runtime().charge(4);
        out_.append(std::string_view(text).substr(begin, at - begin));
        out_.append(escape);
        begin = at + character.size();
      }
      at += character.size();
    });
    out_.append(std::string_view(text).substr(begin));
    out_.append({&quote, 1});
  }

 private:
  // Empty for what stands as it is.
  std::string escape_of(int32_t code, char quote) const {
    static constexpr std::string_view kNamed = "\n\r\t\f\b", kAs = "nrtfb";
    if (code == quote || code == '\\') return {'\\', static_cast<char>(code)};
    const size_t named = code < 0x20 ? kNamed.find(static_cast<char>(code)) : std::string::npos;
    if (named < (json_ ? 5 : 3)) return {'\\', kAs[named]};
    if (code >= 0x20 && code < 0x7F) return {};
    if (json_) {
      if (code >= 0x20 && (!json_->ensure_ascii || code == 0x7F)) return {};
      if (code < 0x10000) return fmt::format("\\u{:04x}", code);
      const int32_t rest = code - 0x10000;
      return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
    if (is_printable(code)) return {};
    if (code < 0x100) return fmt::format("\\x{:02x}", code);
    return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
  }

  Builder& out_;
  const JsonStyle* json_;
};

class Writer {
 public:
  Writer(Builder& out, const JsonStyle* json) : out_(out), runtime_(out.runtime()), json_(json) {}

  void write(const Value& value) {
    const Runtime::Depth depth(runtime_);
    runtime_.charge(2);
    if (value.is_text()) {
      const bool is_marked = value.is_markup() && json_ == nullptr;
      if (is_marked) out_.append("Markup(");
      Quoted(out_, json_).append(value);
      if (is_marked) out_.append(")");
    } else if (value.object() != nullptr) {
      object(value);
    } else {
      out_.append(scalar(value));
    }
  }

 private:
  std::string scalar(const Value& value) const {
    if (value.is(Kind::integer)) return std::to_string(value.integral());
    if (value.is(Kind::real)) {
      const double real = value.real();
      if (json_ == nullptr || std::isfinite(real)) return float_repr(real);
      return std::isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity";
    }
    if (value.is(Kind::boolean)) {
      if (json_ != nullptr) return value.boolean() ? "true" : "false";
      return value.boolean() ? "True" : "False";
    }
    if (value.is_none()) return json_ != nullptr ? "null" : "None";
    if (json_ != nullptr) runtime_.fail("tojson: expected JSON's types, got Undefined");
    return "Undefined";
  }

  void object(const Value& value) {
    if (const auto* sequence = value.as<Sequence>()) return items(*sequence);
    if (const auto* dict = value.as<Dict>()) return entries(*dict);
    if (json_ != nullptr) runtime_.fail("tojson: expected JSON's types, got {}", type_name(value));
    if (const auto* space = value.as<Namespace>()) {
      out_.append("<Namespace ");
      entries(*space->attributes);
      out_.append(">");
    } else if (const auto* range = value.as<Range>()) {
      const std::string step = range->step == 1 ? "" : fmt::format(", {}", range->step);
      out_.append(fmt::format("range({}, {}{})", range->start, range->stop, step));
    } else if (value.as<DictView>() != nullptr) {
      const std::vector<Value> copy = Items(runtime_, value).copy();
      out_.append(fmt::format("{}(", type_name(value)));
      items(*runtime_.list(copy));
      out_.append(")");
    } else {
      runtime_.fail("a {} has no printed form that does not change from run to run",
                    type_name(value));
    }
  }

  // one(i) for each, within brackets.
  template <typename One>
  void contain(std::string_view brackets, size_t n, One one) {
    out_.append(brackets.substr(0, 1));
    ++level_;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out_.append(json_ != nullptr ? json_->item_separator : ", ");
      line_break();
      one(i);
    }
    --level_;
    if (n > 0) line_break();
    out_.append(brackets.substr(1));
  }

  void line_break() {
    if (json_ == nullptr || !json_->indent) return;
    out_.append("\n");
    runtime_.charge(static_cast<uint64_t>(level_));
    for (int i = 0; i < level_; ++i) out_.append(*json_->indent);
  }

  void items(const Sequence& sequence) {
    const bool is_tuple = sequence.type == Type::tuple && json_ == nullptr;
    const size_t n = sequence.items.size();
    contain(!is_tuple ? "[]"
            : n == 1  ? "(,)"
                      : "()",
            n, [&](size_t i) { write(sequence.items[i]); });
  }

  void entries(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> all;
    for (const auto& entry : dict.entries) all.push_back(&entry);
    if (json_ != nullptr && json_->sort_keys) {
      std::stable_sort(all.begin(), all.end(), [&](const auto* a, const auto* b) {
        return is_less(runtime_, a->first, b->first);
      });
    }
    contain("{}", all.size(), [&](size_t i) {
      write(json_ != nullptr ? json_key(all[i]->first) : all[i]->first);
      out_.append(json_ != nullptr ? json_->key_separator : ": ");
      write(all[i]->second);
    });
  }

  Value json_key(const Value& key) const {
    if (key.is_text()) return key;
    if (key.object() == nullptr) return runtime_.text(scalar(key));
    runtime_.fail("tojson: expected text, a number or none as a key, got {}", type_name(key));
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
