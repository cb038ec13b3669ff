#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// Names with spaces around them.
constexpr std::pair<Use, std::string_view> kOutside[] = {
    {kFilter,
     " attr batch center e escape filesizeformat forceescape format groupby pprint random reverse "
     "slice striptags truncate urlencode urlize wordcount wordwrap xmlattr "},
    {kTest,
     " callable divisibleby escaped even filter ge greaterthan gt le lessthan lower lt odd sameas "
     "test upper > >= < <= "},
    {kFunction, " cycler joiner lipsum "},
    {kOfText,
     " casefold center copy encode expandtabs format format_map index isalnum isalpha isascii "
     "isdecimal isidentifier islower isnumeric isprintable isspace istitle isupper ljust "
     "partition removeprefix removesuffix rfind rindex rjust rpartition rsplit splitlines swapcase "
     "translate zfill bit_length is_integer "},
    {kTag, " extends include import from autoescape block with print do trans debug "},
};
constexpr std::string_view kDictMutators = " clear pop popitem setdefault update ";
constexpr std::string_view kListMutators = " append clear pop reverse insert sort extend remove ";

bool is_among(std::string_view names, std::string_view name) {
  return !name.empty() && names.find(" " + std::string(name) + " ") != std::string_view::npos;
}

// Position of `name` in "a,b,c"; their number where it has none.
size_t position_of(std::string_view name, std::string_view parameters) {
  size_t i = 0;
  while (!parameters.empty()) {
    const size_t end = std::min(parameters.find(','), parameters.size());
    if (parameters.substr(0, end) == name) return i;
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
    ++i;
  }
  return i;
}

}  // namespace

Call::Call(Runtime& in, const Builtin& of, const Value& on, const Arguments& arguments)
    : runtime(in), row(of), self(on), given(arguments) {
  std::string_view parameters = row.parameters;
  if (parameters == "*") return;
  if (parameters.starts_with('/')) {
    parameters.remove_prefix(1);
    if (!given.named.empty()) runtime.fail("{}() takes no keyword arguments", row.name);
  }
  const size_t n = position_of("", parameters), n_given = given.positional.size();
  if (n_given > n) {
    runtime.fail("{}() expected at most {} arguments, got {}", row.name, n, n_given);
  }
  values.assign(given.positional.begin(), given.positional.end());
  values.resize(n);
  for (const auto& [key, value] : given.named) {
    const size_t at = position_of(key, parameters);
    if (at == n) runtime.fail("{}() has no parameter '{}'", row.name, key);
    if (values[at]) runtime.fail("{}() expected '{}' once, got it twice", row.name, key);
    values[at] = value;
  }
  for (size_t i = 0; i < row.n_required; ++i) {
    if (!values[i]) runtime.fail("{}() lacks argument {} of ({})", row.name, i + 1, parameters);
  }
}

const std::string& Call::text(size_t i) const {
  if (!values[i]->is_text()) runtime.fail_type(row.name, "text", *values[i]);
  return runtime.read(*values[i]);
}

Value Call::attribute(size_t i, const Value& of, const Value& fallback) const {
  const auto step = [&](const Value& from, const Value& key) {
    const Value found = member_of(runtime, Access::item, from, key);
    return found.is_undefined() && !fallback.is_none() ? fallback : found;
  };
  const Value path = get(i);
  if (path.is_none()) return of;
  if (!path.is_text()) return step(of, path);
  Value value = of;
  std::string_view rest = runtime.read(path);
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, dot));
    const bool is_index = !part.empty() && part.size() < 18 &&
                          part.find_first_not_of("0123456789") == std::string::npos;
    value = step(value, is_index ? Value(int64_t{std::stoll(part)}) : runtime.text(part));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

const Builtin* find_builtin(unsigned use, std::string_view name) {
  for (const auto& rows : {text_rows(), item_rows(), value_rows(), function_rows()}) {
    for (const Builtin& row : rows) {
      if ((row.uses & use) != 0 && row.name == name) return &row;
    }
  }
  return nullptr;
}

const Builtin* find_method(const Value& self, std::string_view name) {
  const auto* list = self.as<Sequence>();
  const unsigned use = self.is_text()            ? kOfText
                       : list && list->is_list() ? kOfList
                       : self.as<Dict>()         ? kOfDict
                                                 : 0U;
  return find_builtin(use, name);
}

bool is_mutator(const Value& self, std::string_view name) {
  const auto* list = self.as<Sequence>();
  return (self.as<Dict>() && is_among(kDictMutators, name)) ||
         (list && list->type == Type::list && is_among(kListMutators, name));
}

bool is_outside(Use use, std::string_view name) {
  return std::any_of(std::begin(kOutside), std::end(kOutside), [&](const auto& row) {
    return row.first == use && is_among(row.second, name);
  });
}

void fail_unknown(Runtime& runtime, Use use, std::string_view name) {
  const std::string_view kind = use == kFilter ? "filter" : "test";
  runtime.fail("{} '{}' is outside the supported subset", kind, name);
}

Value invoke(Runtime& runtime, const Builtin& row, const Value& self, const Arguments& arguments) {
  runtime.charge(4);
  const bool is_on_text = (row.uses & (kOfText | kMadeText)) != 0;
  const Value on = is_on_text ? as_text(runtime, self) : self;
  Call call(runtime, row, on, arguments);
  return row.run(call);
}

}  // namespace octet::jinja
