#include <charconv>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// Python allows one underscore between two digits; false where there is another.
bool drop_underscores(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return false;
    }
  }
  text = std::move(out);
  return true;
}

// int(text, base); nothing where Python raises ValueError.
std::optional<int64_t> parse_integer(Runtime& runtime, std::string_view from, int64_t base) {
  std::string text(strip(from, Side::both));
  bool is_negative = false;
  if (text.starts_with('+') || text.starts_with('-')) {
    is_negative = text[0] == '-';
    text.erase(0, 1);
  }
  const std::string prefix = to_lower(text.substr(0, 2));
  const int64_t of_prefix = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
  if (of_prefix != 0 && (base == of_prefix || base == 0)) {
    text.erase(0, 2);
    if (text.starts_with('_')) text.erase(0, 1);
    base = of_prefix;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  if (!drop_underscores(text) || text.empty()) return std::nullopt;
  if (is_negative) text.insert(0, 1, '-');
  int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value, static_cast<int>(base));
  if (result.ec == std::errc::result_out_of_range) {
    runtime.fail("integers beyond 64 bits are outside the supported subset");
  }
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// float(text); nothing where Python raises ValueError.
std::optional<double> parse_real(std::string_view from) {
  std::string text(strip(from, Side::both));
  if (text.starts_with('+')) {
    text.erase(0, 1);
    if (text.starts_with('-')) return std::nullopt;
  }
  if (!drop_underscores(text) || text.empty()) return std::nullopt;
  const std::string lower = to_lower(text[0] == '-' ? text.substr(1) : text);
  const double sign = text[0] == '-' ? -1 : 1;
  if (lower == "inf" || lower == "infinity") return sign * INFINITY;
  if (lower == "nan") return NAN;
  if (lower.empty() || (lower[0] != '.' && (lower[0] < '0' || lower[0] > '9'))) return std::nullopt;
  double value = 0;
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    const bool is_tiny = lower.find("e-") != std::string::npos;
    return is_tiny ? sign * 0.0 : sign * INFINITY;
  }
  return value;
}

std::optional<int64_t> truncated(Runtime& runtime, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 0x1p63) {
    runtime.fail("integers beyond 64 bits are outside the supported subset");
  }
  return static_cast<int64_t>(value);
}

Value to_integer(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "int", {"default", "base"});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (self.is_integral()) return self.integral();
  std::optional<int64_t> value;
  if (self.is(Kind::real)) {
    if (std::isinf(self.real())) runtime.fail("cannot convert float infinity to integer");
    value = truncated(runtime, self.real());
  } else if (self.is_text()) {
    value = parse_integer(runtime, self.text(), bound.integer(1, 10));
    if (!value) {
      const auto real = parse_real(self.text());
      if (real) value = truncated(runtime, *real);
    }
  }
  return value ? Value(*value) : bound.get(0, int64_t{0});
}

Value to_real(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "float", {"default"});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (self.is_number()) return self.number();
  const auto value = self.is_text() ? parse_real(self.text()) : std::nullopt;
  return value ? Value(*value) : bound.get(0, 0.0);
}

Value absolute(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "abs", {});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_number()) runtime.fail("bad operand type for abs(): '{}'", type_name(self));
  if (self.is(Kind::real)) return std::fabs(self.real());
  return self.integral() < 0 ? negate(runtime, self) : Value(self.integral());
}

// To the nearest even, in the decimal digits that the value has.
double round_real(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < -300) return 0.0 * value;
  if (digits >= 0) return std::stod(fmt::format("{:.{}f}", value, static_cast<int>(digits)));
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

Value round_integer(Runtime& runtime, int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return int64_t{0};
  int64_t unit = 1;
  for (; digits < 0; ++digits) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  const int64_t down = value - rest;
  const bool is_odd = (down / unit) % 2 != 0;
  const bool goes_up = rest > unit / 2 || (rest == unit / 2 && is_odd);
  return goes_up ? arithmetic(runtime, Operator::add, down, unit) : Value(down);
}

Value round(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "round", {"precision", "method"});
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  const int64_t digits = bound.integer(0, 0);
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_number()) runtime.fail("round expected a number, got {}", type_name(self));
  if (method == "common") {
    if (self.is(Kind::real)) return round_real(self.real(), digits);
    return round_integer(runtime, self.integral(), digits);
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

Value file_size(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "filesizeformat", {"binary"});
  const bool is_binary = bound.truth(0, false);
  Arguments none;
  if (self.is_text() && !parse_real(self.text())) runtime.fail("could not convert text to float");
  const double n_bytes = to_real(runtime, self, none).real();
  const double base = is_binary ? 1024 : 1000;
  if (n_bytes == 1) return runtime.text("1 Byte");
  if (n_bytes < base) return runtime.text(fmt::format("{} Bytes", static_cast<int64_t>(n_bytes)));
  double unit = base;
  for (const char prefix : std::string_view("KMGTPEZY")) {
    unit *= base;
    if (n_bytes >= unit && prefix != 'Y') continue;
    const char letter = prefix == 'K' && !is_binary ? 'k' : prefix;
    return runtime.text(
        fmt::format("{:.1f} {}{}B", base * n_bytes / unit, letter, is_binary ? "i" : ""));
  }
  return runtime.text("");
}

constexpr MethodRow kNumberFilters[] = {
    {"int", to_integer},           {"float", to_real}, {"abs", absolute}, {"round", round},
    {"filesizeformat", file_size},
};

}  // namespace

Filter find_number_filter(std::string_view name) {
  return find_row(kNumberFilters, name);
}

}  // namespace octet::jinja
