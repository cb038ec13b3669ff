#include <algorithm>
#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {
    item_separator_ = style.item_separator.value_or(style.indent ? "," : ", ");
    key_separator_ = style.key_separator.value_or(": ");
  }

  void write(const Value& value) {
    const Runtime::Depth depth(runtime_);
    runtime_.charge(1);
    if (value.is_text()) {
      text(value.text());
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is(Kind::boolean)) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_number()) {
      out_ += number(value);
    } else if (const auto* sequence = value.as<Sequence>()) {
      array(*sequence);
    } else if (const auto* dict = value.as<Dict>()) {
      object(*dict);
    } else {
      runtime_.fail("tojson: expected JSON's types, got {}", type_name(value));
    }
    if (out_.size() > runtime_.limits().max_text_bytes) runtime_.reserve_text(out_.size());
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number(const Value& value) {
    if (value.is_integral()) return std::to_string(value.integral());
    const double real = value.real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return float_repr(real);
  }

  void line_break() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void array(const Sequence& sequence) {
    if (sequence.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      line_break();
      write(sequence.items[i]);
    }
    --level_;
    line_break();
    out_ += ']';
  }

  void object(const Dict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return is_less(runtime_, a->first, b->first);
      });
    }
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      line_break();
      text(key(entries[i]->first));
      out_ += key_separator_;
      write(entries[i]->second);
    }
    --level_;
    line_break();
    out_ += '}';
  }

  std::string key(const Value& key) const {
    if (key.is_text()) return key.text();
    if (key.is_none()) return "null";
    if (key.is(Kind::boolean)) return key.boolean() ? "true" : "false";
    if (key.is_number()) return number(key);
    runtime_.fail("tojson: expected text, a number or none as a key, got {}", type_name(key));
  }

  void text(const std::string& bytes) {
    runtime_.charge(bytes.size() / 8);
    out_ += '"';
    for (size_t at = 0; at < bytes.size();) {
      const Character character = decode_utf8(bytes, at);
      append(character.code, std::string_view(bytes).substr(at, character.length));
      at += character.length;
    }
    out_ += '"';
  }

  void append(int32_t code, std::string_view bytes) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kAs = "\"\\nrtfb";
    const size_t at = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string::npos;
    if (at != std::string_view::npos) {
      out_ += '\\';
      out_ += kAs[at];
    } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7E && code < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", code);
    } else if (style_.ensure_ascii && code >= 0x10000) {
      const int32_t rest = code - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string item_separator_, key_separator_, out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace octet::jinja
