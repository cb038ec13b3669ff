// Builtins that are called on lists and dicts, as a filter or as a method.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

Value length(Call& call) {
  const auto found = length_of(call.runtime, call.self);
  if (!found) call.runtime.fail("object of type '{}' has no len()", type_name(call.self));
  return *found;
}

Value default_value(Call& call) {
  const bool is_replaced =
      call.self.is_undefined() || (call.truth(1) && !is_true(call.runtime, call.self));
  return is_replaced ? call.get(0, call.runtime.text("")) : call.self;
}

Sequence* generator_of(const Call& call) {
  auto* sequence = call.self.as<Sequence>();
  return sequence && sequence->type == Type::generator ? sequence : nullptr;
}

Value first(Call& call) {
  auto* generator = generator_of(call);
  if (generator && generator->at < generator->items.size())
    return generator->items[generator->at++];
  const Items items = call.items();
  if (!items.view().empty()) return items.view().front();
  return call.runtime.undefined("no first item, the sequence is empty");
}

Value last(Call& call) {
  if (generator_of(call)) call.runtime.fail("'generator' is not reversible");
  const Items items = call.items();
  if (!items.view().empty()) return items.view().back();
  return call.runtime.undefined("no last item, the sequence is empty");
}

// part(item) for each, with the separator between them.
template <typename Part>
Value join_parts(Runtime& runtime, const Value& separator, const Value& all, Part part) {
  Builder out(runtime);
  bool is_first = true;
  for (const Value& item : Items(runtime, all)) {
    if (!std::exchange(is_first, false)) append_text(out, separator);
    append_text(out, part(item));
    runtime.charge(1);
  }
  return out.take();
}

Value join(Call& call) {
  const Value separator = as_text(call.runtime, call.get(0, call.runtime.text("")));
  return join_parts(call.runtime, separator, call.self,
                    [&](const Value& item) { return call.attribute(1, item); });
}

Value join_method(Call& call) {
  if (call.self.is_markup()) {
    call.runtime.fail("join() of text marked safe is outside the supported subset");
  }
  return join_parts(call.runtime, call.self, *call.values[0], [&](const Value& item) {
    if (!item.is_text()) call.runtime.fail_type("join()", "text", item);
    return item;
  });
}

Value list(Call& call) {
  return call.runtime.list(call.items().copy());
}

template <Type type>
Value view(Call& call) {
  Runtime& runtime = call.runtime;
  std::vector<Value> all =
      type == Type::keys ? call.items().copy() : pairs_of(runtime, *call.self.as<Dict>());
  if (type == Type::values) {
    for (Value& pair : all) pair = pair.as<Sequence>()->items[1];
  }
  return runtime.list(std::move(all), type);
}

Value items(Call& call) {
  if (call.self.is_undefined()) return call.runtime.generator({});
  const Dict* dict = call.self.as<Dict>();
  if (!dict) call.runtime.fail("can only get item pairs from a mapping");
  return call.runtime.generator(pairs_of(call.runtime, *dict));
}

Value get(Call& call) {
  const Value* found = call.self.as<Dict>()->find(call.runtime, *call.values[0]);
  return found ? *found : call.get(1);
}

Value count_equal(Call& call) {
  int64_t n = 0;
  for (const Value& item : call.items()) {
    n += compare(call.runtime, Operator::eq, item, *call.values[0]) ? 1 : 0;
  }
  return n;
}

Value sum(Call& call) {
  Value total = call.get(1, int64_t{0});
  if (total.is_text()) call.runtime.fail("sum() can't sum strings");
  for (const Value& item : call.items()) {
    total = arithmetic(call.runtime, Operator::add, total, call.attribute(0, item));
  }
  return total;
}

// Text in lower case unless parameter `i` says that case counts, anything else as it is.
Value order_key(const Call& call, size_t i, const Value& value) {
  static const Builtin& lower = *find_builtin(kFilter, "lower");
  return call.truth(i) || !value.is_text() ? value : invoke(call.runtime, lower, value, {});
}

using Keyed = std::pair<Value, Value>;  // key, item

Value sorted(Runtime& runtime, std::vector<Keyed> all, bool is_reversed) {
  // Python sorts in reverse so that equal items keep their order.
  const Operator comes_before = is_reversed ? Operator::gt : Operator::lt;
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    return compare(runtime, comes_before, a.first, b.first);
  });
  std::vector<Value> items;
  for (const Keyed& one : all) items.push_back(one.second);
  return runtime.list(std::move(items));
}

Value sort(Call& call) {
  if (call.is_given(2) && call.get(2).is_text() && call.text(2).find(',') != std::string::npos) {
    call.runtime.fail("sort by several attributes is outside the supported subset");
  }
  std::vector<Keyed> all;
  for (const Value& item : call.items()) {
    // In a list, as Jinja has them: undefined keys are equal there.
    all.emplace_back(call.runtime.list({order_key(call, 1, call.attribute(2, item))}), item);
  }
  return sorted(call.runtime, std::move(all), call.truth(0));
}

Value dictsort(Call& call) {
  const std::string by = call.has(1) ? call.text(1) : "key";
  if (by != "key" && by != "value") call.runtime.fail("dictsort: expected by 'key' or 'value'");
  const auto* dict = call.self.as<Dict>();
  if (!dict) call.runtime.fail_type("dictsort", "a dict", call.self);
  std::vector<Keyed> all;
  for (const Value& pair : pairs_of(call.runtime, *dict)) {
    all.emplace_back(order_key(call, 0, pair.as<Sequence>()->items[by == "key" ? 0 : 1]), pair);
  }
  return sorted(call.runtime, std::move(all), call.truth(2));
}

Value unique(Call& call) {
  auto* seen = call.runtime.make<Dict>();
  for (const Value& item : call.items()) {
    const Value key = order_key(call, 0, call.attribute(1, item));
    if (!seen->find(call.runtime, key)) seen->set(call.runtime, key, item);
  }
  std::vector<Value> kept;
  for (const auto& entry : seen->entries) kept.push_back(entry.second);
  return call.runtime.generator(std::move(kept));
}

template <Operator is_better>
Value extreme(Call& call) {
  std::optional<Keyed> best;
  for (const Value& item : call.items()) {
    const Value key = order_key(call, 0, call.attribute(1, item));
    if (!best || compare(call.runtime, is_better, key, best->first)) best = Keyed(key, item);
  }
  return best ? best->second : call.runtime.undefined("the sequence is empty");
}

// The filter or test that positional argument `i` names, with the arguments behind it; where there
// is none, what gives its value back.
class Applied {
 public:
  Applied(const Call& call, size_t i, Use use) : runtime_(call.runtime), rest_(call.given) {
    auto& given = rest_.positional;
    if (given.size() <= i) return;
    if (!given[i].is_text()) runtime_.fail_type(call.row.name, "a name", given[i]);
    const std::string& name = runtime_.read(given[i]);
    row_ = find_builtin(use, name);
    if (!row_) fail_unknown(runtime_, use, name);
    given.erase(given.begin(), given.begin() + static_cast<ptrdiff_t>(i + 1));
  }
  Value operator()(const Value& value) const {
    return row_ ? invoke(runtime_, *row_, value, rest_) : value;
  }

 private:
  Runtime& runtime_;
  Arguments rest_;
  const Builtin* row_ = nullptr;
};

// map('filter', ...), or map(attribute=..., default=...).
Value map(Call& call) {
  if (!is_true(call.runtime, call.self)) return call.runtime.generator({});
  static constexpr Builtin kByName{"map", kFilter, nullptr, "attribute,default", 1};
  const bool is_by_name = call.given.positional.empty();
  const Call by_name(call.runtime, is_by_name ? kByName : call.row, call.self, call.given);
  const Applied apply(call, 0, kFilter);
  std::vector<Value> out;
  for (const Value& item : call.items()) {
    out.push_back(is_by_name ? by_name.attribute(0, item, by_name.get(1)) : apply(item));
  }
  return call.runtime.generator(std::move(out));
}

template <bool has_attribute, bool keeps_true>
Value select(Call& call) {
  const auto& given = call.given.positional;
  if (!is_true(call.runtime, call.self)) return call.runtime.generator({});
  if (has_attribute && given.empty()) {
    call.runtime.fail("{}: expected the name of an attribute", call.row.name);
  }
  if (has_attribute) call.values = {given[0]};
  const Applied test(call, has_attribute ? 1 : 0, kTest);
  std::vector<Value> out;
  for (const Value& item : call.items()) {
    const Value value = test(has_attribute ? call.attribute(0, item) : item);
    if (is_true(call.runtime, value) == keeps_true) out.push_back(item);
  }
  return call.runtime.generator(std::move(out));
}

constexpr Builtin kItemRows[] = {
    {"length", kFilter, length},
    {"count", kFilter, length},
    {"default", kFilter, default_value, "default_value,boolean"},
    {"d", kFilter, default_value, "default_value,boolean"},
    {"first", kFilter, first},
    {"last", kFilter, last},
    {"join", kFilter, join, "d,attribute"},
    {"join", kOfText, join_method, "/iterable", 1},
    {"list", kFilter, list},
    {"items", kFilter, items},
    {"sum", kFilter, sum, "attribute,start"},
    {"sort", kFilter, sort, "reverse,case_sensitive,attribute"},
    {"dictsort", kFilter, dictsort, "case_sensitive,by,reverse"},
    {"unique", kFilter, unique, "case_sensitive,attribute"},
    {"min", kFilter, extreme<Operator::lt>, "case_sensitive,attribute"},
    {"max", kFilter, extreme<Operator::gt>, "case_sensitive,attribute"},
    {"map", kFilter, map, "*"},
    {"select", kFilter, select<false, true>, "*"},
    {"reject", kFilter, select<false, false>, "*"},
    {"selectattr", kFilter, select<true, true>, "*"},
    {"rejectattr", kFilter, select<true, false>, "*"},
    {"count", kOfList, count_equal, "/value", 1},
    {"get", kOfDict, get, "/key,default", 1},
    {"items", kOfDict, view<Type::items>},
    {"keys", kOfDict, view<Type::keys>},
    {"values", kOfDict, view<Type::values>},
};

}  // namespace

std::span<const Builtin> item_rows() {
  return kItemRows;
}

}  // namespace octet::jinja
