// Filters of numbers, and the tests.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// The text of a number as C++ reads it: without white space, plus and underscores.
std::string plain_number(Runtime& runtime, const Value& value) {
  runtime.charge_characters(value.n_bytes());
  std::string text(strip(runtime.read(value), Side::both));
  if (text.find('_') != std::string::npos) {
    runtime.fail("underscores in numbers are outside the supported subset");
  }
  if (text.starts_with('+')) text.erase(0, text.starts_with("+-") ? 0 : 1);
  return text;
}

// int(text, base); nothing where Python raises ValueError.
std::optional<int64_t> parse_integer(Runtime& runtime, std::string text, int64_t base) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  const char letter = text.size() > digits + 1 && text[digits] == '0'
                          ? static_cast<char>(text[digits + 1] | 0x20)
                          : '\0';
  const int64_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    text.erase(digits, 2);
    base = named;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, static_cast<int>(base));
  if (error == std::errc::result_out_of_range) fail_overflow(runtime);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// float(text); nothing where Python raises ValueError.
std::optional<double> parse_real(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end || text.ends_with(')')) {
    return std::nullopt;
  }
  return error == std::errc() ? value : std::strtod(text.c_str(), nullptr);  // 0 or infinite
}

// Towards zero; nothing of what is not finite.
std::optional<int64_t> truncated(Runtime& runtime, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 0x1p63) fail_overflow(runtime);
  return static_cast<int64_t>(value);
}

const Value& number_of(const Call& call) {
  if (call.self.is_undefined()) call.runtime.fail_undefined(call.self);
  if (!call.self.is_number()) {
    call.runtime.fail("{} expected a number, got {}", call.row.name, type_name(call.self));
  }
  return call.self;
}

Value to_integer(Call& call) {
  const Value& self = call.self;
  if (self.is_undefined()) call.runtime.fail_undefined(self);
  if (self.is_integral()) return self.integral();
  std::optional<int64_t> value;
  if (self.is(Kind::real)) {
    if (std::isinf(self.real())) call.runtime.fail("cannot convert float infinity to integer");
    value = truncated(call.runtime, self.real());
  } else if (self.is_text()) {
    const std::string text = plain_number(call.runtime, self);
    value = parse_integer(call.runtime, text, call.integer(1, 10));
    if (!value) value = truncated(call.runtime, parse_real(text).value_or(NAN));
  }
  return value ? Value(*value) : call.get(0, int64_t{0});
}

Value to_real(Call& call) {
  if (call.self.is_undefined()) call.runtime.fail_undefined(call.self);
  if (call.self.is_number()) return call.self.number();
  std::optional<double> value;
  if (call.self.is_text()) value = parse_real(plain_number(call.runtime, call.self));
  return value ? Value(*value) : call.get(0, 0.0);
}

Value absolute(Call& call) {
  const Value& self = number_of(call);
  if (self.is(Kind::real)) return std::fabs(self.real());
  if (self.integral() >= 0) return self.integral();
  return arithmetic(call.runtime, Operator::sub, int64_t{0}, self);
}

Value round(Call& call) {
  Runtime& runtime = call.runtime;
  const std::string method = call.has(1) ? call.text(1) : "common";
  const int64_t digits = call.integer(0, 0);
  const Value& self = number_of(call);
  if (digits < 0 || digits > 300) runtime.fail("round: expected a precision of 0 to 300");
  if (method == "common") {
    if (self.is_integral() || !std::isfinite(self.real())) return self;
    runtime.charge(static_cast<uint64_t>(digits));
    return std::stod(fmt::format("{:.{}f}", self.real(), static_cast<int>(digits)));
  }
  if (method != "ceil" && method != "floor") {
    runtime.fail("round: expected method common, ceil or floor");
  }
  const Value unit = arithmetic(runtime, Operator::pow, int64_t{10}, digits);
  const double scaled = arithmetic(runtime, Operator::mul, self, unit).number();
  const auto whole = truncated(runtime, method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) runtime.fail("cannot convert float infinity to integer");
  return arithmetic(runtime, Operator::div, *whole, unit);
}

constexpr Builtin kNumbers[] = {
    {"int", kFilter, "default,base", 0, to_integer},
    {"float", kFilter, "default", 0, to_real},
    {"abs", kFilter, "", 0, absolute},
    {"round", kFilter, "precision,method", 0, round},
};

template <bool (*holds)(const Value&)>
Value is(Call& call) {
  return holds(call.self);
}

template <Operator op>
Value compares(Call& call) {
  return compare(call.runtime, op, call.self, *call.values[0]);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
template <Kind kind>
bool is_kind(const Value& value) {
  return value.is(kind);
}
template <bool wanted>
bool is_exactly(const Value& value) {
  return value.is(Kind::boolean) && value.boolean() == wanted;
}
bool is_any_number(const Value& value) {
  return value.is_number();
}
bool is_mapping(const Value& value) {
  return value.as<Dict>() != nullptr;
}
bool is_sequence(const Value& value) {
  return is_iterable(value) && value.as<DictView>() == nullptr && value.as<Iterator>() == nullptr;
}

constexpr Builtin kTests[] = {
    {"defined", kTest, "", 0, is<is_defined>},
    {"undefined", kTest, "", 0, is<is_undefined>},
    {"none", kTest, "", 0, is<is_none>},
    {"boolean", kTest, "", 0, is<is_kind<Kind::boolean>>},
    {"true", kTest, "", 0, is<is_exactly<true>>},
    {"false", kTest, "", 0, is<is_exactly<false>>},
    {"integer", kTest, "", 0, is<is_kind<Kind::integer>>},
    {"float", kTest, "", 0, is<is_kind<Kind::real>>},
    {"number", kTest, "", 0, is<is_any_number>},
    {"string", kTest, "", 0, is<is_kind<Kind::text>>},
    {"mapping", kTest, "", 0, is<is_mapping>},
    {"iterable", kTest, "", 0, is<is_iterable>},
    {"sequence", kTest, "", 0, is<is_sequence>},
    {"in", kTest, "seq", 1, compares<Operator::in>},
    {"eq", kTest, "/other", 1, compares<Operator::eq>},
    {"equalto", kTest, "/other", 1, compares<Operator::eq>},
    {"==", kTest, "/other", 1, compares<Operator::eq>},
    {"ne", kTest, "/other", 1, compares<Operator::ne>},
    {"!=", kTest, "/other", 1, compares<Operator::ne>},
    {"gt", kTest, "/other", 1, compares<Operator::gt>},
    {"greaterthan", kTest, "/other", 1, compares<Operator::gt>},
    {">", kTest, "/other", 1, compares<Operator::gt>},
    {"ge", kTest, "/other", 1, compares<Operator::ge>},
    {">=", kTest, "/other", 1, compares<Operator::ge>},
    {"lt", kTest, "/other", 1, compares<Operator::lt>},
    {"lessthan", kTest, "/other", 1, compares<Operator::lt>},
    {"<", kTest, "/other", 1, compares<Operator::lt>},
    {"le", kTest, "/other", 1, compares<Operator::le>},
    {"<=", kTest, "/other", 1, compares<Operator::le>},
};

}  // namespace

std::span<const Builtin> number_rows() {
  return kNumbers;
}

std::span<const Builtin> test_rows() {
  return kTests;
}

}  // namespace octet::jinja
