// Samples of named arrays: what a run reads that is no stream of tokens.
//
// A sample is what is never divided: a row, or rows that belong together (a pair). A source writes
// samples into the rows of a batch; which sample comes when is a loader's (sample_loader.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/inputs.h"

namespace octet {

enum class RowUse : uint8_t { training, evaluation };

// Where a sample goes, and what chance decides by on the way: in an evaluation nothing.
struct RowCell {
  int64_t row = 0;  // of the batch, the sample's first
  RowUse use = RowUse::evaluation;
  uint64_t seed = 0;  // of the run
  int64_t drawn = 0;  // its first row, counted from the run's start
};

// Immutable; may be read from several threads.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t n_samples() const = 0;
  virtual int64_t rows_per_sample() const { return 1; }
  // The arrays that it writes, as they are declared.
  virtual const std::vector<InputSpec>& inputs() const = 0;
  // Whether rows have lengths: tokens without the padding behind them.
  virtual bool tells_lengths() const { return false; }
  virtual uint64_t identity() const = 0;  // changes with the content
  // Elements that are not kIgnoredLabel of an array of a sample that is written there; decodes
  // nothing.
  virtual int64_t n_counted(int64_t sample, const RowCell& where, const InputSpec& input) const = 0;
  // Whether samples are decoded when they are written: work for several threads.
  virtual bool decodes() const { return false; }
  // What a sample takes in its files, on the average.
  virtual int64_t sample_bytes() const = 0;
  // Fills the sample's part of each array of inputs(), which the batch has. Throws Error{bad_data}
  // or Error{io} where it cannot be read.
  virtual void write(int64_t sample, const RowCell& where, Batch& to) const = 0;
};

// Files of named arrays by how their names end, and whether some of these are such.
inline constexpr std::string_view kArrayFiles = ".safetensors";
bool are_arrays(const std::vector<std::string>& paths);

// Samples [begin, end) of another source.
std::shared_ptr<const RowSource> slice_rows(std::shared_ptr<const RowSource> source, int64_t begin,
                                            int64_t end);

// The last samples, `fraction` of all, are held out: at least one, but where it is 0, and not all.
int64_t first_held_out(int64_t n_samples, double fraction);

}  // namespace octet
