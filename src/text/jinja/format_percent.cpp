// "%s" % values, as Python's str has it.
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), format_(format.text()), is_markup_(format.is_markup()), values_(values) {
    const auto* sequence = values.as<Sequence>();
    tuple_ = sequence != nullptr && !sequence->is_list() ? sequence : nullptr;
  }

  Value run() {
    while (at_ < format_.size()) {
      const size_t percent = format_.find('%', at_);
      out_ += format_.substr(at_, percent - at_);
      if (percent == std::string::npos) break;
      at_ = percent + 1;
      one();
      check_size(runtime_, out_);
    }
    const bool is_used_up = tuple_ != nullptr
                                ? next_ >= tuple_->items.size()
                                : next_ > 0 || values_.as<Dict>() || values_.as<Sequence>();
    if (!is_used_up && !uses_keys_) {
      runtime_.fail("not all arguments converted during string formatting");
    }
    return runtime_.text(std::move(out_), is_markup_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) runtime_.fail("incomplete format");
    return format_[at_];
  }

  Value argument() {
    if (key_) return *key_;
    if (tuple_ == nullptr) {
      if (next_++ > 0) runtime_.fail("not enough arguments for format string");
      return values_;
    }
    if (next_ >= tuple_->items.size()) runtime_.fail("not enough arguments for format string");
    return tuple_->items[next_++];
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      return integer_of(runtime_, argument(), "* in a format");
    }
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (format_[at_++] - '0');
      if (n > INT32_MAX) runtime_.fail("width or precision too big");
    }
    return n;
  }

  void read_key() {
    key_.reset();
    if (peek() != '(') return;
    int depth = 0;
    const size_t begin = at_ + 1;
    do {
      depth += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      ++at_;
    } while (depth > 0);
    const auto* dict = values_.as<Dict>();
    if (dict == nullptr) runtime_.fail("format requires a mapping");
    const std::string key = format_.substr(begin, at_ - begin - 1);
    const Value* found = dict->find(key);
    if (found == nullptr) runtime_.fail("the format's key '{}' is not there", key);
    key_ = *found;
    uses_keys_ = true;
  }

  void one() {
    read_key();
    FormatSpec spec;
    bool is_zero = false;
    for (;; ++at_) {
      const char flag = peek();
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '+') {
        spec.sign = '+';
      } else if (flag == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (flag == '#') {
        spec.is_alternate = true;
      } else if (flag == '0') {
        is_zero = true;
      } else {
        break;
      }
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    while (peek() == 'l' || peek() == 'L' || peek() == 'h') ++at_;
    spec.type = peek();
    ++at_;
    if (is_zero && spec.align == 0) {
      number_fill_ = true;
    } else {
      number_fill_ = false;
    }
    convert(spec);
  }

  void convert(FormatSpec spec) {
    switch (spec.type) {
      case '%':
        out_ += '%';
        return;
      case 's':
      case 'r':
      case 'a':
        return add_text(spec);
      case 'c':
        return add_character(spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return add_integer(spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return add_real(spec);
      default:
        runtime_.fail("unsupported format character in a % format");
    }
  }

  void add_text(const FormatSpec& spec) {
    const Value value = argument();
    std::string text = spec.type == 's' ? str(runtime_, value) : repr(runtime_, value);
    if (is_markup_ && !(spec.type == 's' && value.is_markup())) text = escape_html(text);
    if (spec.precision >= 0) {
      const auto offsets = character_offsets(text);
      const auto n = static_cast<size_t>(spec.precision);
      if (n + 1 < offsets.size()) text.resize(offsets[n]);
    }
    out_ += pad_formatted(runtime_, text, spec, '>');
  }

  void add_character(const FormatSpec& spec) {
    const Value value = argument();
    std::string text;
    if (value.is_integral()) {
      const int64_t code = value.integral();
      const bool is_surrogate = code >= 0xD800 && code < 0xE000;
      if (code < 0 || code > 0x10FFFF || is_surrogate) runtime_.fail("%c expected a character");
      append_utf8(text, static_cast<int32_t>(code));
    } else if (value.is_text() && count_characters(value.text()) == 1) {
      text = value.text();
    } else {
      runtime_.fail("%c expected an integer or one character");
    }
    out_ += pad_formatted(runtime_, text, spec, '>');
  }

  void fill_with_zeros(FormatSpec& spec) const {
    if (!number_fill_) return;
    spec.align = '=';
    spec.fill = "0";
  }

  void add_integer(FormatSpec spec) {
    const Value value = argument();
    if (value.is_undefined()) runtime_.fail_undefined(value);
    const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    int64_t integer = 0;
    if (value.is_integral()) {
      integer = value.integral();
    } else if (value.is(Kind::real) && is_decimal && std::fabs(value.real()) < 0x1p62) {
      integer = static_cast<int64_t>(value.real());
    } else {
      runtime_.fail("%{} format: an integer is required, not {}", spec.type, type_name(value));
    }
    if (is_decimal) spec.type = 'd';
    fill_with_zeros(spec);
    out_ += format_integer(runtime_, integer, spec);
  }

  void add_real(FormatSpec spec) {
    const Value value = argument();
    if (value.is_undefined()) runtime_.fail_undefined(value);
    if (!value.is_number()) runtime_.fail("must be real number, not {}", type_name(value));
    fill_with_zeros(spec);
    out_ += format_real(runtime_, value.number(), spec);
  }

  Runtime& runtime_;
  const std::string& format_;
  const bool is_markup_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  std::optional<Value> key_;
  size_t at_ = 0, next_ = 0;
  bool uses_keys_ = false, number_fill_ = false;
  std::string out_;
};

}  // namespace

Value format_percent(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormat(runtime, format, values).run();
}

}  // namespace octet::jinja
