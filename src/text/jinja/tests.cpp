#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"

namespace octet::jinja {
namespace {

template <bool (*holds)(const Value&)>
bool plain(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "test", {});
  return holds(value);
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
bool is_boolean(const Value& value) {
  return value.is(Kind::boolean);
}
bool is_true_value(const Value& value) {
  return value.is(Kind::boolean) && value.boolean();
}
bool is_false_value(const Value& value) {
  return value.is(Kind::boolean) && !value.boolean();
}
bool is_integer(const Value& value) {
  return value.is(Kind::integer);
}
bool is_float(const Value& value) {
  return value.is(Kind::real);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_text();
}
bool is_mapping(const Value& value) {
  return value.as<Dict>() != nullptr;
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}
bool is_callable(const Value& value) {
  // An undefined value has the method that fails.
  return value.is_undefined() || (value.object() != nullptr && value.object()->is_callable());
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.as<Sequence>() || value.as<Dict>() ||
         value.as<Range>();
}

template <TextClass text_class>
bool text_is(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "test", {});
  return is_class(str(runtime, value), text_class);
}

template <int64_t rest>
bool parity(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "test", {});
  return is_equal(runtime, arithmetic(runtime, Operator::mod, value, int64_t{2}), rest);
}

bool divisible(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "divisibleby", {"num"}, 1);
  return is_equal(runtime, arithmetic(runtime, Operator::mod, value, bound[0]), int64_t{0});
}

bool same_as(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "sameas", {"other"}, 1);
  return is_same(value, bound[0]);
}

bool is_in(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "in", {"seq"}, 1);
  return contains(runtime, bound[0], value);
}

bool is_filter(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "filter", {});
  hash_key(runtime, value);  // it is looked up: lists throw
  return value.is_text() && (find_filter(value.text()) || is_unsupported_filter(value.text()));
}

bool is_test(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Bound bound(runtime, arguments, "test", {});
  hash_key(runtime, value);
  return value.is_text() && find_test(value.text()) != nullptr;
}

template <Operator op>
bool compares(Runtime& runtime, const Value& value, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "test");
  const Bound bound(runtime, arguments, "test", {"other"}, 1);
  return compare(runtime, op, value, bound[0]);
}

struct Row {
  std::string_view name;
  Test test;
};

constexpr Row kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true_value>},
    {"false", plain<is_false_value>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"lower", text_is<TextClass::lower>},
    {"upper", text_is<TextClass::upper>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"sameas", same_as},
    {"in", is_in},
    {"filter", is_filter},
    {"test", is_test},
    {"==", compares<Operator::eq>},
    {"eq", compares<Operator::eq>},
    {"equalto", compares<Operator::eq>},
    {"!=", compares<Operator::ne>},
    {"ne", compares<Operator::ne>},
    {">", compares<Operator::gt>},
    {"gt", compares<Operator::gt>},
    {"greaterthan", compares<Operator::gt>},
    {">=", compares<Operator::ge>},
    {"ge", compares<Operator::ge>},
    {"<", compares<Operator::lt>},
    {"lt", compares<Operator::lt>},
    {"lessthan", compares<Operator::lt>},
    {"<=", compares<Operator::le>},
    {"le", compares<Operator::le>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Row& row : kTests) {
    if (row.name == name) return row.test;
  }
  return nullptr;
}

}  // namespace octet::jinja
