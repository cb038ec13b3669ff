#include "faults.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "processes.h"

namespace emulator {
namespace {

struct Fault {
  std::string what, of;
  int64_t device = -1, first = 0, count = -1, ms = 1000;

  bool is_here(int here) const { return !what.empty() && (device < 0 || device == here); }
  bool holds_for(int64_t number) const {
    return number >= first && (count < 0 || number < first + count);
  }
};

[[noreturn]] void refuse(const char* what, const char* value) {
  std::fprintf(stderr, "emulator: %s is not as processes.h says: '%s'\n", what, value);
  std::abort();
}

// The next word of `rest`, up to a colon.
std::string_view next_word(std::string_view& rest) {
  const size_t end = std::min(rest.find(':'), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

Fault read_fault() {
  constexpr const char* kVariable = "OCTET_EMULATED_FAULT";
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || *text == 0) return {};
  std::string_view rest = text;
  Fault fault;
  fault.what = next_word(rest);
  fault.of = next_word(rest);
  const bool skips = fault.what == "skip" && fault.of == "waits";
  const bool damages = (fault.what == "zero" || fault.what == "flip") && !fault.of.empty();
  const bool hangs = fault.what == "hang" && fault.of == "streams";
  if (!skips && !damages && !hangs) refuse(kVariable, text);
  if (skips) fault.count = 1;
  while (!rest.empty()) {
    const std::string_view word = next_word(rest);
    const size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    int64_t* const value = key == "device"  ? &fault.device
                           : key == "first" ? &fault.first
                           : key == "count" ? &fault.count
                           : key == "ms"    ? &fault.ms
                                            : nullptr;
    if (value == nullptr || equals == word.npos) refuse(kVariable, text);
    *value = std::atoll(std::string(word.substr(equals + 1)).c_str());
  }
  // One skips, and the others are late.
  if (skips && (fault.device < 0 || fault.first < 1)) refuse(kVariable, text);
  return fault;
}

const Fault& fault() {
  static const Fault the_fault = read_fault();
  return the_fault;
}

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

struct Jitter {
  uint64_t seed = 0, most_us = 0;
};
Jitter read_jitter() {
  constexpr const char* kVariable = "OCTET_EMULATED_JITTER";
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || *text == 0) return {};
  unsigned long long seed = 0, most = 0;
  if (std::sscanf(text, "%llu:%llu", &seed, &most) != 2) refuse(kVariable, text);
  return {seed, most};
}

}  // namespace

namespace {
Omitted g_omitted = Omitted::none;
int64_t g_n_omitted = 0;
}  // namespace

Omitted omitted() {
  return g_omitted;
}
void note_omitted(int64_t n_blocks) {
  g_n_omitted += n_blocks;
}
int64_t omit(Omitted what) {
  g_omitted = what;
  return std::exchange(g_n_omitted, 0);
}

void delay_for_jitter(int device) {
  static const Jitter jitter = read_jitter();
  static uint64_t n = 0;
  if (jitter.most_us == 0) return;
  const uint64_t word = mixed(mixed(jitter.seed ^ uint64_t(device) << 32) + n++);
  std::this_thread::sleep_for(std::chrono::microseconds(word % (jitter.most_us + 1)));
}

bool skips_wait(int device, int64_t barrier) {
  return fault().what == "skip" && fault().is_here(device) && fault().holds_for(barrier);
}
int device_that_skips(int device, int64_t barrier) {
  const bool is_other =
      fault().what == "skip" && !fault().is_here(device) && fault().holds_for(barrier);
  return is_other ? static_cast<int>(fault().device) : -1;
}
bool stream_hangs(int device) {
  static int64_t n = 0;
  return fault().what == "hang" && fault().is_here(device) && fault().holds_for(n++);
}
void delay_for_fault() {
  std::this_thread::sleep_for(std::chrono::milliseconds(fault().ms));
}

bool has_fault_of(std::string_view kernel) {
  return (fault().what == "zero" || fault().what == "flip") && fault().of == kernel &&
         fault().is_here(current_device());
}

void damage_result(std::string_view kernel, void* result, size_t bytes) {
  if (!has_fault_of(kernel)) return;
  if (bytes == 0) refuse("where the result of a kernel lies", std::string(kernel).c_str());
  static int64_t n = 0;
  if (!fault().holds_for(n++)) return;
  if (fault().what == "zero") {
    std::memset(result, 0, bytes);
  } else {
    *static_cast<unsigned char*>(result) ^= 1;
  }
}

}  // namespace emulator
