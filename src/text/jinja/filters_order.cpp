// Filters that compare the items of a sequence.
#include <algorithm>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

struct Keyed {
  Value key, item;
};

void sort_stably(Runtime& runtime, std::vector<Keyed>& all, bool is_reversed) {
  // Python sorts in reverse so that equal items keep their order.
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    return is_reversed ? is_less(runtime, b.key, a.key) : is_less(runtime, a.key, b.key);
  });
}

Sequence* items_of(Runtime& runtime, const std::vector<Keyed>& all) {
  std::vector<Value> items;
  for (const Keyed& one : all) items.push_back(one.item);
  return runtime.list(std::move(items));
}

// "a,b" asks for several keys, compared in turn.
std::vector<AttributeGetter> getters(Runtime& runtime, const Value& attribute) {
  std::vector<AttributeGetter> all;
  if (!attribute.is_text()) return {AttributeGetter(runtime, attribute)};
  std::string_view rest = attribute.text();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    all.emplace_back(runtime, runtime.text(std::string(rest.substr(0, comma))));
    if (comma == rest.size()) return all;
    rest.remove_prefix(comma + 1);
  }
}

Value sort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const auto get = getters(runtime, bound.get(2, None{}));
  const bool has_case = bound.truth(1, false);
  std::vector<Keyed> all;
  for (const Value& item : to_list(runtime, self)->items) {
    std::vector<Value> keys;
    for (const AttributeGetter& getter : get) {
      keys.push_back(has_case ? getter(item) : without_case(runtime, getter(item)));
    }
    all.push_back({runtime.list(std::move(keys)), item});
  }
  sort_stably(runtime, all, bound.truth(0, false));
  return items_of(runtime, all);
}

Value dictsort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") runtime.fail("dictsort: expected by 'key' or 'value'");
  if (self.is_undefined()) runtime.fail_undefined(self);
  const auto* dict = self.as<Dict>();
  if (dict == nullptr) runtime.fail("dictsort expected a dict, got {}", type_name(self));
  std::vector<Keyed> all;
  for (const auto& [key, value] : dict->entries) {
    const Value& of = by == "key" ? key : value;
    all.push_back(
        {bound.truth(0, false) ? of : without_case(runtime, of), runtime.tuple({key, value})});
  }
  sort_stably(runtime, all, bound.truth(2, false));
  return items_of(runtime, all);
}

Value unique(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "unique", {"case_sensitive", "attribute"});
  const bool has_case = bound.truth(0, false);
  const AttributeGetter get(runtime, bound.get(1, None{}));
  return runtime.iterator([&runtime, self, has_case, get, next = Next(),
                           seen = std::unordered_set<std::string>()](Value& out) mutable {
    if (!next) next = iterate(runtime, self);
    while (next(out)) {
      const Value key = has_case ? get(out) : without_case(runtime, get(out));
      if (seen.insert(hash_key(runtime, key)).second) return true;
    }
    return false;
  });
}

template <bool is_min>
Value extreme(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "min", {"case_sensitive", "attribute"});
  const bool has_case = bound.truth(0, false);
  const AttributeGetter get(runtime, bound.get(1, None{}));
  std::optional<Keyed> best;
  const Next next = iterate(runtime, self);
  for (Value item; next(item);) {
    const Value key = has_case ? get(item) : without_case(runtime, get(item));
    const bool is_better =
        !best || (is_min ? is_less(runtime, key, best->key) : is_less(runtime, best->key, key));
    if (is_better) best = Keyed{key, item};
  }
  return best ? best->item : runtime.undefined("no aggregated item, the sequence is empty");
}

Value groupby(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const AttributeGetter get(runtime, bound[0]);
  const Value fallback = bound.get(1, None{});
  const bool has_case = bound.truth(2, false);
  std::vector<Keyed> all;
  for (const Value& item : to_list(runtime, self)->items) {
    const Value key = get(item, &fallback);
    all.push_back({has_case ? key : without_case(runtime, key), item});
  }
  sort_stably(runtime, all, false);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    std::vector<Value> items;
    while (end < all.size() && is_equal(runtime, all[end].key, all[begin].key)) {
      items.push_back(all[end++].item);
    }
    const Value grouper = has_case ? all[begin].key : get(items[0], &fallback);
    const Value list = runtime.list(std::move(items));
    groups.push_back(runtime.list({grouper, list}, SequenceKind::group));
  }
  return runtime.list(std::move(groups));
}

constexpr MethodRow kOrderFilters[] = {
    {"sort", sort},         {"dictsort", dictsort},  {"unique", unique},
    {"min", extreme<true>}, {"max", extreme<false>}, {"groupby", groupby},
};

}  // namespace

Filter find_order_filter(std::string_view name) {
  return find_row(kOrderFilters, name);
}

}  // namespace octet::jinja
