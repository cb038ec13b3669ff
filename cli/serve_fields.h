// The fields of a JSON object that a client sent. Each call names one that is known; what is wrong
// with it is a ServeError that names it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"

namespace octet {

// Throws ServeError for what is no JSON object.
OrderedJson parse_body(std::string_view body);

class ServeFields {
 public:
  // `json` outlives it. `where`: of an object within another.
  explicit ServeFields(const OrderedJson& json, std::string where = {});

  // null where it is absent.
  OrderedJson any(const std::string& name);
  // Nothing where it is absent or null.
  std::optional<int64_t> integer(const std::string& name, int64_t min, int64_t max);
  std::optional<double> number(const std::string& name, double min, double max);
  bool boolean(const std::string& name);      // absent: false
  std::string text(const std::string& name);  // must be there
  // A text or an array of them, none of them empty.
  std::vector<std::string> texts(const std::string& name, int64_t max);
  void object(const std::string& name, const std::function<void(ServeFields&)>& read);
  // It may be absent, null, or one of these, which ask for nothing.
  void nothing(const std::string& name, const std::vector<OrderedJson>& values);
  void label(const std::string& name);  // a text, of which nothing is made; it may be absent

  void refuse_others() const;
  [[noreturn]] void fail(const std::string& name, const std::string& expected,
                         const OrderedJson& got) const;
  std::string name_of(const std::string& name) const;

 private:
  const OrderedJson& json_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace octet
