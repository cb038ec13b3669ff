#include "text/jinja/template.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

Value to_value(Runtime& runtime, const OrderedJson& json) {
  const Runtime::Depth depth(runtime);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_integer:
      return json.get<int64_t>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) fail_overflow(runtime);
      return json.get<int64_t>();
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      if (find_invalid_utf8(text) != std::string::npos) runtime.fail("a text is not UTF-8");
      return runtime.text(text);
    }
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(to_value(runtime, item));
      return runtime.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      auto* dict = runtime.make<Dict>();
      for (const auto& [key, value] : json.items()) {
        dict->set(runtime, runtime.text(key), to_value(runtime, value));
      }
      return dict;
    }
    default:
      return None{};
  }
}

}  // namespace

Template::Template(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    fail_at(0, fmt::format("expected at most {} bytes, got {}", limits.max_source_bytes,
                           source.size()));
  }
  const size_t invalid = find_invalid_utf8(source);
  if (invalid != std::string_view::npos) {
    const auto line =
        std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(invalid), '\n');
    fail_at(static_cast<int>(line) + 1, fmt::format("byte {} is not UTF-8", invalid));
  }
  tree_ = parse(source, limits);
}

Rendered Template::render(const OrderedJson& variables, const RenderOptions& options) const {
  Evaluator evaluator(tree_, options);
  for (const auto& [name, value] : variables.items()) {
    evaluator.define(name, to_value(evaluator.runtime(), value));
  }
  Rendered rendered;
  rendered.text = evaluator.run();
  for (const auto& [begin, n] : evaluator.generations()) {
    const std::string_view rest = std::string_view(rendered.text).substr(begin);
    rendered.generations.emplace_back(begin, begin + nth_character(rest, n));
  }
  return rendered;
}

}  // namespace octet::jinja
