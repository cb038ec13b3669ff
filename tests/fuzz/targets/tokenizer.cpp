#include "text/tokenizer.h"

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {

// A tokenizer.bin; what can be read must survive text that it was not made for.
void tokenizer(std::string_view bytes) {
  const MemoryFiles files("t.bin", bytes);
  is_refused([&] {
    const auto tokenizer = make_tokenizer(files, "t.bin");
    const auto ids = tokenizer->encode("a \xc3\xa9 0\n");
    for (const int32_t id : ids) expect(id >= 0 && id < tokenizer->vocab_size(), "known tokens");
    tokenizer->decode(ids);
  });
}

}  // namespace octet::fuzz
