#include "fuzz/fuzz_targets.h"
#include "nn/hf_config.h"
#include "nn/model.h"

namespace octet::fuzz {

void model_config(std::string_view bytes) {
  is_refused([&] {
    const ModelSpec spec = parse_hf_config(std::string(bytes), "config.json");
    expect(spec == resolved(spec), "a shape");
    expect(parse_hf_config(hf_config_text(spec), "again.json") == spec, "it is read back");
  });
}

}  // namespace octet::fuzz
