// Filters of numbers, tests and functions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/parse_text.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// Number that Python's float() reads, of text without white space around it.
std::optional<double> parse_real(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end || text.ends_with(')')) {
    return std::nullopt;
  }
  return error == std::errc() ? value : std::strtod(text.c_str(), nullptr);  // 0 or infinite
}

// The text of a number as C++ reads it: without white space, plus and underscores.
std::string plain_number(const Call& call) {
  call.runtime.charge(call.self.n_bytes());
  std::string text(strip(call.runtime.read(call.self), Side::both));
  if (text.find('_') != std::string::npos) {
    call.runtime.fail("underscores in numbers are outside the supported subset");
  }
  if (text.starts_with('+') && !text.starts_with("+-")) text.erase(0, 1);
  return text;
}

const Value& number_of(const Call& call) {
  if (!call.self.is_number()) call.runtime.fail_type(call.row.name, "a number", call.self);
  return call.self;
}

Value to_real(Call& call) {
  call.runtime.check_defined(call.self);
  if (call.self.is_number()) return call.self.number();
  const auto value = call.self.is_text() ? parse_real(plain_number(call)) : std::nullopt;
  return value ? Value(*value) : call.get(0, 0.0);
}

Value to_integer(Call& call) {
  const Value& self = call.self;
  call.runtime.check_defined(self);
  if (self.is_integral()) return self.integral();
  std::optional<double> real;
  if (self.is(Kind::real)) {
    real = self.real();
    if (std::isinf(*real)) call.runtime.fail("cannot convert float infinity to integer");
  } else if (self.is_text()) {
    const std::string text = plain_number(call);
    if (const auto whole = parse_number<int64_t>(text)) return *whole;
    real = parse_real(text);
  }
  if (!real || !std::isfinite(*real)) return call.get(0, int64_t{0});
  if (std::fabs(*real) >= 0x1p63) fail_overflow(call.runtime);
  return static_cast<int64_t>(*real);
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
  const auto digits = static_cast<int>(std::clamp<int64_t>(call.integer(0, 0), -1, 301));
  const Value& self = number_of(call);
  if (digits < 0 || digits > 300) runtime.fail("round: expected a precision of 0 to 300");
  if (method == "common") {
    if (self.is_integral() || !std::isfinite(self.real())) return self;
    runtime.charge(static_cast<uint64_t>(digits));
    return std::stod(fmt::format("{:.{}f}", self.real(), digits));
  }
  if (method != "ceil" && method != "floor") {
    runtime.fail("round: expected method common, ceil or floor");
  }
  const double unit = std::pow(10.0, digits), scaled = self.number() * unit;
  if (!std::isfinite(scaled)) runtime.fail("cannot convert float infinity to integer");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

template <bool (*holds)(const Value&)>
Value is(Call& call) {
  return holds(call.self);
}
template <Kind kind>
Value is_kind(Call& call) {
  return call.self.is(kind);
}
template <Operator op>
Value compares(Call& call) {
  return compare(call.runtime, op, call.self, *call.values[0]);
}
template <int64_t wanted>
Value is_exactly(Call& call) {
  return call.self.is(Kind::boolean) && call.self.integral() == wanted;
}
bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_any_number(const Value& value) {
  return value.is_number();
}
bool is_mapping(const Value& value) {
  return value.as<Dict>();
}
bool is_sequence(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return is_iterable(value) && (!sequence || sequence->is_list());
}

constexpr Builtin kValueRows[] = {
    {"int", kFilter, to_integer, "default"},
    {"float", kFilter, to_real, "default"},
    {"abs", kFilter, absolute},
    {"round", kFilter, round, "precision,method"},
    {"defined", kTest, is<is_defined>},
    {"undefined", kTest, is_kind<Kind::undefined>},
    {"none", kTest, is_kind<Kind::none>},
    {"boolean", kTest, is_kind<Kind::boolean>},
    {"true", kTest, is_exactly<1>},
    {"false", kTest, is_exactly<0>},
    {"integer", kTest, is_kind<Kind::integer>},
    {"float", kTest, is_kind<Kind::real>},
    {"number", kTest, is<is_any_number>},
    {"string", kTest, is_kind<Kind::text>},
    {"mapping", kTest, is<is_mapping>},
    {"iterable", kTest, is<is_iterable>},
    {"sequence", kTest, is<is_sequence>},
    {"in", kTest, compares<Operator::in>, "seq", 1},
    {"eq", kTest, compares<Operator::eq>, "/other", 1},
    {"equalto", kTest, compares<Operator::eq>, "/other", 1},
    {"==", kTest, compares<Operator::eq>, "/other", 1},
    {"ne", kTest, compares<Operator::ne>, "/other", 1},
    {"!=", kTest, compares<Operator::ne>, "/other", 1},
};

Value make_range(Call& call) {
  constexpr int64_t kMaxBound = int64_t{1} << 53;  // differences fit
  Runtime& runtime = call.runtime;
  const int64_t start = call.has(1) ? call.integer(0, 0) : 0, step = call.integer(2, 1);
  const int64_t stop = call.integer(call.has(1) ? 1 : 0, 0);
  if (step == 0) runtime.fail("range() expected a step that is not zero");
  for (const int64_t value : {start, stop, step}) {
    if (value > kMaxBound || value < -kMaxBound) runtime.fail("range() expected smaller numbers");
  }
  const int64_t n = std::max<int64_t>((stop - start + step - (step > 0 ? 1 : -1)) / step, 0);
  const int64_t most = runtime.limits().max_range;
  if (n > most) runtime.fail("range() expected at most {} items, got {}", most, n);
  return runtime.make<Range>(start, step, n);
}

// dict(pairs or a dict, key=value ...)
Value make_dict(Call& call) {
  Runtime& runtime = call.runtime;
  auto* dict = runtime.make<Dict>();
  if (call.given.positional.size() > 1) runtime.fail("{}() expected one dict", call.row.name);
  for (const Value& from : call.given.positional) {
    const Dict* other = from.as<Dict>();
    const Value pairs = other ? runtime.list(pairs_of(runtime, *other)) : from;
    for (const Value& pair : Items(runtime, pairs)) {
      const std::vector<Value> both = Items(runtime, pair).copy();
      if (both.size() != 2) runtime.fail("{}() expected pairs", call.row.name);
      dict->set(runtime, both[0], both[1]);
    }
  }
  for (const auto& [key, value] : call.given.named) dict->set(runtime, runtime.text(key), value);
  return dict;
}

Value make_namespace(Call& call) {
  auto* space = call.runtime.make<Namespace>();
  space->attributes = make_dict(call).as<Dict>();
  return space;
}

Value raise_exception(Call& call) {
  throw TemplateRefusal(call.runtime.read(as_text(call.runtime, *call.values[0])));
}

Value strftime_now(Call& call) {
  const std::string& format = call.text(0);
  for (const char* unknown : {"%f", "%z", "%Z"}) {
    if (format.find(unknown) == format.npos) continue;
    call.runtime.fail("strftime_now: {} is outside the supported subset", unknown);
  }
  if (format.size() > 4096) call.runtime.fail("strftime_now expected a shorter format");
  call.runtime.charge(8 * format.size());
  std::string text(64 * (format.size() + 1), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &call.runtime.clock()));
  if (text.empty() && !format.empty()) call.runtime.fail("strftime_now: too much text");
  return call.runtime.text(std::move(text));
}

constexpr Builtin kFunctionRows[] = {
    {"range", kFunction, make_range, "/start,stop,step", 1},
    {"dict", kFunction, make_dict, "*"},
    {"namespace", kFunction, make_namespace, "*"},
    {"raise_exception", kFunction, raise_exception, "message", 1},
    {"strftime_now", kFunction, strftime_now, "/format", 1},
};

}  // namespace

std::span<const Builtin> value_rows() {
  return kValueRows;
}

std::span<const Builtin> function_rows() {
  return kFunctionRows;
}

}  // namespace octet::jinja
