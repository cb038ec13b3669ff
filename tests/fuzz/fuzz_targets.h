// Targets of the fuzzers: one function for each kind of input that comes from outside.
//
// A target hands the bytes to the reader. It may be refused with an Error; anything else (a failed
// CHECK, another exception, a sanitizer's complaint) is a bug. What is accepted must come back the
// same when it is written and read again, which a target says with expect().
#pragma once

#include <span>
#include <string_view>

namespace octet::fuzz {

using Target = void (*)(std::string_view bytes);

void safetensors(std::string_view bytes);
void configuration(std::string_view bytes);
void numpy_header(std::string_view bytes);
void npz(std::string_view bytes);
void token_shard(std::string_view bytes);
void graph(std::string_view bytes);
void manifest(std::string_view bytes);
void model_config(std::string_view bytes);
void tokenizer(std::string_view bytes);
void tokenizer_text(std::string_view bytes);
void chat_template(std::string_view bytes);
void quantized(std::string_view bytes);
void run_folder(std::string_view bytes);
void model_folder(std::string_view bytes);

struct TargetRow {
  std::string_view name;  // also the corpus's folder
  Target target = nullptr;
};
std::span<const TargetRow> targets();

// Throws std::logic_error where `holds` is false.
void expect(bool holds, const char* what);

// Runs fn; true where it threw an Error that blames the input, false where it ran through.
template <typename Fn>
bool is_refused(Fn fn);

}  // namespace octet::fuzz

#include "base/error.h"

namespace octet::fuzz {

template <typename Fn>
bool is_refused(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    expect(error.code() != ErrorCode::internal, error.what());
    return true;
  }
  return false;
}

}  // namespace octet::fuzz
