#include <algorithm>

#include "data/row_plan.h"
#include "data/shards.h"
#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {
namespace {

constexpr int64_t kVocabs[] = {0, 1, 256, 50257, 65536, 65537, 1 << 24};

ShardOptions options_of(uint8_t choice) {
  ShardOptions options;
  options.width = static_cast<TokenWidth>(choice / 2 % 3);
  options.vocab = kVocabs[choice / 6 % std::size(kVocabs)];
  if (choice >= 128) options.eos = choice % 5;
  return options;
}

void draw(const std::shared_ptr<const TokenSource>& source) {
  RowLoader loader(TokenStream({source}), {.seq = 5, .seed = 3});
  const LoaderState state = loader.state();
  const Batch first = loader.peek(0, 3);
  loader.advance(3);
  loader.restore(state);
  expect(loader.peek(0, 3).ints("tokens") == first.ints("tokens"),
         "the same batch after a restore");
}

}  // namespace

// The first byte chooses the options, the rest is the file.
void token_shard(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<uint8_t>(bytes[0]);
  const std::string path = choice % 2 == 0 ? "a.npy" : "a.bin";
  const MemoryFiles files(path, bytes.substr(1));
  const ShardOptions options = options_of(choice);
  is_refused([&] {
    const auto source = shard_source(files, path, options);
    source->identity();
    const int64_t n = source->n_tokens();
    for (int64_t first = 0; first < n; first += 7) {
      const auto count = static_cast<size_t>(std::min<int64_t>(7, n - first));
      std::vector<int32_t> tokens(count);
      std::vector<uint8_t> starts(count);
      source->read(first, tokens, starts);
      for (const int32_t token : tokens) {
        expect(token >= 0 && (options.vocab == 0 || token < options.vocab), "known tokens");
      }
    }
    if (n >= 2) draw(source);
  });
}

}  // namespace octet::fuzz
