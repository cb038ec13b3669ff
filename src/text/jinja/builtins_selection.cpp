// Filters that apply a filter or a test to each item, and the functions of templates.
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"

namespace octet::jinja {
namespace {

// The built-in that argument `i` names, and the arguments that follow it.
struct Applied {
  Applied(const Call& call, size_t i, Use use) {
    const Value& name = call.given.positional[i];
    if (!name.is_text()) call.runtime.fail("expected a name, got {}", type_name(name));
    row = find_builtin(use, call.runtime.read(name));
    if (row == nullptr) fail_unknown(call.runtime, use, call.runtime.read(name));
    rest = call.given;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<ptrdiff_t>(i + 1));
  }
  const Builtin* row = nullptr;
  Arguments rest;
};

// map('filter', ...), or map(attribute=..., default=...).
Value map(Call& call) {
  Runtime& runtime = call.runtime;
  std::vector<Value> out;
  if (!is_true(runtime, call.self)) return runtime.iterator({});
  if (!call.given.positional.empty()) {
    const Applied applied(call, 0, kFilter);
    for (const Value& item : Items(runtime, call.self)) {
      out.push_back(invoke(runtime, *applied.row, item, applied.rest));
    }
    return runtime.iterator(std::move(out));
  }
  static constexpr Builtin kByName{"map", kFilter, "attribute,default", 1};
  const Call by_name(runtime, kByName, call.self, call.given);
  for (const Value& item : Items(runtime, call.self)) {
    out.push_back(get_path(runtime, item, *by_name.values[0], by_name.get(1, None{})));
  }
  return runtime.iterator(std::move(out));
}

template <bool has_attribute, bool keeps_true>
Value select(Call& call) {
  Runtime& runtime = call.runtime;
  const auto& given = call.given.positional;
  constexpr size_t kAt = has_attribute ? 1 : 0;  // of the test's name
  if (!is_true(runtime, call.self)) return runtime.iterator({});
  if (given.size() < kAt) runtime.fail("{}: expected the name of an attribute", call.row.name);
  const Value path = has_attribute ? given[0] : Value(None{});
  std::optional<Applied> applied;
  if (given.size() > kAt) applied.emplace(call, kAt, kTest);
  std::vector<Value> out;
  for (const Value& item : Items(runtime, call.self)) {
    Value value = get_path(runtime, item, path, None{});
    if (applied) value = invoke(runtime, *applied->row, value, applied->rest);
    if (is_true(runtime, value) == keeps_true) out.push_back(item);
  }
  return runtime.iterator(std::move(out));
}

constexpr Builtin kSelectionRows[] = {
    {"map", kFilter, "*", 0, map},
    {"select", kFilter, "*", 0, select<false, true>},
    {"reject", kFilter, "*", 0, select<false, false>},
    {"selectattr", kFilter, "*", 0, select<true, true>},
    {"rejectattr", kFilter, "*", 0, select<true, false>},
};

Value make_range(Call& call) {
  constexpr int64_t kMaxRange = 100'000;           // as Jinja's sandbox
  constexpr int64_t kMaxBound = int64_t{1} << 53;  // differences fit
  Runtime& runtime = call.runtime;
  const int64_t first = call.integer(0, 0);
  auto* range = call.has(1) ? runtime.make<Range>(first, call.integer(1, 0), call.integer(2, 1))
                            : runtime.make<Range>(0, first, 1);
  if (range->step == 0) runtime.fail("range() expected a step that is not zero");
  for (const int64_t value : {range->start, range->stop, range->step}) {
    if (value > kMaxBound || value < -kMaxBound) runtime.fail("range() expected smaller numbers");
  }
  if (range->length() > kMaxRange) {
    runtime.fail("range() expected at most {} items, got {}", kMaxRange, range->length());
  }
  return range;
}

// dict(pairs or a dict, key=value ...)
Dict* dict_of(const Call& call) {
  Runtime& runtime = call.runtime;
  auto* dict = runtime.make<Dict>();
  if (call.given.positional.size() > 1) runtime.fail("{}() expected one dict", call.row.name);
  for (const Value& from : call.given.positional) {
    const Dict* other = from.as<Dict>();
    const Value pairs = other ? Value(runtime.make<DictView>(Type::items, other)) : from;
    for (const Value& pair : Items(runtime, pairs)) {
      const std::vector<Value> both = Items(runtime, pair).copy();
      if (both.size() != 2) runtime.fail("{}() expected pairs", call.row.name);
      dict->set(runtime, both[0], both[1]);
    }
  }
  for (const auto& [key, value] : call.given.named) dict->set(runtime, runtime.text(key), value);
  return dict;
}

Value make_dict(Call& call) {
  return dict_of(call);
}

Value make_namespace(Call& call) {
  auto* space = call.runtime.make<Namespace>();
  space->attributes = dict_of(call);
  return space;
}

Value raise_exception(Call& call) {
  throw TemplateRefusal(call.runtime.read(as_text(call.runtime, *call.values[0])));
}

Value strftime_now(Call& call) {
  std::string safe;
  const std::string& format = call.text(0);
  for (size_t i = 0; i < format.size(); ++i) {
    const char kind = format[i] == '%' && i + 1 < format.size() ? format[++i] : '\0';
    if (kind == 'f') {
      safe += "000000";
    } else if (kind == '\0') {
      safe += format[i];
    } else if (kind != 'z' && kind != 'Z') {  // of a time without a zone
      safe += {'%', kind};
    }
  }
  if (safe.size() > 4096) call.runtime.fail("strftime_now expected a shorter format");
  call.runtime.charge(8 * safe.size());
  safe += '.';  // so that text of no length is not taken for too small a buffer
  std::string text(safe.size() * 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), safe.c_str(), &call.runtime.clock()));
  if (text.empty()) call.runtime.fail("strftime_now: the format gives too much text");
  text.pop_back();
  return call.runtime.text(std::move(text));
}

constexpr Builtin kFunctions[] = {
    {"range", kFunction, "/start,stop,step", 1, make_range},
    {"dict", kFunction, "*", 0, make_dict},
    {"namespace", kFunction, "*", 0, make_namespace},
    {"raise_exception", kFunction, "message", 1, raise_exception},
    {"strftime_now", kFunction, "/format", 1, strftime_now},
};

}  // namespace

std::span<const Builtin> selection_rows() {
  return kSelectionRows;
}

std::span<const Builtin> function_rows() {
  return kFunctions;
}

}  // namespace octet::jinja
