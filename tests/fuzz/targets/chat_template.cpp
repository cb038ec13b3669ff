#include "base/ordered_json.h"
#include "fuzz/fuzz_targets.h"
#include "text/jinja/template.h"

namespace octet::fuzz {

// A template; what parses is rendered twice within small bounds, with the same result.
void chat_template(std::string_view bytes) {
  static const OrderedJson variables = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "é <b>"}, {"role": "assistant", "content": "x"}],
          "tools": null, "add_generation_prompt": true, "s": "text", "i": -3, "f": 1.5,
          "l": [3, "a", null, [1]], "d": {"b": 1, "a": {"c": []}}, "bos_token": "<s>"})");
  jinja::RenderOptions options;
  options.clock.tm_mday = 1;
  options.limits.max_steps = 50'000;
  options.limits.max_text_bytes = size_t{1} << 18;
  options.limits.max_memory = size_t{1} << 23;
  is_refused([&] {
    const jinja::Template parsed(bytes);
    const auto first = parsed.render(variables, options);
    const auto second = parsed.render(variables, options);
    expect(first.text == second.text, "the same text again");
    for (const auto& [begin, end] : first.generations) {
      expect(begin <= end && end <= first.text.size(), "spans within the text");
    }
  });
}

}  // namespace octet::fuzz
