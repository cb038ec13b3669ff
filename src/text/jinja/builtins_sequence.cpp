// What is called on lists and dicts, as a filter or as a method.
#include <algorithm>
#include <unordered_set>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"

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

Value first(Call& call) {
  if (auto* iterator = call.self.as<Iterator>();
      iterator && iterator->at < iterator->items.size()) {
    return iterator->items[iterator->at++];
  }
  const Items items(call.runtime, call.self);
  if (!items.view().empty()) return items.view().front();
  return call.runtime.undefined("no first item, the sequence is empty");
}

Value last(Call& call) {
  if (call.self.as<Iterator>() != nullptr) call.runtime.fail("'generator' is not reversible");
  const Items items(call.runtime, call.self);
  if (!items.view().empty()) return items.view().back();
  return call.runtime.undefined("no last item, the sequence is empty");
}

Value join(Call& call) {
  const Value separator = as_text(call.runtime, call.get(0, call.runtime.text("")));
  Builder out(call.runtime);
  bool is_first = true;
  for (const Value& item : Items(call.runtime, call.self)) {
    if (!std::exchange(is_first, false)) append_text(out, separator);
    append_text(out, get_path(call.runtime, item, call.get(1, None{}), None{}));
    call.runtime.charge(1);
  }
  return out.take();
}

Value list(Call& call) {
  return call.runtime.list(Items(call.runtime, call.self).copy());
}

template <Type type>
Value view(Call& call) {
  return call.runtime.make<DictView>(type, call.self.as<Dict>());
}

Value items(Call& call) {
  if (call.self.is_undefined()) return call.runtime.iterator({});
  const Dict* dict = call.self.as<Dict>();
  if (dict == nullptr) call.runtime.fail("can only get item pairs from a mapping");
  const Value pairs = call.runtime.make<DictView>(Type::items, dict);
  return call.runtime.iterator(Items(call.runtime, pairs).copy());
}

Value get(Call& call) {
  const Value* found = call.self.as<Dict>()->find(call.runtime, *call.values[0]);
  return found != nullptr ? *found : call.get(1, None{});
}

Value count_equal(Call& call) {
  int64_t n = 0;
  for (const Value& item : Items(call.runtime, call.self)) {
    n += is_equal(call.runtime, item, *call.values[0]);
  }
  return n;
}

Value sum(Call& call) {
  Value total = call.get(1, int64_t{0});
  if (total.is_text()) call.runtime.fail("sum() can't sum strings");
  for (const Value& item : Items(call.runtime, call.self)) {
    const Value part = get_path(call.runtime, item, call.get(0, None{}), None{});
    total = arithmetic(call.runtime, Operator::add, total, part);
  }
  return total;
}

// Text in lower case unless case counts, anything else as it is.
Value sort_key(Runtime& runtime, const Value& value, bool has_case) {
  static const Builtin& lower = *find_builtin(kFilter, "lower");
  return has_case || !value.is_text() ? value : invoke(runtime, lower, value, {});
}

using Keyed = std::pair<Value, Value>;  // key, item

Value sorted(Runtime& runtime, std::vector<Keyed>& all, bool is_reversed) {
  // Python sorts in reverse so that equal items keep their order.
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    return is_reversed ? is_less(runtime, b.first, a.first) : is_less(runtime, a.first, b.first);
  });
  std::vector<Value> items;
  for (const Keyed& one : all) items.push_back(one.second);
  return runtime.list(std::move(items));
}

// attribute="a,b" asks for several keys, compared in turn.
Value sort(Call& call) {
  Runtime& runtime = call.runtime;
  const Value path = call.get(2, None{});
  std::vector<Value> paths = {path};
  if (path.is_text()) {
    const Value parts =
        invoke(runtime, *find_builtin(kOfText, "split"), path, {{runtime.text(",")}, {}});
    paths = parts.as<Sequence>()->items;
  }
  std::vector<Keyed> all;
  for (const Value& item : Items(runtime, call.self)) {
    std::vector<Value> keys;
    for (const Value& one : paths) {
      keys.push_back(sort_key(runtime, get_path(runtime, item, one, None{}), call.truth(1)));
    }
    all.emplace_back(runtime.list(std::move(keys)), item);
  }
  return sorted(runtime, all, call.truth(0));
}

Value dictsort(Call& call) {
  const std::string by = call.has(1) ? call.text(1) : "key";
  if (by != "key" && by != "value") call.runtime.fail("dictsort: expected by 'key' or 'value'");
  const auto* dict = call.self.as<Dict>();
  if (dict == nullptr) call.runtime.fail("dictsort expected a dict, got {}", type_name(call.self));
  std::vector<Keyed> all;
  for (const auto& [key, value] : dict->entries) {
    const Value order = sort_key(call.runtime, by == "key" ? key : value, call.truth(0));
    all.emplace_back(order, call.runtime.tuple({key, value}));
  }
  return sorted(call.runtime, all, call.truth(2));
}

Value unique(Call& call) {
  std::unordered_set<std::string> seen;
  std::vector<Value> kept;
  Runtime::Reserved reserved(call.runtime);
  for (const Value& item : Items(call.runtime, call.self)) {
    const Value value = get_path(call.runtime, item, call.get(1, None{}), None{});
    const std::string key = hash_key(call.runtime, sort_key(call.runtime, value, call.truth(0)));
    reserved.add(key.size() + Text::kOverhead);
    if (seen.insert(key).second) kept.push_back(item);
  }
  return call.runtime.iterator(std::move(kept));
}

template <bool is_min>
Value extreme(Call& call) {
  std::optional<Keyed> best;
  for (const Value& item : Items(call.runtime, call.self)) {
    const Value value = get_path(call.runtime, item, call.get(1, None{}), None{});
    const Value key = sort_key(call.runtime, value, call.truth(0));
    const bool is_better = !best || (is_min ? is_less(call.runtime, key, best->first)
                                            : is_less(call.runtime, best->first, key));
    if (is_better) best = Keyed(key, item);
  }
  return best ? best->second : call.runtime.undefined("the sequence is empty");
}

constexpr Builtin kSequenceRows[] = {
    {"length", kFilter, "", 0, length},
    {"count", kFilter, "", 0, length},
    {"default", kFilter, "default_value,boolean", 0, default_value},
    {"d", kFilter, "default_value,boolean", 0, default_value},
    {"first", kFilter, "", 0, first},
    {"last", kFilter, "", 0, last},
    {"join", kFilter, "d,attribute", 0, join},
    {"list", kFilter, "", 0, list},
    {"items", kFilter, "", 0, items},
    {"sum", kFilter, "attribute,start", 0, sum},
    {"sort", kFilter, "reverse,case_sensitive,attribute", 0, sort},
    {"dictsort", kFilter, "case_sensitive,by,reverse", 0, dictsort},
    {"unique", kFilter, "case_sensitive,attribute", 0, unique},
    {"min", kFilter, "case_sensitive,attribute", 0, extreme<true>},
    {"max", kFilter, "case_sensitive,attribute", 0, extreme<false>},
    {"count", kOfList, "/value", 1, count_equal},
    {"get", kOfDict, "/key,default", 1, get},
    {"items", kOfDict, "", 0, view<Type::items>},
    {"keys", kOfDict, "", 0, view<Type::keys>},
    {"values", kOfDict, "", 0, view<Type::values>},
};

}  // namespace

std::span<const Builtin> sequence_rows() {
  return kSequenceRows;
}

}  // namespace octet::jinja
