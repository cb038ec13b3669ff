#include "text/jinja/globals.h"

#include <memory>

#include "text/jinja/arguments.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox

Value make_range(Runtime& runtime, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "range");
  const Bound bound(runtime, arguments, "range", {"start", "stop", "step"}, 1);
  auto* range = runtime.make<Range>();
  range->start = bound.has(1) ? bound.integer(0, 0) : 0;
  range->stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  range->step = bound.integer(2, 1);
  if (range->step == 0) runtime.fail("range() expected a step that is not zero");
  constexpr int64_t kMost = int64_t{1} << 53;  // differences fit
  for (const int64_t value : {range->start, range->stop, range->step}) {
    if (value > kMost || value < -kMost) runtime.fail("range() expected smaller numbers");
  }
  if (range->length() > kMaxRange) {
    runtime.fail("range() expected at most {} items, got {}", kMaxRange, range->length());
  }
  return range;
}

// dict(pairs or a dict, key=value ...)
Dict* dict_of(Runtime& runtime, const Arguments& arguments, const char* function) {
  if (arguments.positional.size() > 1) runtime.fail("{}() expected one dict at most", function);
  auto* dict = runtime.dict();
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (const auto* other = from.as<Dict>()) {
      for (const auto& [key, value] : other->entries) dict->set(runtime, key, value);
    } else {
      const Next next = iterate(runtime, from);
      for (Value pair; next(pair);) {
        const Sequence* items = to_list(runtime, pair);
        if (items->items.size() != 2) runtime.fail("{}() expected pairs", function);
        dict->set(runtime, items->items[0], items->items[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) dict->set(runtime, runtime.text(key), value);
  return dict;
}

Value make_dict(Runtime& runtime, Arguments& arguments) {
  return dict_of(runtime, arguments, "dict");
}

Value make_namespace(Runtime& runtime, Arguments& arguments) {
  auto* space = runtime.make<Namespace>();
  space->attributes = dict_of(runtime, arguments, "namespace");
  return space;
}

struct Cycler : Object {
  const char* type_name() const override { return "Cycler"; }
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override {
    if (name == "current") {
      value = items[at];
    } else if (name == "next") {
      value = runtime.function("next", [this](Runtime& from, Arguments& arguments) {
        const Bound bound(from, arguments, "next", {});
        return items[std::exchange(at, (at + 1) % items.size())];
      });
    } else if (name == "reset") {
      value = runtime.function("reset", [this](Runtime& from, Arguments& arguments) -> Value {
        const Bound bound(from, arguments, "reset", {});
        at = 0;
        return None{};
      });
    } else {
      return false;
    }
    return true;
  }
  std::vector<Value> items;
  size_t at = 0;
};

Value make_cycler(Runtime& runtime, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "cycler");
  if (arguments.positional.empty()) runtime.fail("cycler() expected at least one item");
  auto* cycler = runtime.make<Cycler>();
  cycler->items = arguments.positional;
  return cycler;
}

Value make_joiner(Runtime& runtime, Arguments& arguments) {
  const Bound bound(runtime, arguments, "joiner", {"sep"});
  const Value separator = bound.get(0, runtime.text(", "));
  return runtime.function("joiner",
                          [separator, is_used = false](Runtime& at, Arguments&) mutable -> Value {
                            return std::exchange(is_used, true) ? separator : at.text("");
                          });
}

[[noreturn]] Value raise_exception(Runtime& runtime, Arguments& arguments) {
  const Bound bound(runtime, arguments, "raise_exception", {"message"}, 1);
  throw TemplateRefusal(bound[0].is_none() ? "None" : str(runtime, bound[0]));
}

Value strftime_now(Runtime& runtime, Arguments& arguments) {
  const Bound bound(runtime, arguments, "strftime_now", {"format"}, 1);
  return runtime.text(format_time(runtime, bound.text(0), runtime.clock()));
}

Value lipsum(Runtime& runtime, Arguments&) {
  runtime.fail("lipsum() is outside the supported subset");
}

}  // namespace

std::string format_time(Runtime& runtime, const std::string& format, const std::tm& time) {
  std::string safe;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      safe += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f') {
      safe += "000000";
    } else if (kind != 'z' && kind != 'Z') {
      safe += '%';
      safe += kind;
    }
  }
  if (safe.empty()) return {};
  safe += '.';  // so that text of no length is not taken for too small a buffer
  if (safe.size() > 4096) runtime.fail("strftime_now expected a shorter format");
  std::string text(safe.size() * 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), safe.c_str(), &time));
  if (text.empty()) runtime.fail("strftime_now: the format gives too much text");
  text.pop_back();
  return text;
}

void define_globals(Evaluator& evaluator) {
  const auto add = [&](const char* name, Callable body) {
    evaluator.define(name, evaluator.runtime().function(name, std::move(body)));
  };
  add("range", make_range);
  add("dict", make_dict);
  add("namespace", make_namespace);
  add("cycler", make_cycler);
  add("joiner", make_joiner);
  add("lipsum", lipsum);
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
}

}  // namespace octet::jinja
