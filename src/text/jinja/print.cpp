#include "text/jinja/print.h"

#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

class Printer {
 public:
  explicit Printer(Runtime& runtime) : runtime_(runtime) {}

  void repr(const Value& value) {
    const Runtime::Depth depth(runtime_);
    runtime_.charge(1);
    if (value.is_text()) {
      const bool is_markup = value.is_markup();
      if (is_markup) out_ += "Markup(";
      text(value.text());
      if (is_markup) out_ += ")";
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.object() != nullptr) {
      object(value);
    } else {
      out_ += str(runtime_, value);
    }
    if (out_.size() > runtime_.limits().max_text_bytes) runtime_.reserve_text(out_.size());
  }

  std::string take() { return std::move(out_); }

 private:
  void object(const Value& value) {
    if (const auto* sequence = value.as<Sequence>()) {
      return items(*sequence);
    }
    if (const auto* dict = value.as<Dict>()) return entries(*dict);
    if (const auto* space = value.as<Namespace>()) {
      out_ += "<Namespace ";
      entries(*space->attributes);
      out_ += ">";
    } else if (const auto* range = value.as<Range>()) {
      out_ += range->step == 1
                  ? fmt::format("range({}, {})", range->start, range->stop)
                  : fmt::format("range({}, {}, {})", range->start, range->stop, range->step);
    } else if (const auto* view = value.as<DictView>()) {
      dict_view(*view);
    } else if (const std::string printed = value.object()->printed(); !printed.empty()) {
      out_ += printed;
    } else {
      runtime_.fail("a {} has no printed form that does not change from run to run",
                    value.object()->type_name());
    }
  }

  void items(const Sequence& sequence) {
    out_ += sequence.is_list() ? "[" : "(";
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      repr(sequence.items[i]);
    }
    if (!sequence.is_list() && sequence.items.size() == 1) out_ += ",";
    out_ += sequence.is_list() ? "]" : ")";
  }

  void entries(const Dict& dict) {
    out_ += "{";
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      repr(dict.entries[i].first);
      out_ += ": ";
      repr(dict.entries[i].second);
    }
    out_ += "}";
  }

  void dict_view(const DictView& view) {
    out_ += view.type_name();
    out_ += "([";
    for (size_t i = 0; i < view.dict->entries.size(); ++i) {
      const auto& [key, value] = view.dict->entries[i];
      if (i > 0) out_ += ", ";
      if (view.kind == ViewKind::items) out_ += "(";
      if (view.kind != ViewKind::values) repr(key);
      if (view.kind == ViewKind::items) out_ += ", ";
      if (view.kind != ViewKind::keys) repr(value);
      if (view.kind == ViewKind::items) out_ += ")";
    }
    out_ += "])";
  }

  void text(const std::string& bytes) {
    runtime_.charge(bytes.size() / 8);
    const bool has_single = bytes.find('\'') != std::string::npos;
    const bool has_double = bytes.find('"') != std::string::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    out_ += quote;
    for (size_t at = 0; at < bytes.size();) {
      const Character character = decode_utf8(bytes, at);
      append(character.code, std::string_view(bytes).substr(at, character.length), quote);
      at += character.length;
    }
    out_ += quote;
  }

  void append(int32_t code, std::string_view bytes, char quote) {
    if (code == quote || code == '\\') {
      out_ += '\\';
      out_ += bytes;
    } else if (code == '\n') {
      out_ += "\\n";
    } else if (code == '\r') {
      out_ += "\\r";
    } else if (code == '\t') {
      out_ += "\\t";
    } else if (is_printable(code)) {
      out_ += bytes;
    } else if (code < 0x100) {
      out_ += fmt::format("\\x{:02x}", code);
    } else if (code < 0x10000) {
      out_ += fmt::format("\\u{:04x}", code);
    } else {
      out_ += fmt::format("\\U{:08x}", code);
    }
  }

  Runtime& runtime_;
  std::string out_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto result =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  std::string text(digits, result.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // at least two digits, as Python has them
  // Without an exponent: the shortest digits are the same, only the point moves.
  std::string sign, mantissa;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') mantissa += c;
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + mantissa;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (mantissa.size() < whole) mantissa.append(whole - mantissa.size(), '0');
  const std::string fraction = mantissa.substr(whole);
  return sign + mantissa.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

std::string str(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean() ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integral());
    case Kind::real:
      return float_repr(value.real());
    case Kind::text:
      return value.text();
    case Kind::object:
      break;
  }
  return repr(runtime, value);
}

std::string repr(Runtime& runtime, const Value& value) {
  Printer printer(runtime);
  printer.repr(value);
  return printer.take();
}

Value soft_text(Runtime& runtime, const Value& value) {
  return value.is_text() ? value : runtime.text(str(runtime, value));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value escaped(Runtime& runtime, const Value& value) {
  if (value.is_markup()) return value;
  return runtime.text(escape_html(str(runtime, value)), true);
}

}  // namespace octet::jinja
