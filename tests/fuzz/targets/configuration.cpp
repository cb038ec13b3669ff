#include "config/load.h"
#include "config/report.h"
#include "fuzz/fuzz_targets.h"

namespace octet::fuzz {

// A file, and the same text as --set.
void configuration(std::string_view bytes) {
  const std::string text(bytes);
  is_refused([&] { parse_config("", "empty.yaml", {text}); });
  is_refused([&] {
    const RunConfig config = parse_config(text, "a.yaml").config;
    RunConfig again;
    const bool is_lost =
        is_refused([&] { again = parse_config(resolved_yaml(config), "b.yaml").config; });
    expect(!is_lost && again == config, "a resolved file means the same");
  });
}

}  // namespace octet::fuzz
