// Machine that the measurements run on, its ceilings, and how they take a time.
#pragma once

#include <functional>
#include <string>

#include "backends/cpu/backend.h"
#include "base/log.h"
#include "bench/bench_row.h"
#include "runtime/profile.h"

namespace octet {

struct BenchMachine {
  Backend& backend;
  std::string isa;          // its name, for the rows
  Log log = {};             // what is being measured, and what had to be left out
  int ceiling_rounds = 12;  // of which the best counts; many, as one must be undisturbed

  bool is_gpu() const { return isa == "cuda"; }
  // A row with the machine's fields set.
  BenchRow row(std::string name, std::string shape) const;
};

struct Timing {
  Device* device = nullptr;  // waited for before each reading of the clock
  int rounds = 5;            // of which the median (or the best) counts, after one to warm up
  double round_ms = 10;      // each repeats the call until it has taken this long
  int64_t max_repeats = 1 << 20;
};

// Milliseconds of one call.
double median_ms(const std::function<void()>& run, const Timing& timing = {});
double best_ms(const std::function<void()>& run, const Timing& timing = {});

double median(std::vector<double> values);

// Bytes read and written a second, on all threads, from 256 MiB: by memcpy to another buffer, with
// blocks of 1 MiB or one a thread, whichever is faster; and by adding a number in place, which does
// not fetch lines only to overwrite them. Of a GPU: by its own copy, of 1 GiB.
double copy_bytes_per_s(const BenchMachine& machine);
double update_bytes_per_s(const BenchMachine& machine);

// The faster of the two above, and 2048^3 products of f32 and bf16 (on a GPU 8192^3, and of e4m3)
// by the back end's own kernels; each the best of some rounds. Takes a few seconds.
Ceilings measure_ceilings(const BenchMachine& machine);

}  // namespace octet
