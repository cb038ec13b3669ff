#include "text/encode_texts.h"

#include <array>

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {

// A tokenizer's file of any kind, with the merges behind a line "----" where there is one; what can
// be read must survive text that it was not made for.
void tokenizer(std::string_view bytes) {
  constexpr std::string_view kCut = "\n----\n";
  MemoryFiles files;
  const size_t cut = bytes.find(kCut);
  files.create("./t.bin")->write(as_bytes(bytes.substr(0, cut)));
  if (cut != bytes.npos) {
    files.create("./merges.txt")->write(as_bytes(bytes.substr(cut + kCut.size())));
  }
  is_refused([&] {
    const auto tokenizer = make_tokenizer(files, "./t.bin", {.pattern = "gpt2"});
    for (const std::string_view text : {"a \xc3\xa9 0\n", "\xff \xe2\x96\x81 <s>aaaabbbb<|end|>"}) {
      is_refused([&] {
        const auto ids = tokenizer->encode(text, {.special = SpecialText::parse});
        for (const int32_t id : ids) {
          expect(id >= 0 && id < tokenizer->vocab_size(), "known tokens");
        }
        tokenizer->decode(ids);
      });
      is_refused([&] {
        const EncodedTexts pair = encode_texts(*tokenizer, text, "b", {.max_tokens = 8});
        expect(pair.ids.size() <= 8, "at most so many tokens");
        expect(pair.types.size() == pair.ids.size() && pair.special.size() == pair.ids.size(),
               "a type and a mark for each token");
        tokenizer->decode(pair.ids);
      });
    }
  });
}

// Text, through a small vocabulary of bytes with the words of each known pattern: it comes back,
// with a cache of words or without.
void tokenizer_text(std::string_view bytes) {
  static const auto tokenizers = [] {
    std::string ranks;
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto add = [&](std::string token, int rank) {
      const size_t n = token.size();
      token.resize(3, '\0');
      uint32_t bits = 0;
      for (const char c : token) bits = bits << 8 | static_cast<unsigned char>(c);
      for (size_t i = 0; i < 4; ++i) {
        ranks += i <= n ? kAlphabet[bits >> (18 - 6 * i) & 63] : '=';
      }
      ranks += fmt::format(" {}\n", rank);
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)), byte);
    int rank = 256;
    for (const char* token :
         {"  ", "aa", "th", "the", " t", "\n\n", "'s", "\xc3\xa9", "11", "..."}) {
      add(token, rank++);
    }
    const MemoryFiles files("./ranks", ranks);
    std::array<std::unique_ptr<Tokenizer>, 3> made;
    size_t i = 0;
    for (const char* pattern : {"gpt2", "cl100k", "qwen"}) {
      made[i++] = make_tokenizer(files, "./ranks", {.pattern = pattern});
    }
    return made;
  }();
  for (const auto& tokenizer : tokenizers) {
    WordCache words;
    const auto ids = tokenizer->encode(bytes);
    expect(tokenizer->decode(ids) == bytes, "text comes back");
    expect(tokenizer->encode(bytes, {.words = &words}) == ids, "a cache changes nothing");
    expect(tokenizer->encode(bytes, {.words = &words}) == ids, "nor do known words");
  }
}

}  // namespace octet::fuzz
