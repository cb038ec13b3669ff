#include "base/ordered_json.h"

#include "base/error.h"

namespace octet {
namespace {

constexpr int kMaxOrderedDepth = 200;

// Looks at the events of a first pass; what it refuses has thrown before the second one.
struct Check : nlohmann::json_sax<OrderedJson> {
  explicit Check(const std::string& of) : where(of) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > INT64_MAX) too_large(std::to_string(value));
    return true;
  }
  bool number_float(number_float_t, const string_t& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) too_large(digits);
    return true;
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Error(ErrorCode::bad_data, "[json] {}: expected JSON, got a mistake at byte {}", where,
                byte);
  }

  bool enter() {
    if (++depth <= kMaxOrderedDepth) return true;
    throw Error(ErrorCode::bad_data, "[json] {}: expected at most {} levels, got more", where,
                kMaxOrderedDepth);
  }
  bool leave() {
    --depth;
    return true;
  }
  [[noreturn]] void too_large(const std::string& digits) const {
    throw Error(ErrorCode::bad_data, "[json] {}: expected integers below 2^63, got {}", where,
                digits.substr(0, 40));
  }

  const std::string& where;
  int depth = 0;
};

}  // namespace

OrderedJson parse_ordered_json(std::string_view text, const std::string& where) {
  Check check(where);
  OrderedJson::sax_parse(text.begin(), text.end(), &check);
  return OrderedJson::parse(text.begin(), text.end());
}

}  // namespace octet
