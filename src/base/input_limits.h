// Limits of what one input may ask for before it is refused. Input comes from others: a template, a
// packed file, a picture may be small and ask for hours or for all memory.
//
// A reader takes its own of these as an option, input_limits() where nobody says otherwise. Tests
// of a limit lower it, so that an input that meets it is small, and harmless to every program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet {

// Chat templates (text/jinja).
struct TemplateLimits {
  size_t max_source_bytes = size_t{4} << 20;
  size_t max_text_bytes = size_t{16} << 20;  // one text, and what is rendered
  size_t max_memory = size_t{256} << 20;     // all that is alive, roughly
  uint64_t max_steps = 100'000'000;          // some seconds of one core
  int max_depth = 600;                       // nested evaluations, macros that call themselves
  int max_nesting = 250;                     // of the source: expressions within each other
  int max_statements = 100;                  // within each other
  int64_t max_range = 100'000;               // items, as Jinja's sandbox
};

// Regular expressions of tokenizers (text/regex.h).
struct RegexLimits {
  size_t max_pattern_bytes = size_t{64} << 10;
  uint32_t max_groups = 255;
  size_t max_steps = 10'000'000, steps_per_byte = 16;  // of one search, beside those for its text
  double seconds = 1, seconds_per_byte = 2e-5;         // of a text: a thousand times what is usual
};

// Steps of tokenizers (text/normalizer.h, text/pre_tokenizer.h).
struct TokenizerLimits {
  size_t max_steps = 64;  // of a kind: each is a call within the one before
  int max_marks = 4;      // steps of Metaspace: each may double a text
  size_t max_growth = 32, growth_allowance = 1024;  // of a text: a character becomes 18 in NFKD
};

// The library copies and prints values by recursion: depth is bounded before the stack is.
struct JsonTextLimits {
  size_t max_depth = 64;
  size_t max_chat_depth = 200;  // of conversations and of a template's context
  // Ten times the values of 100,000 tensors in a file's header. A value takes up to a hundred bytes
  // of memory for two of text.
  size_t max_values = 10'000'000;
  uint64_t max_record_bytes = uint64_t{64} << 20;  // of one record of training data
};

// Configurations.
struct YamlLimits {
  int max_depth = 100;
  int64_t max_aliases = 1000;
};

// Pictures, as their headers tell, and what their decoders may take.
struct PictureLimits {
  uint64_t max_file_bytes = uint64_t{1} << 30;
  int64_t max_pixels = int64_t{1} << 26;
  uint64_t chunk_bytes = uint64_t{1} << 20;  // of a chunk of a PNG whose file is no larger
  int max_scans = 500;  // of a JPEG: thousands over one picture would take minutes
};

struct InputLimits {
  TemplateLimits templates = {};
  RegexLimits regex = {};
  TokenizerLimits tokenizer = {};
  JsonTextLimits json = {};
  YamlLimits yaml = {};
  PictureLimits pictures = {};
  uint64_t max_unpacked_bytes = uint64_t{4} << 30;  // of a file that is held in memory
};

// The defaults. A program for tests is linked with others (tests/low_limits).
const InputLimits& input_limits();

}  // namespace octet
