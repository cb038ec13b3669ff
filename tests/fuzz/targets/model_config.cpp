#include "fuzz/fuzz_targets.h"
#include "io/hf_config.h"

namespace octet::fuzz {

void model_config(std::string_view bytes) {
  is_refused([&] {
    const HfConfig config = parse_hf_config(std::string(bytes), "config.json");
    expect(config.hidden_size > 0 && config.num_attention_heads > 0, "a shape");
  });
}

}  // namespace octet::fuzz
